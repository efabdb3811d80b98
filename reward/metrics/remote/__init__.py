"""Any metric that a reward service serves; see docs/SERVICE.md."""

from __future__ import annotations

import math

from reward.metrics.base import MetricSpec

__all__ = ["SPEC"]

# Aspects, needs and range are those of the metric behind the service, which the scorer asks for.
SPEC = MetricSpec(
    name="remote",
    scorer="reward.metrics.remote.scorer:RemoteScorer",
    aspects=("score",),
    needs_image=False,
    range=(-math.inf, math.inf),
    is_remote=True,
    paper="none: the metric of a reward service, source=URL",
)
