"""Metrics behind the addresses of reward services; see docs/SERVICE.md."""

from __future__ import annotations

import math

from reward.metrics.base import MetricSpec

__all__ = ["REMOTE"]

# What is known of a metric before its service is asked: aspects, needs and range are those of the metric there.
REMOTE = MetricSpec(
    name="remote",
    scorer="reward.remote.scorer:RemoteScorer",
    aspects=("score",),
    needs_image=False,
    range=(-math.inf, math.inf),
    paper="none: the metric of a reward service",
)
