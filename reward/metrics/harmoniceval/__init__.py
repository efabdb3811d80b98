"""HarmonicEval: five criteria rated from 1 to 5 by a vision-language model, weighted by how sure it is of each."""

from __future__ import annotations

from reward.metrics.base import QWEN3_VL_4B, QWEN_VL_7B, MetricSpec
from reward.metrics.harmoniceval.aggregate import aggregate

__all__ = ["SPEC", "aggregate"]

SPEC = MetricSpec(
    name="harmoniceval",
    scorer="reward.metrics.harmoniceval.scorer:HarmonicScorer",
    sources="judge",
    aspects=("overall", "correctness", "completeness", "clarity", "fluency", "conciseness"),
    default_weights={"overall": 1.0},
    range=(1.0, 5.0),
    reads_questions=True,
    suits="short, long",
    blind_to="what its judge misses; two of five criteria look at the image",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B),
    citation={
        "author": "Ohi, Masanari and Kaneko, Masahiro and Okazaki, Naoaki and Inoue, Nakamasa",
        "title": "Multi-modal, Multi-task, Multi-criteria Automatic Evaluation with Vision Language Models",
        "eprint": "2412.14613",
        "archivePrefix": "arXiv",
        "year": "2024",
    },
    paper="Multi-modal, Multi-task, Multi-criteria Automatic Evaluation with Vision Language Models",
)
