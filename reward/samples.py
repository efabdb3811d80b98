"""CaptionSample: one candidate caption with its image and references, the input of every metric."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from reward.errors import InvalidSampleError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["CaptionSample", "ImageLike", "check_encodable", "check_samples", "checked_references", "is_blank"]

# A path, encoded bytes, an open binary file, a PIL image, or the dict a `datasets.Image` column gives undecoded.
ImageLike: TypeAlias = "str | os.PathLike[str] | bytes | IO[bytes] | Image.Image | dict[str, Any]"


@dataclass(frozen=True, eq=False)
class CaptionSample:
    """One caption to be scored.

    Args:
        candidate: the caption, with at least one visible character.
        image: the image it describes, or None for metrics that need none. Not opened here.
        references: zero or more captions written by people (None counts as none; a bare string is refused,
            because a string is a sequence of one-letter references).

    Raises:
        InvalidSampleError: a field has the wrong type, is blank, or is not valid Unicode.

    Example:
        >>> CaptionSample("A red star on grass.", references=["There is a star."]).references
        ('There is a star.',)
    """

    candidate: str
    image: ImageLike | None = None
    references: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.candidate, str):
            raise InvalidSampleError(
                f"candidate must be a string, got {type(self.candidate).__name__}: {self.candidate!r:.80}"
            )
        if is_blank(self.candidate):
            raise InvalidSampleError("candidate is empty: a caption needs at least one visible character")
        check_encodable(self.candidate, "candidate")
        object.__setattr__(self, "references", checked_references(self.references))


def checked_references(references: Any) -> tuple[str, ...]:
    """Gives references as a tuple of strings; None is an empty tuple.

    Raises:
        InvalidSampleError: a bare string, a non-sequence, or an item that is no string or blank.
    """
    if references is None:
        return ()
    if isinstance(references, (str, bytes)):
        raise InvalidSampleError("references must be a list of strings, got one string; write [reference] instead")
    try:
        items = tuple(references)
    except TypeError:
        raise InvalidSampleError(f"references must be a list of strings, got {type(references).__name__}") from None
    for position, item in enumerate(items):
        if not isinstance(item, str):
            raise InvalidSampleError(
                f"references[{position}] must be a string, got {type(item).__name__}: {item!r:.80}"
            )
        if is_blank(item):
            raise InvalidSampleError(f"references[{position}] is empty; leave it out to score without it")
        check_encodable(item, f"references[{position}]")
    return items


def check_samples(samples: Sequence[Any], batch_size: int | None = None) -> None:
    """What every scorer asks of its arguments.

    Raises:
        InvalidSampleError: an item is no CaptionSample.
        ValueError: a batch size below 1.
    """
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    for row, sample in enumerate(samples):
        if not isinstance(sample, CaptionSample):
            raise InvalidSampleError(f"samples[{row}] must be a CaptionSample, got {type(sample).__name__}")


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: white space, control characters, and marks without width.

    Example:
        >>> is_blank(" \\u200b\\n"), is_blank("a")
        (True, False)
    """
    return all(unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc", "Cf") for character in text)


def check_encodable(text: str, name: str) -> None:
    """Half an emoji, which a JSON file can hold, would stop any tokenizer in the middle of a run."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSampleError(f"{name} is not valid Unicode: a lone surrogate at position {error.start}") from None
