"""UnigramScorer: F1 of the words that a caption shares with a reference."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from reward.metrics.formula import FormulaScorer
from reward.metrics.unigram.spec import SPEC
from reward.samples import CaptionSample

__all__ = ["UnigramScorer", "unigram_f1", "word_counts"]


class UnigramScorer(FormulaScorer):
    """Bag-of-words F1 against the closest reference; the image is not looked at.

    Example:
        >>> sample = CaptionSample("A red star.", references=["A star shines.", "Two dogs."])
        >>> UnigramScorer().score([sample]).column("f1").round(3).tolist()
        [0.667]
    """

    spec = SPEC

    def score_sample(self, sample: CaptionSample) -> list[float]:
        """Highest F1 over the references."""
        candidate = word_counts(sample.candidate)
        return [max(unigram_f1(candidate, word_counts(reference)) for reference in sample.references)]


def word_counts(text: str) -> Counter[str]:
    """How often each word occurs: runs of letters, digits and underscores, lower-cased, without punctuation.

    Example:
        >>> sorted(word_counts("The dog, the CAT.").items())
        [('cat', 1), ('dog', 1), ('the', 2)]
    """
    # Composed form first: a letter with a separate accent would be cut into two words.
    return Counter(re.findall(r"\w+", unicodedata.normalize("NFC", text).lower()))


def unigram_f1(candidate: Counter[str], reference: Counter[str]) -> float:
    """Harmonic mean of the shares of words that are in the other text, counting repeats.

    Args:
        candidate, reference: word counts; either may be empty.

    Returns:
        A number in [0, 1]; 0 if no word is shared.

    Example:
        >>> unigram_f1(word_counts("red red star"), word_counts("one red star here"))
        0.5714285714285714
    """
    shared = (candidate & reference).total()
    return 2 * shared / (candidate.total() + reference.total()) if shared else 0.0
