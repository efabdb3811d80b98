"""Facts about the unigram baseline."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="unigram",
    scorer="reward.metrics.unigram.scorer:UnigramScorer",
    aspects=("f1",),
    needs_image=False,
    needs_references=True,
    range=(0.0, 1.0),
    paper="Bag-of-words F1, as in SQuAD: 100,000+ Questions for Machine Comprehension of Text (2016)",
    has_embedded=True,
)
