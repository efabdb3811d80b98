"""Baselines that count words: the length of a caption, and the words that it shares with a reference."""

from __future__ import annotations

import math

from reward.metrics.base import MetricSpec

__all__ = ["LENGTH", "SPECS", "UNIGRAM"]

# words split at white space; of scripts without blanks between words, letters
LENGTH = MetricSpec(
    name="length",
    scorer="reward.metrics.words.scorer:LengthScorer",
    sources="checkpoint",
    aspects=("length",),
    needs_image=False,
    range=(0.0, math.inf),
    paper="Baseline of CapArena: Benchmarking and Analyzing Detailed Image Captioning in the LLM Era (2025)",
    has_embedded=True,
)
UNIGRAM = MetricSpec(
    name="unigram",
    scorer="reward.metrics.words.scorer:UnigramScorer",
    sources="checkpoint",
    aspects=("f1",),
    needs_image=False,
    needs_references=True,
    paper="Bag-of-words F1, as in SQuAD: 100,000+ Questions for Machine Comprehension of Text (2016)",
    has_embedded=True,
)
SPECS = (LENGTH, UNIGRAM)
