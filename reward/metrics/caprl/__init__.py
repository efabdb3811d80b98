"""CapRL: how many questions about the image a reader can answer who has the caption and not the image."""

from __future__ import annotations

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="caprl",
    scorer="reward.metrics.caprl.scorer:CapRLScorer",
    aspects=("right", "answered"),
    default_weights={"right": 1.0},
    paper="CapRL: Stimulating Dense Image Caption Capabilities via Reinforcement Learning (arXiv 2509.22647)",
)
