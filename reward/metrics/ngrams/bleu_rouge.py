"""BLEU-1 to BLEU-4 and ROUGE-L of single captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from reward.metrics.base import MetricSpec
from reward.metrics.ngrams import BLEU, ROUGE_L
from reward.metrics.ngrams.scorer import NgramScorer, Words
from reward.optional import require

__all__ = ["Bleu1Scorer", "Bleu2Scorer", "Bleu3Scorer", "Bleu4Scorer", "BleuScorer", "RougeLScorer"]


class BleuScorer(NgramScorer):
    """BLEU of single captions with n-grams of up to `n` words and the reference closest in length.

    It is smoothed as in the package. The score of a corpus is not the mean of its captions'.
    """

    spec: MetricSpec = BLEU[-1]
    n: ClassVar[int] = len(BLEU)

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """BLEU of each caption."""
        package = require("pycocoevalcap.bleu.bleu_scorer", extra="ngrams", purpose=self._purpose)
        scores = []
        for candidate, references in items:  # a new one for each caption, because it keeps n-grams
            bleu = package.BleuScorer(n=self.n)
            bleu += (candidate, list(references))
            _, by_order = bleu.compute_score(option="closest")
            scores.append(float(by_order[-1][0]))
        return scores


# With their module, in which pickle looks for them.
Bleu1Scorer, Bleu2Scorer, Bleu3Scorer, Bleu4Scorer = (
    type(f"Bleu{n}Scorer", (BleuScorer,), {"spec": spec, "n": n, "__module__": __name__})
    for n, spec in enumerate(BLEU, 1)
)


class RougeLScorer(NgramScorer):
    """F-measure (beta 1.2) of the longest common subsequence; precision and recall each use their best reference."""

    spec = ROUGE_L

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """ROUGE-L of each caption."""
        rouge = require("pycocoevalcap.rouge.rouge", extra="ngrams", purpose=self._purpose).Rouge()
        return [float(rouge.calc_score([candidate], list(references))) for candidate, references in items]
