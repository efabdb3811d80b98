"""VelaReward: VELA's descriptiveness, relevance and fluency as a reward function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from reward.functions.metric_reward import MetricReward

__all__ = ["VelaReward"]


class VelaReward(MetricReward):
    """VELA as a reward function: three aspects of a caption, each in [0, 1], given its image and any references.

    Source: Matsuda et al., "VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions".

    Args:
        source: `"embedded"` (ships with the package; trained on synthetic scenes, so for trials and tests, not photos),
            a checkpoint folder, or a Hub id.
        weights: {aspect: weight} over descriptiveness, relevance and fluency (desc, rel, flu for short), normalised to
            sum 1; None weighs them alike.
        options: further arguments of `MetricReward`: name, image_column, references_column, on_error, batch_size,
            revision, device, dtype.

    Raises:
        WeightsError: at construction, for unknown aspects, weights that are not finite, or a sum that is not positive.

    Example:
        >>> reward = VelaReward("path/of/a/checkpoint", weights={"desc": 1, "rel": 2, "flu": 1}, name="caption")
        >>> reward.weights
        array([0.25, 0.5 , 0.25])
    """

    def __init__(
        self,
        source: str | os.PathLike[str] = "embedded",
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__("vela", source, weights, **options)
