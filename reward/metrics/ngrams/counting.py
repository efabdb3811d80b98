"""What texts share, counted: n-grams, and the longest common subsequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def ngram_counts(words: Sequence[str], most: int) -> list[Counter[tuple[str, ...]]]:
    """{n-gram: times} for n from 1 to `most`, each in the order of first appearance.

    Example:
        >>> ngram_counts(["a", "star", "a", "star"], 2)[1]
        Counter({('a', 'star'): 2, ('star', 'a'): 1})
    """
    return [Counter(zip(*(words[start:] for start in range(n)), strict=False)) for n in range(1, most + 1)]


def longest_common(text: Sequence[str], others: Sequence[Sequence[str]]) -> list[int]:
    """Length of the longest common subsequence of a text with each of the others.

    A row of the usual table is the bits of a number: 0 where the length grows (Hyyro 2004, "Bit-parallel LCS-length
    computation revisited").

    Example:
        >>> longest_common(["a", "red", "star"], [["a", "big", "red", "dog"], ["star", "a"], []])
        [2, 1, 0]
    """
    places: dict[str, int] = {}
    for place, word in enumerate(text):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(text)) - 1
    lengths = []
    for other in others:
        row = every
        for word in other:
            if found := row & places.get(word, 0):
                row = (row + found | row - found) & every
        lengths.append(len(text) - row.bit_count())
    return lengths
