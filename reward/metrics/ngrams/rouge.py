"""ROUGE-L of single captions."""

from __future__ import annotations

from collections.abc import Sequence

from reward.metrics.ngrams.scorer import NgramScorer, Words
from reward.metrics.ngrams.spec import ROUGE_L
from reward.optional import require

__all__ = ["RougeLScorer"]


class RougeLScorer(NgramScorer):
    """F of the longest common subsequence, recall weighing 1.2 times precision, each from its best reference."""

    spec = ROUGE_L

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """ROUGE-L of each caption."""
        rouge = require("pycocoevalcap.rouge.rouge", extra="ngrams", purpose=self._purpose).Rouge()
        return [float(rouge.calc_score([candidate], list(references))) for candidate, references in items]
