"""LengthScorer and UnigramScorer: baselines that count words."""

from __future__ import annotations

from collections import Counter

from reward.data.words import count_words, words_of
from reward.metrics.saving import WeightlessScorer
from reward.metrics.scorer import CandidateScores, Group
from reward.metrics.words import LENGTH, UNIGRAM


class LengthScorer(WeightlessScorer):
    """Number of words, split at white space. Every metric of long captions must beat this baseline.

    Of scripts that put no blanks between words (Chinese, Japanese, Thai, ...), each letter counts as a word, see
    `reward.data.words.count_words`.

    Example:
        >>> from reward import CaptionSample
        >>> LengthScorer().score([CaptionSample("A red star on grass.")]).column("length").tolist()
        [5.0]
    """

    spec = LENGTH

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        return CandidateScores([[float(count_words(candidate))] for group in groups for candidate in group.rows])


class UnigramScorer(WeightlessScorer):
    """Bag-of-words F1 against the closest reference; the image is not read.

    Example:
        >>> from reward import CaptionSample
        >>> sample = CaptionSample("A red star.", references=["A star shines.", "Two dogs."])
        >>> UnigramScorer().score([sample]).column("f1").round(3).tolist()
        [0.667]
    """

    spec = UNIGRAM

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        scores = []
        for group in groups:
            references = [word_counts(reference) for reference in group.references]
            for candidate in map(word_counts, group.rows):
                scores.append([max(unigram_f1(candidate, reference) for reference in references)])
        return CandidateScores(scores)


def word_counts(text: str) -> Counter[str]:
    """Counts the words of a text, in lower case, see `reward.data.words.words_of`.

    Example:
        >>> sorted(word_counts("The dog, the CAT.").items())
        [('cat', 1), ('dog', 1), ('the', 2)]
    """
    return Counter(words_of(text))


def unigram_f1(candidate: Counter[str], reference: Counter[str]) -> float:
    """F1 of the words that two texts share, counting repeats.

    Args:
        candidate, reference: word counts; either may be empty.

    Returns:
        A number in [0, 1]; 0 if no word is shared.

    Example:
        >>> unigram_f1(word_counts("red red star"), word_counts("one red star here"))
        0.5714285714285714
    """
    shared = 0
    for word, count in candidate.items():
        if word in reference:
            shared += min(count, reference[word])
    return 2 * shared / (candidate.total() + reference.total()) if shared else 0.0
