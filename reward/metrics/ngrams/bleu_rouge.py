"""BLEU-1 to BLEU-4 and ROUGE-L of single captions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from reward.metrics.base import MetricSpec
from reward.metrics.ngrams import BLEU, ROUGE_L
from reward.metrics.ngrams.counting import all_ngrams, longest_common
from reward.metrics.ngrams.scorer import NgramScorer, Words

_TINY, _SMALL = 1e-15, 1e-9  # the package's smoothing: nothing is divided by 0, and no match leaves a score of nearly 0
_BETA = 1.2


class BleuScorer(NgramScorer):
    """BLEU of single captions with n-grams of up to `n` words and the reference closest in length.

    It is smoothed as in pycocoevalcap, whose scores it gives. The score of a corpus is not the mean of its captions'.
    """

    spec: MetricSpec = BLEU[-1]
    n: ClassVar[int] = len(BLEU)

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """BLEU of each caption."""
        scores = []
        for candidates, references in items:
            lengths = []
            most: dict[tuple[str, ...], int] = {}  # times that an n-gram is in the reference that has it most often
            for reference in references:
                words = reference.split()
                lengths.append(len(words))
                counts = all_ngrams(words, self.n)
                for ngram in counts.keys() & most.keys():
                    counts[ngram] = max(counts[ngram], most[ngram])
                most.update(counts)
            scores += [self._rate(candidate.split(), lengths, most) for candidate in candidates]
        return scores

    def _rate(self, words: list[str], lengths: list[int], most: dict[tuple[str, ...], int]) -> float:
        counts = all_ngrams(words, self.n)
        correct = [0] * self.n
        for ngram in counts.keys() & most.keys():
            correct[len(ngram) - 1] += min(counts[ngram], most[ngram])
        product = 1.0
        for order, matches in enumerate(correct):
            product *= (matches + _TINY) / (max(0, len(words) - order) + _SMALL)
        # Of two references that are equally close in length, the shorter counts.
        _, closest = min((abs(length - len(words)), length) for length in lengths)
        ratio = (len(words) + _TINY) / (closest + _SMALL)
        score: float = product ** (1 / self.n)
        return score * math.exp(1 - 1 / ratio) if ratio < 1 else score


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
        scores = []
        for candidates, references in items:
            # Not at the no-break space inside a token, at which BLEU and CIDEr split: pycocoevalcap has it so.
            others = [reference.split(" ") for reference in references]
            for candidate in candidates:
                # As in the package, precision and recall may be of two references: each takes the best.
                words = candidate.split(" ")
                common = longest_common(words, others)
                precision = max(common) / len(words)
                recall = max(length / len(other) for length, other in zip(common, others, strict=True))
                weighed = (1 + _BETA**2) * precision * recall
                scores.append(weighed / (recall + _BETA**2 * precision) if weighed else 0.0)
        return scores
