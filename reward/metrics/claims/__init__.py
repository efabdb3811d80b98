"""Claims: how many of a caption's claims a judge finds true, and how many of the references' claims it makes."""

from __future__ import annotations

from reward.metrics.base import MetricSpec
from reward.metrics.published import QWEN_VL_3B, QWEN_VL_7B

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="claims",
    scorer="reward.metrics.claims.scorer:ClaimsScorer",
    sources="judge",
    aspects=("f1", "precision", "recall"),
    needs_references=True,
    suits="long",
    blind_to="what its judge misses; grammar",
    checkpoints=(QWEN_VL_7B, QWEN_VL_3B),
    default_weights={"f1": 1.0},
    paper="verified claims, as in FaithScore (precision) and DCScore of Painting with Words (recall)",
)
