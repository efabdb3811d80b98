"""FLEUR and RefFLEUR: a vision-language model writes a number from 0.0 to 1.0, whose digits are smoothed."""

from __future__ import annotations

from reward.metrics.base import LLAVA_13B, QWEN3_VL_4B, QWEN_VL_7B, MetricSpec
from reward.metrics.fleur.smoothing import smoothed_score

__all__ = ["SPEC", "smoothed_score"]

SPEC = MetricSpec(
    name="fleur",
    scorer="reward.metrics.fleur.scorer:FleurScorer",
    sources="judge",
    aspects=("smoothed", "raw"),
    default_weights={"smoothed": 1.0},
    suits="short, long",
    blind_to="what its judge misses; it is one number, language and content together",
    checkpoints=(QWEN3_VL_4B, QWEN_VL_7B, LLAVA_13B),
    citation={
        "author": "Lee, Yebin and Park, Imseong and Kang, Myungjoo",
        "title": "{FLEUR}: An Explainable Reference-Free Evaluation Metric for Image Captioning Using a Large "
        "Multimodal Model",
        "booktitle": "Proceedings of ACL",
        "year": "2024",
    },
    paper="FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning Using a Large Multimodal Model",
)
