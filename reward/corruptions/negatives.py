"""Negative: a wrong caption and what is wrong with it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from reward.errors import InvalidSampleError
from reward.samples import check_encodable, is_blank

__all__ = ["Negative", "comparable"]

_QUOTES = "\"'`“”‘’«»„"


@dataclass(frozen=True)
class Negative:
    """A wrong caption of an image.

    Args:
        text: the caption.
        category: what is wrong with it, such as `"count"` or `"shuffle_words"`; negatives are counted by it.

    Raises:
        InvalidSampleError: text or category is no string or blank, or the text is not valid Unicode.
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
