"""BeitScoreReward: BEiTScore as a reward function."""

from __future__ import annotations

import os
import warnings
from typing import Any

from reward.functions.metric_reward import MetricReward

__all__ = ["BeitScoreReward"]

_warned_about_embedded = False


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
        if source == "embedded":
            _warn_about_embedded()


def _warn_about_embedded() -> None:
    global _warned_about_embedded
    if not _warned_about_embedded:
        _warned_about_embedded = True
        warnings.warn(
            "BeitScoreReward() uses the embedded checkpoint, which was trained on synthetic scenes: it is for trials "
            "and tests and says nothing about photos. For photos pass source= a checkpoint trained on them "
            "(`capreward train beitscore`).",
            UserWarning,
            stacklevel=3,
        )
