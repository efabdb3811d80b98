"""Negatives, which are wrong captions, and how one is drawn among those of a correct caption."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from reward.data.samples import check_encodable, is_blank
from reward.data.tagging import PARTS
from reward.data.word_edits import corrupt_words
from reward.errors import InvalidSampleError

# Categories that are made on demand, out of the correct caption alone.
WORD_LEVEL = (*(f"repeat_{part}" for part in PARTS), "shuffle_words", "shuffle_sentences")
_QUOTES = "\"'`“”‘’«»„"


@dataclass(frozen=True)
class Negative:
    """A wrong caption of an image.

    Args:
        text: the caption.
        category: what is wrong with it, such as `"count"` or `"shuffle_words"`; negatives are counted by it.
    """

    text: str
    category: str

    def __post_init__(self) -> None:
        for name in ("text", "category"):
            value = getattr(self, name)
            if not isinstance(value, str) or is_blank(value):
                raise InvalidSampleError(f"{name} of a negative must be a string that shows something, got {value!r}")
        check_encodable(self.text, "text of a negative")


def comparable(text: str) -> str:
    """A text without what does not count as a change: case, white space, and quotes around the whole.

    Example:
        >>> comparable('"A red  star."') == comparable("a red star.")
        True
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_QUOTES).strip()


def draw_negative(
    caption: str, categories: Collection[str], rng: random.Random, negatives: Sequence[Negative] | None = None
) -> Negative | None:
    """Draws a wrong caption of a correct one, among those of its row and the word-level ones, with equal chances.

    Of those of its row, a category is drawn first and then one of its negatives, so that thirty retrieved captions do
    not outweigh one rewrite. A negative that equals the correct caption is never drawn.

    Args:
        caption: the correct one.
        categories: only these are drawn.
        rng: where chance comes from.
        negatives: wrong captions that the data hold; None where they hold none of any row.

    Returns:
        The negative; None if there is none of the categories.

    Example:
        >>> draw_negative("A red star.", ["attribute"], random.Random(0), [Negative("A blue star.", "attribute")])
        Negative(text='A blue star.', category='attribute')
    """
    draws: list[Callable[[], Negative | None]] = [lambda: _by_words(caption, categories, rng)]
    if negatives is not None:
        draws.append(lambda: _of_row(negatives, caption, categories, rng))
    for draw in sorted(draws, key=lambda _: rng.expovariate(1)):  # in random order
        negative = draw()
        if negative is not None:
            return negative
    return None


def _of_row(
    negatives: Sequence[Negative], caption: str, categories: Collection[str], rng: random.Random
) -> Negative | None:
    by_category: dict[str, list[Negative]] = {}
    for negative in negatives:
        if negative.category in categories and comparable(negative.text) != comparable(caption):
            by_category.setdefault(negative.category, []).append(negative)
    if not by_category:
        return None
    category = rng.choice(sorted(by_category))
    return rng.choice(by_category[category])


def _by_words(caption: str, categories: Collection[str], rng: random.Random) -> Negative | None:
    corruptions = [name for name in WORD_LEVEL if name in categories]
    for name in rng.sample(corruptions, len(corruptions)):
        text = corrupt_words(caption, rng, name)
        if text is not None:
            return Negative(text, name)
    return None
