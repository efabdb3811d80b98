"""BeitScoreReward: BEiTScore as a reward function."""

from __future__ import annotations

import os
from typing import Any

from reward.functions.metric_reward import MetricReward

__all__ = ["BeitScoreReward"]


class BeitScoreReward(MetricReward):
    """BEiTScore as a reward function: one score in [0, 1] of a caption, given its image; references are not used.

    Source: "BEiTScore: reference-free image captioning evaluation with an efficient cross-encoder".

    Args:
        source: `"embedded"` (ships with the package; trained on synthetic scenes, so for trials and tests, not photos),
            a checkpoint folder, or a Hub id.
        options: further arguments of `MetricReward`: name, image_column, on_error, batch_size, revision, device, dtype.

    Example:
        >>> BeitScoreReward("path/of/a/checkpoint", name="faithful")
        BeitScoreReward(name='faithful', source='path/of/a/checkpoint', weights={'overall': 1.0})
    """

    def __init__(self, source: str | os.PathLike[str] = "embedded", **options: Any) -> None:
        super().__init__("beitscore", source, **options)
