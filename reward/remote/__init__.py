"""Metrics behind the addresses of reward services, see docs/SERVICE.md, and of servers of models."""

from __future__ import annotations

import math

from reward.metrics.base import MetricSpec

__all__ = ["POOLED", "REMOTE"]

# What is known of a metric before its service is asked: aspects, needs and range are those of the metric there.
REMOTE = MetricSpec(
    name="remote",
    scorer="reward.remote.scorer:RemoteScorer",
    aspects=("score",),
    needs_image=False,
    range=(-math.inf, math.inf),
    paper="none: the metric of a reward service",
)

# {metric: scorer} of the metrics whose model may be behind a server of models, see `reward.remote.pooling`.
POOLED = {
    "crossencoder": "reward.remote.pooling:PooledCrossEncoder",
    "embedscore": "reward.remote.pooling:PooledEmbedScore",
    "vlmreward": "reward.remote.pooling:PooledVlmReward",
}
