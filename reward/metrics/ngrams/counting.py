"""What texts share, counted: n-grams, and the longest common subsequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain


def ngram_counts(words: Sequence[str], most: int) -> list[Counter[tuple[str, ...]]]:
    """{n-gram: times} for n from 1 to `most`, each in the order of first appearance.

    Example:
        >>> ngram_counts(["a", "star", "a", "star"], 2)[1]
        Counter({('a', 'star'): 2, ('star', 'a'): 1})
    """
    return [Counter(_ngrams(words, n)) for n in range(1, most + 1)]


def all_ngrams(words: Sequence[str], most: int) -> Counter[tuple[str, ...]]:
    """{n-gram: times} for n from 1 to `most` in one, which is quicker to make and to compare.

    Example:
        >>> all_ngrams(["a", "star", "a"], 2)
        Counter({('a',): 2, ('star',): 1, ('a', 'star'): 1, ('star', 'a'): 1})
    """
    return Counter(chain.from_iterable(_ngrams(words, n) for n in range(1, most + 1)))


def _ngrams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)


def longest_common(text: Sequence[str], others: Sequence[Sequence[str]]) -> list[int]:
    """Length of the longest common subsequence of a text with each of the others.

    A row of the usual table is the bits of a number: 0 where the length grows (Hyyro 2004, "Bit-parallel LCS-length
    computation revisited").

    Example:
        >>> longest_common(["a", "red", "star"], [["a", "big", "red", "dog"], ["star", "a"], []])
        [2, 1, 0]
    """
    positions: dict[str, int] = {}  # {word: a number with a bit for each position of the word in the text}
    for position, word in enumerate(text):
        positions[word] = positions.get(word, 0) | 1 << position
    all_bits = (1 << len(text)) - 1
    lengths = []
    for other in others:
        row = all_bits
        for word in other:
            matches = row & positions.get(word, 0)
            if matches:
                row = (row + matches | row - matches) & all_bits
        lengths.append(len(text) - row.bit_count())
    return lengths
