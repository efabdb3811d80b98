"""A scorer whose images other processes can prepare; slow on request."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from reward.images import Scaling
from reward.metrics.base import MetricSpec
from reward.metrics.scorer import CandidateScores, CaptionScorer, Group


class PreparedScorer(CaptionScorer):
    """brightness: mean of the image's levels, 0 to 1; a caption takes `PICTURE_SECONDS`."""

    spec = MetricSpec(name="prepared", scorer="tests.toys.prepared_scorer:PreparedScorer", aspects=("brightness",))
    fingerprint = "prepared"

    @property
    def preparation(self) -> Scaling:
        return Scaling(8, crops=True)

    def encode_images(self, images: Sequence[Any]) -> list[float]:
        return [float(image.mean()) / 255 for image in images]

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        scores = [[group.features] for group in groups for _ in group.rows]
        time.sleep(len(scores) * float(os.environ.get("PICTURE_SECONDS", 0)))
        return CandidateScores(scores)

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> PreparedScorer:
        return cls()

    def save_pretrained(self, folder: Any) -> None:
        raise AssertionError("scoring a data set saves no checkpoint")
