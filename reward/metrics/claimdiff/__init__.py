"""ClaimDiff: a judge lists how a caption differs from a reference, and says of each difference who is wrong."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="claimdiff",
    scorer="reward.metrics.claimdiff.scorer:ClaimDiffScorer",
    aspects=("overall",),
    needs_references=True,
    paper="ClaimDiff-RL (arXiv 2605.20278)",
)
