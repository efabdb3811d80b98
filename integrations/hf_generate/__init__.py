"""Decoding by a reward in transformers: strategies for `generate(custom_generate=...)`, `rerank` for given captions."""

from integrations.hf_generate.adaptive import AdaptiveBestOfN
from integrations.hf_generate.best_of_n import BestOfN
from integrations.hf_generate.blockwise import PRESETS, BlockwiseBestOfN
from integrations.hf_generate.mbr import MinimumBayesRisk
from integrations.hf_generate.rejection import SpeculativeRejection
from integrations.hf_generate.strategy import Strategy
from reward.decoding.mbr import minimum_bayes_risk
from reward.decoding.selection import rerank

__all__ = [
    "PRESETS",
    "STRATEGIES",
    "AdaptiveBestOfN",
    "BestOfN",
    "BlockwiseBestOfN",
    "MinimumBayesRisk",
    "SpeculativeRejection",
    "minimum_bayes_risk",
    "rerank",
]

STRATEGIES: dict[str, type[Strategy]] = {
    "best-of-n": BestOfN,
    "blockwise": BlockwiseBestOfN,
    "speculative-rejection": SpeculativeRejection,
    "adaptive": AdaptiveBestOfN,
    "minimum-bayes-risk": MinimumBayesRisk,
}
"""Strategies by name. All are called as `(reward, n=..., processor=...)`; their other arguments are plain values."""
