"""Decoding by a reward in transformers: `BestOfN` for `generate(custom_generate=...)`, `rerank` for given captions."""

from integrations.hf_generate.best_of_n import BestOfN
from reward.decoding.selection import rerank

__all__ = ["BestOfN", "rerank"]
