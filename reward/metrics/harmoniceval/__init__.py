"""HarmonicEval: five criteria rated from 1 to 5 by a vision-language model, weighted by how sure it is of each."""

from __future__ import annotations

from reward.metrics.base import MetricSpec
from reward.metrics.harmoniceval.aggregate import aggregate

__all__ = ["SPEC", "aggregate"]

SPEC = MetricSpec(
    name="harmoniceval",
    scorer="reward.metrics.harmoniceval.scorer:HarmonicScorer",
    aspects=("overall", "correctness", "completeness", "clarity", "fluency", "conciseness"),
    default_weights={"overall": 1.0},
    range=(1.0, 5.0),
    reads_questions=True,
    paper="Multi-modal, Multi-task, Multi-criteria Automatic Evaluation with Vision Language Models",
)
