"""Baselines that ask a judge one question: CLAIR, about the references, and VQAScore, about the image."""

from __future__ import annotations

from reward.metrics.base import MetricSpec
from reward.metrics.published import QWEN_VL_3B, QWEN_VL_7B

__all__ = ["CLAIR", "SPECS", "VQASCORE"]

CLAIR = MetricSpec(
    name="clair",
    scorer="reward.metrics.one_question.scorer:ClairScorer",
    sources="judge",
    aspects=("clair",),
    needs_image=False,
    needs_references=True,
    suits="short",
    blind_to="the image; what its judge misses",
    checkpoints=(QWEN_VL_7B, QWEN_VL_3B),
    citation={
        "author": "Chan, David M. and Petryk, Suzanne and Gonzalez, Joseph E. and Darrell, Trevor and Canny, John",
        "title": "{CLAIR}: Evaluating Image Captions with Large Language Models",
        "booktitle": "Proceedings of EMNLP",
        "year": "2023",
    },
    paper="CLAIR: Evaluating Image Captions with Large Language Models (2023)",
)
VQASCORE = MetricSpec(
    name="vqascore",
    scorer="reward.metrics.one_question.scorer:VqaScorer",
    sources="judge",
    aspects=("vqascore",),
    suits="short",
    blind_to="what its judge misses; what the caption leaves out; grammar",
    checkpoints=(QWEN_VL_7B, QWEN_VL_3B),
    citation={
        "author": "Lin, Zhiqiu and Pathak, Deepak and Li, Baiqi and Li, Jiayao and Xia, Xide and Neubig, Graham and "
        "Zhang, Pengchuan and Ramanan, Deva",
        "title": "Evaluating Text-to-Visual Generation with Image-to-Text Generation",
        "booktitle": "Proceedings of ECCV",
        "year": "2024",
    },
    paper="Evaluating Text-to-Visual Generation with Image-to-Text Generation (2024)",
)
SPECS = (CLAIR, VQASCORE)
