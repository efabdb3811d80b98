"""Negatives, which are wrong captions, and how one is drawn among those of a correct caption."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

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
    caption: str, categories: Collection[str], rng: random.Random, given: Sequence[Negative] | None = None
) -> Negative | None:
    """Draws a wrong caption of a correct one, among those given and the word-level corruptions, with equal chances.

    Of those given, a category is drawn first and then one of its negatives, so that thirty retrieved captions do not
    outweigh one rewrite. A negative that equals the correct caption is never drawn.

    Args:
        caption: the correct one.
        categories: only these are drawn.
        rng: where chance comes from.
        given: wrong captions that there are already; None where there are none of any row.

    Returns:
        The negative; None if neither source has one.

    Example:
        >>> draw_negative("A red star.", ["attribute"], random.Random(0), [Negative("A blue star.", "attribute")])
        Negative(text='A blue star.', category='attribute')
    """
    sources: list[Callable[..., Negative | None]] = [_from_words]
    if given is not None:
        sources.append(partial(_from_given, given))
    for draw in sorted(sources, key=lambda _: rng.expovariate(1)):  # in random order
        negative = draw(caption, categories, rng)
        if negative is not None:
            return negative
    return None


def _from_given(
    given: Sequence[Negative], caption: str, categories: Collection[str], rng: random.Random
) -> Negative | None:
    by_category: dict[str, list[Negative]] = {}
    for negative in given:
        if negative.category in categories and comparable(negative.text) != comparable(caption):
            by_category.setdefault(negative.category, []).append(negative)
    return rng.choice(by_category[rng.choice(sorted(by_category))]) if by_category else None


def _from_words(caption: str, categories: Collection[str], rng: random.Random) -> Negative | None:
    names = [name for name in WORD_LEVEL if name in categories]
    for name in rng.sample(names, len(names)):
        text = corrupt_words(caption, rng, name)
        if text is not None:
            return Negative(text, name)
    return None
