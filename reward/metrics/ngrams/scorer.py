"""NgramScorer: base of the metrics that compare the words of a caption with those of its references."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from reward.errors import InvalidSampleError
from reward.metrics.formula import WeightlessScorer
from reward.metrics.ngrams.java import java_command
from reward.metrics.ngrams.tokenizer import tokenize
from reward.optional import require
from reward.samples import CaptionSample
from reward.scores import ScoreTable

__all__ = ["NgramScorer", "Words"]

Words = tuple[str, tuple[str, ...]]  # a caption and its references, words joined by single spaces


class NgramScorer(WeightlessScorer):
    """A metric of pycocoevalcap, caption by caption: derive, set `spec`, and write `rate`.

    All texts of a call are split into words together. Equal samples are scored once. A caption without any word
    scores 0.

    Raises:
        MissingExtraError: the package pycocoevalcap or Java is not there.
    """

    def __init__(self) -> None:
        require("pycocoevalcap.bleu.bleu", extra="ngrams", purpose=self._purpose)
        java_command([], purpose=self._purpose)

    @property
    def _purpose(self) -> str:
        return f"metric {self.spec.name!r}"

    @abstractmethod
    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """One finite score an item; every caption has a word and a reference."""

    def score(
        self, samples: Sequence[CaptionSample], *, batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, 1) in the order of the samples; `batch_size` and `progress` change nothing here.

        Raises:
            InvalidSampleError: an item is no CaptionSample.
        """
        rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        errors = {}
        for row, sample in enumerate(samples):
            if not isinstance(sample, CaptionSample):
                raise InvalidSampleError(f"samples[{row}] must be a CaptionSample, got {type(sample).__name__}")
            if sample.references:
                rows.setdefault((sample.candidate, tuple(sample.references)), []).append(row)
            else:
                errors[row] = f"metric {self.spec.name!r} needs references, but the sample has none"
        texts = (text for candidate, references in rows for text in (candidate, *references))
        words = tokenize(texts, purpose=self._purpose)
        items = {
            (candidate, references): (words[candidate], tuple(words[reference] for reference in references))
            for candidate, references in rows
            if words[candidate]
        }
        found = dict(zip(items, self.rate(list(items.values())), strict=True)) if items else {}
        scores = np.full((len(samples), 1), math.nan)
        for key, places in rows.items():
            # A caption that equals its reference may exceed the highest score by a rounding error.
            scores[places] = np.clip(found.get(key, 0.0), *self.spec.range)
        return ScoreTable(scores, self.spec.aspects, errors)
