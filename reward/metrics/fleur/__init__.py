"""FLEUR and RefFLEUR: a vision-language model writes a number from 0.0 to 1.0, whose digits are smoothed."""

from __future__ import annotations

from reward.metrics.base import MetricSpec
from reward.metrics.fleur.smoothing import smoothed_score

__all__ = ["SPEC", "smoothed_score"]

SPEC = MetricSpec(
    name="fleur",
    scorer="reward.metrics.fleur.scorer:FleurScorer",
    aspects=("smoothed", "raw"),
    default_weights={"smoothed": 1.0},
    paper="FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning Using a Large Multimodal Model",
)
