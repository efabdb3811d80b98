"""What texts share, counted: n-grams, and the longest common subsequence."""

from __future__ import annotations

from collections.abc import Sequence


def all_ngrams(words: Sequence[str], most: int) -> list[tuple[str, ...]]:
    """The n-grams of a text, for n from 1 to `most`, with their repeats.

    Example:
        >>> all_ngrams(["a", "star", "a"], 2)
        [('a',), ('star',), ('a',), ('a', 'star'), ('star', 'a')]
    """
    shifted = [words[start:] for start in range(most)]
    ngrams: list[tuple[str, ...]] = []
    for n in range(1, most + 1):
        ngrams += zip(*shifted[:n], strict=False)
    return ngrams


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
