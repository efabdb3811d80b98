"""Facts about HarmonicEval, readable without loading torch."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="harmoniceval",
    scorer="reward.metrics.harmoniceval.scorer:HarmonicScorer",
    aspects=("overall", "correctness", "completeness", "clarity", "fluency", "conciseness"),
    default_weights={"overall": 1.0},
    needs_image=True,
    needs_references=False,
    range=(1.0, 5.0),
    paper="Multi-modal, Multi-task, Multi-criteria Automatic Evaluation with Vision Language Models",
)
