"""Facts about BEiTScore, readable without loading torch."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="beitscore",
    scorer="reward.metrics.beitscore.scorer:BeitScoreScorer",
    aspects=("overall",),
    needs_image=True,
    needs_references=False,
    range=(0.0, 1.0),
    paper="BEiTScore: reference-free image captioning evaluation with an efficient cross-encoder",
    has_embedded=True,
)
