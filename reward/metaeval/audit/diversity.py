"""Repetition within captions and variety among them, in windows of fixed length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reward.sentences import split_sentences
from reward.words import words_of

__all__ = ["distinct", "repetition", "share_a_sentence"]

_REPETITION_WINDOW, _DISTINCT_WINDOW = 50, 200  # words


def repetition(caption: str, *, window: int = _REPETITION_WINDOW) -> float:
    """Share of a caption's runs of three words that occurred before in the same window, in [0, 1].

    Honest texts repeat more the longer they are, so a share over the whole caption would mostly measure its length.
    Here each window of `window` words counts alone, and the last one by its length.

    Example:
        >>> repetition("A red star. A red star."), repetition("A red star is above a blue box.")
        (0.25, 0.0)
    """
    total = unique = 0
    for words in _windows(words_of(caption), window):
        grams = [tuple(words[place : place + 3]) for place in range(len(words) - 2)]
        total, unique = total + len(grams), unique + len(set(grams))
    return 1 - unique / total if total else 0.0


def distinct(captions: Sequence[str], *, n: int = 2) -> float:
    """Share of distinct n-grams of words among those of many captions, in [0, 1]; 0 if there is none.

    The captions stand one behind the other in windows of 200 words, so that the share does not depend on how many
    or how long they are. It falls when a policy writes the same about every image.

    Example:
        >>> distinct(["A red star."] * 4), distinct(["A red star.", "Two blue boxes."])
        (0.25, 1.0)
    """
    grams: list[tuple[int, tuple[str, ...]]] = []
    place = 0
    for caption in captions:
        words = words_of(caption)
        for start in range(len(words) - n + 1):  # none reaches from one caption into the next
            grams.append(((place + start) // _DISTINCT_WINDOW, tuple(words[start : start + n])))
        place += len(words)
    return len(set(grams)) / len(grams) if grams else 0.0


def share_a_sentence(captions: Sequence[str]) -> list[bool]:
    """Says for each caption whether it has the sentence that most of the captions have; case and punctuation aside.

    A policy that has lost its variety writes one sentence about every image, true or not.

    Example:
        >>> share_a_sentence(["It is night. A star.", "It is night. Two boxes.", "A red ring."])
        [True, True, False]
    """
    sentences = [{" ".join(words_of(each)) for each, _ in split_sentences(caption)} - {""} for caption in captions]
    counts = Counter(each for found in sentences for each in sorted(found))
    commonest = counts.most_common(1)[0][0] if counts else None
    return [commonest in found for found in sentences]


def _windows(words: list[str], size: int) -> list[list[str]]:
    return [words[start : start + size] for start in range(0, len(words), size)]
