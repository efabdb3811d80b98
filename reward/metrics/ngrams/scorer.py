"""NgramScorer: base of the metrics that compare the words of a caption with those of its references."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from reward.metrics.formula import WeightlessScorer
from reward.metrics.ngrams.java import java_command
from reward.metrics.ngrams.tokenizer import tokenize
from reward.optional import require
from reward.samples import CaptionSample, check_samples
from reward.scores import ScoreTable

__all__ = ["NgramScorer", "Words"]

Words = tuple[str, tuple[str, ...]]  # a caption and its references, words joined by single spaces


class NgramScorer(WeightlessScorer):
    """A metric of pycocoevalcap, caption by caption: derive, set `spec`, and write `rate`.

    All texts of a call are split into words together. Equal samples are scored once. A caption without any word
    scores 0. `most_words` is where a metric that cannot read texts of any length cuts them; None for those that can.

    Raises:
        MissingExtraError: the package pycocoevalcap or Java is not there.
    """

    most_words: ClassVar[int | None] = None

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
        check_samples(samples, batch_size)
        rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        errors = {}
        for row, sample in enumerate(samples):
            if sample.references:
                rows.setdefault((sample.candidate, tuple(sample.references)), []).append(row)
            else:
                errors[row] = f"metric {self.spec.name!r} needs references, but the sample has none"
        texts = (text for candidate, references in rows for text in (candidate, *references))
        words = tokenize(texts, purpose=self._purpose)
        cut = self._cut(words)
        items = {
            (candidate, references): (words[candidate], tuple(words[reference] for reference in references))
            for candidate, references in rows
            if words[candidate]
        }
        found = dict(zip(items, self.rate(list(items.values())), strict=True)) if items else {}
        scores = np.full((len(samples), 1), math.nan)
        truncated = np.zeros(len(samples), dtype=bool)
        for key, places in rows.items():
            # A caption that equals its reference may exceed the highest score by a rounding error.
            scores[places] = np.clip(found.get(key, 0.0), *self.spec.range)
            truncated[places] = not cut.isdisjoint((key[0], *key[1]))
            if not np.isfinite(scores[places[0]]):
                errors.update(dict.fromkeys(places, "the metric gave no finite score"))
        return ScoreTable(scores, self.spec.aspects, dict(sorted(errors.items())), truncated)

    def _cut(self, words: dict[str, str]) -> set[str]:
        """Cuts texts to `most_words`; gives those that were longer."""
        if self.most_words is None:
            return set()
        long = {text for text, joined in words.items() if joined.count(" ") >= self.most_words}
        for text in long:
            words[text] = " ".join(words[text].split(" ")[: self.most_words])
        return long
