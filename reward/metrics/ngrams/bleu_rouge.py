"""BLEU-1 to BLEU-4 and ROUGE-L of single captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from reward.metrics.base import MetricSpec
from reward.metrics.ngrams import BLEU, ROUGE_L
from reward.metrics.ngrams.scorer import NgramScorer, Words
from reward.optional import require

__all__ = ["Bleu1Scorer", "Bleu2Scorer", "Bleu3Scorer", "Bleu4Scorer", "RougeLScorer"]


class _BleuScorer(NgramScorer):
    """BLEU with the reference closest in length, smoothed as in the package."""

    order: ClassVar[int]

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """BLEU of each single caption; a corpus score is not their mean."""
        package = require("pycocoevalcap.bleu.bleu_scorer", extra="ngrams", purpose=self._purpose)
        scores = []
        for candidate, references in items:  # a new one for each caption, because it keeps n-grams
            bleu = package.BleuScorer(n=self.order)
            bleu += (candidate, list(references))
            _, by_order = bleu.compute_score(option="closest")
            scores.append(float(by_order[-1][0]))
        return scores


class Bleu1Scorer(_BleuScorer):
    """BLEU-1 of single captions."""

    spec: MetricSpec = BLEU[0]
    order = 1


class Bleu2Scorer(_BleuScorer):
    """BLEU-2 of single captions."""

    spec: MetricSpec = BLEU[1]
    order = 2


class Bleu3Scorer(_BleuScorer):
    """BLEU-3 of single captions."""

    spec: MetricSpec = BLEU[2]
    order = 3


class Bleu4Scorer(_BleuScorer):
    """BLEU-4 of single captions."""

    spec: MetricSpec = BLEU[3]
    order = 4


class RougeLScorer(NgramScorer):
    """F-measure (beta 1.2) of the longest common subsequence; precision and recall each use their best reference."""

    spec = ROUGE_L

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """ROUGE-L of each caption."""
        rouge = require("pycocoevalcap.rouge.rouge", extra="ngrams", purpose=self._purpose).Rouge()
        return [float(rouge.calc_score([candidate], list(references))) for candidate, references in items]
