"""Facts about the length baseline."""

from __future__ import annotations

import math

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

SPEC = MetricSpec(
    name="length",
    scorer="reward.metrics.length.scorer:LengthScorer",
    aspects=("length",),
    needs_image=False,
    range=(0.0, math.inf),
    paper="Baseline of CapArena: Benchmarking and Analyzing Detailed Image Captioning in the LLM Era (2025)",
    has_embedded=True,
)
