"""Facts about FLEUR, readable without loading torch."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="fleur",
    scorer="reward.metrics.fleur.scorer:FleurScorer",
    aspects=("smoothed", "raw"),
    default_weights={"smoothed": 1.0},
    needs_image=True,
    needs_references=False,
    range=(0.0, 1.0),
    paper="FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning Using a Large Multimodal Model",
)
