"""Bases of the metrics that are a formula over the texts, with nothing to load."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.checkpoints import read_config, resolve_checkpoint, save_checkpoint
from reward.errors import InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.samples import CaptionSample, check_samples
from reward.scores import ScoreTable

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["FormulaScorer", "WeightlessScorer"]


class WeightlessScorer(ABC):
    """A scorer whose checkpoints hold nothing but the name of the metric: derive, set `spec`, and write `score`."""

    spec: MetricSpec

    @abstractmethod
    def score(
        self, samples: Sequence[CaptionSample], *, batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """See `reward.metrics.base.Scorer`."""

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Self:
        """Gives the scorer; a folder or Hub id is only checked to name this metric, device and dtype do nothing.

        Raises:
            CheckpointError: the source is missing or belongs to another metric.
        """
        if os.fspath(source) != "embedded":
            read_config(resolve_checkpoint(source, metric=cls.spec.name, revision=revision), metric=cls.spec.name)
        return cls()

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a checkpoint folder without tensors, which `from_pretrained` reads."""
        card = f"# {self.spec.name}\n\nA formula without weights. Source: {self.spec.paper}.\n"
        save_checkpoint(folder, config={"metric": self.spec.name}, tensors={}, card=card)


class FormulaScorer(WeightlessScorer):
    """A scorer without weights: derive, set `spec`, and write `score_sample`."""

    @abstractmethod
    def score_sample(self, sample: CaptionSample) -> Sequence[float]:
        """One finite score an aspect.

        Raises:
            InvalidSampleError: the sample cannot be scored; it becomes an entry of `ScoreTable.errors`.
        """

    def score(
        self, samples: Sequence[CaptionSample], *, batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, A) in the order of the samples; `batch_size` and `progress` change nothing here.

        Raises:
            InvalidSampleError: an item is no CaptionSample.
        """
        check_samples(samples, batch_size)
        scores = np.full((len(samples), len(self.spec.aspects)), math.nan)
        errors = {}
        for row, sample in enumerate(samples):
            try:
                if self.spec.needs_references and not sample.references:
                    raise InvalidSampleError(f"metric {self.spec.name!r} needs references, but the sample has none")
                scores[row] = self.score_sample(sample)
            except InvalidSampleError as error:
                errors[row] = str(error)
        return ScoreTable(scores, self.spec.aspects, errors)
