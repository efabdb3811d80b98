"""ClaimDiff: a judge lists how a caption differs from a reference, and says of each difference who is wrong."""

from __future__ import annotations

from reward.metrics.base import MetricSpec
from reward.metrics.published import QWEN_VL_3B, QWEN_VL_7B

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="claimdiff",
    scorer="reward.metrics.claimdiff.scorer:ClaimDiffScorer",
    sources="judge",
    aspects=("overall",),
    needs_references=True,
    suits="long",
    blind_to="errors that the reference shares; grammar",
    checkpoints=(QWEN_VL_7B, QWEN_VL_3B),
    citation={
        "author": "Li, Tianle and Shen, Xuyang and others",
        "title": "{ClaimDiff-RL}: Fine-Grained Caption Reinforcement Learning through Visual Claim Comparison",
        "eprint": "2605.20278",
        "archivePrefix": "arXiv",
        "year": "2026",
    },
    paper="ClaimDiff-RL (arXiv 2605.20278)",
)
