"""NgramScorer: base of the metrics that compare the words of a caption with those of its references."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from reward.metrics.ngrams.java import java_command, tokenize
from reward.metrics.saving import WeightlessScorer
from reward.metrics.scorer import CandidateScores, Group
from reward.optional import require

Words = tuple[Sequence[str], Sequence[str]]  # captions and the references they share, words joined by single spaces


class NgramScorer(WeightlessScorer):
    """A metric with the scores of pycocoevalcap, caption by caption: derive, set `spec`, and write `rate`.

    All texts of a call are tokenised together. A caption without a word scores 0. Texts are cut after `most_words`
    words; None means no limit.

    Raises:
        MissingExtraError: the package pycocoevalcap or Java is not installed.
    """

    window_size = sys.maxsize  # starting Java takes longer than its work
    most_words: ClassVar[int | None] = None

    def __init__(self) -> None:
        require("pycocoevalcap.bleu.bleu", extra="ngrams", purpose=self._purpose)
        java_command([], purpose=self._purpose)

    @property
    def _purpose(self) -> str:
        return f"metric {self.spec.name!r}"

    @abstractmethod
    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """The score of each caption, in their order; every one has a word and a reference."""

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 1); a caption without a word has 0."""
        texts = (text for group in groups for text in (*group.rows, *group.references))
        words = tokenize(texts, purpose=self._purpose)
        cut = self._cut(words)
        items: list[Words] = []
        has_words: list[bool] = []
        truncated: list[bool] = []
        for group in groups:
            candidates = [words[candidate] for candidate in group.rows]
            references = [words[reference] for reference in group.references]
            items.append(([candidate for candidate in candidates if candidate], references))
            has_words += map(bool, candidates)
            references_cut = not cut.isdisjoint(group.references)
            truncated += [references_cut or candidate in cut for candidate in group.rows]
        scores = np.zeros((len(has_words), 1))
        if any(has_words):
            scores[has_words, 0] = self.rate(items)
        # A caption that equals its reference may exceed the highest score by a rounding error.
        return CandidateScores(np.clip(scores, *self.spec.range), truncated if cut else None)

    def _cut(self, words: dict[str, str]) -> set[str]:
        """Cuts texts to `most_words`, and returns those that were longer."""
        if self.most_words is None:
            return set()
        long = {text for text, joined in words.items() if joined.count(" ") >= self.most_words}
        for text in long:
            words[text] = " ".join(words[text].split(" ")[: self.most_words])
        return long
