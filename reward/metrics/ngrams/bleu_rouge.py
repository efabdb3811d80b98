"""BLEU-1 to BLEU-4 and ROUGE-L of single captions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import ClassVar

from reward.metrics.base import MetricSpec
from reward.metrics.ngrams import BLEU, ROUGE_L
from reward.metrics.ngrams.counting import all_ngrams, longest_common
from reward.metrics.ngrams.scorer import NgramScorer, Words

# The package's smoothing, in numerators and in denominators: nothing is divided by 0, and no match leaves nearly 0.
_TINY = 1e-15
_SMALL = 1e-9
_BETA = 1.2

Ngram = tuple[str, ...]


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
            words_of_candidates = [candidate.split() for candidate in candidates]
            counts_of_candidates = [Counter(all_ngrams(words, self.n)) for words in words_of_candidates]
            relevant = set().union(*counts_of_candidates)
            lengths = []
            most: dict[Ngram, int] = {}  # times that an n-gram is in the reference that has it most often
            for reference in references:
                reference_words = tuple(reference.split())
                lengths.append(len(reference_words))
                for ngram, count in Counter(_shared_ngrams(reference_words, relevant, self.n)).items():
                    most[ngram] = max(count, most.get(ngram, 0))
            for words, counts in zip(words_of_candidates, counts_of_candidates, strict=True):
                scores.append(self._rate(len(words), counts, lengths, most))
        return scores

    def _rate(self, length: int, counts: Mapping[Ngram, int], lengths: list[int], most: Mapping[Ngram, int]) -> float:
        correct = [0] * self.n
        for ngram in counts.keys() & most.keys():
            correct[len(ngram) - 1] += min(counts[ngram], most[ngram])
        product = 1.0
        for order, matches in enumerate(correct):
            product *= (matches + _TINY) / (max(0, length - order) + _SMALL)
        # Of two references that are equally close in length, the shorter counts.
        _, closest = min((abs(other - length), other) for other in lengths)
        ratio = (length + _TINY) / (closest + _SMALL)
        score: float = product ** (1 / self.n)
        return score * math.exp(1 - 1 / ratio) if ratio < 1 else score


def _shared_ngrams(words: Ngram, relevant: Container[Ngram], most: int) -> list[Ngram]:
    """The n-grams of a text, for n from 1 to `most`, that are relevant, with their repeats."""
    shared = []
    starts: Iterable[int] = range(len(words))
    for n in range(1, most + 1):
        # An n-gram of a caption starts with a shorter one of it. So most places need not be looked at again.
        starts = [start for start in starts if start + n <= len(words) and words[start : start + n] in relevant]
        shared += [words[start : start + n] for start in starts]
    return shared


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
