"""CaptionSample, the input of every metric: one candidate caption with its image and references.

Also the column names that mean image, references and candidate: one table for commands, data sets and rewards.
"""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from reward.errors import DataError, InvalidSampleError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL import Image

__all__ = [
    "COLUMN_NAMES",
    "CaptionSample",
    "ImageLike",
    "check_batch_size",
    "check_encodable",
    "check_samples",
    "checked_references",
    "clean_references",
    "column_names",
    "find_column",
    "is_blank",
    "is_wordless",
    "named",
    "one_image",
    "read_references",
]

# A path, encoded bytes, an open binary file, a PIL image, an array of pixels (numpy, torch), the dict that a
# `datasets.Image` column gives undecoded, or a list of one of these; see `reward.images.load_image`.
ImageLike: TypeAlias = (
    "str | os.PathLike[str] | bytes | IO[bytes] | Image.Image | np.ndarray | torch.Tensor | dict[str, Any] | list[Any]"
)

# Characters that show nothing, though their category says letter, mark or symbol: what Unicode 16 calls
# Default_Ignorable_Code_Point (a property that `unicodedata` lacks), and the blank Braille pattern.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800]"
)

# For each role: names that are taken in this order, and synonyms, of which at most one may be there.
COLUMN_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "candidate": (("candidate",), ("cand", "caption")),
    "candidates": (("candidates",), ("cands", "captions")),
    # `images` first: where both are there, TRL shows `images` to the policy; `file_name` is what imagefolder reads
    "image": (("images", "image"), ("file_name", "image_path", "img")),
    "references": (("references",), ("refs",)),
}


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
        ValueError: see `check_batch_size`.
    """
    check_batch_size(batch_size)
    for row, sample in enumerate(samples):
        if not isinstance(sample, CaptionSample):
            raise InvalidSampleError(f"samples[{row}] must be a CaptionSample, got {type(sample).__name__}")


def check_batch_size(batch_size: Any) -> None:
    """None leaves the batch size to the metric.

    Raises:
        ValueError: no whole number, or one below 1.
    """
    is_whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
    if batch_size is not None and not (is_whole and batch_size >= 1):
        raise ValueError(f"batch_size must be at least 1, a whole number or None, got {batch_size!r}")


def is_blank(text: str) -> bool:
    """Whether a text shows nothing: white space, control characters, fillers, and marks without width.

    Example:
        >>> is_blank(" \\u200b\\u3164\\n"), is_blank(".")
        (True, False)
    """
    shown = _INVISIBLE.sub("", text)
    return all(unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc", "Cf") for character in shown)


def is_wordless(text: str) -> bool:
    """Whether a text has no word: no letter and no number of any script, as blank texts, "...", and emoji alone.

    Such a caption says nothing that could be true or false of an image. Rewards and decoding give it the lowest place;
    a metric's `score` gives what its model gives.

    Example:
        >>> is_wordless(" ?!"), is_wordless("\\u2b50"), is_wordless("3"), is_wordless("\\u661f")
        (True, True, False, False)
    """
    return not any(unicodedata.category(character)[0] in "LN" for character in _INVISIBLE.sub("", text))


def check_encodable(text: str, name: str) -> None:
    """Half an emoji, which a JSON file can hold, would stop any tokenizer in the middle of a run."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSampleError(f"{name} is not valid Unicode: a lone surrogate at position {error.start}") from None


def column_names(role: str) -> tuple[str, ...]:
    """All names of a role, in the order in which they are taken.

    Example:
        >>> column_names("image")
        ('images', 'image', 'file_name', 'image_path', 'img')
    """
    names, synonyms = COLUMN_NAMES[role]
    return names + synonyms


def find_column(
    role: str, columns: Iterable[str], given: str | None = None, *, option: str, needed_by: str | None = None
) -> str | None:
    """The column that holds what a role means: the one given, else the first known name, else the only synonym.

    Args:
        role: `"image"`, `"references"`, `"candidate"` or `"candidates"`.
        columns: the columns there are.
        given: the name that the user gave, or None.
        option: how the user gives it, such as `"image_column="` or `"--image-column"`; named in the errors.
        needed_by: who cannot do without, such as `"metric 'vela'"`; None where the column may be missing.

    Returns:
        Its name; None where there is none and nobody needs it.

    Raises:
        DataError: the column given is not there, one that is needed is not there, or several could be meant.

    Example:
        >>> find_column("image", ["file_name", "refs"], option="image_column=")
        'file_name'
        >>> find_column("references", ["file_name", "refs"], "captions", option="references_column=")
        Traceback (most recent call last):
            ...
        reward.errors.DataError: references_column= names 'captions', which is no column. The columns are: file_name, \
refs.
    """
    columns = list(columns)
    if given is not None:
        if given in columns:
            return given
        close = difflib.get_close_matches(str(given), columns, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise DataError(f"{option} names {given!r}, which is no column.{hint} The columns are: {named(columns)}.")
    names, synonyms = COLUMN_NAMES[role]
    for name in names:
        if name in columns:
            return name
    present = [name for name in synonyms if name in columns]
    if len(present) > 1:
        raise DataError(
            f"{role} could be any of {', '.join(present)}: choose one with {option}. The columns are: {named(columns)}."
        )
    if not present and needed_by:
        raise DataError(
            f"{needed_by} needs a column with the {role}, but none is named {' or '.join(column_names(role))}. "
            f"The columns are: {named(columns)}. Name it with {option}."
        )
    return present[0] if present else None


def named(columns: Sequence[str], most: int = 30) -> str:
    """Names of columns for a message, which a file of thousands must not fill.

    Example:
        >>> named(["image", "caption", "id"], most=2)
        'image, caption, and 1 more'
    """
    return ", ".join([*columns[:most], *([f"and {len(columns) - most} more"] if columns[most:] else [])]) or "none"


def one_image(value: Any) -> Any:
    """The image in a cell: the cell itself, or the only one of a list; None where there is none.

    Raises:
        InvalidSampleError: a list of several images, since a caption is judged against one.

    Example:
        >>> one_image(["a.png", None]), one_image("a.png"), one_image([])
        ('a.png', 'a.png', None)
    """
    if isinstance(value, (list, tuple)):
        images = [image for image in value if image is not None]
        if len(images) > 1:
            raise InvalidSampleError(
                f"the row has {len(images)} images, but a caption is judged against one; keep one a row, or name a "
                "column that holds one with image_column="
            )
        value = images[0] if images else None
    return None if isinstance(value, str) and not value.strip() else value


def clean_references(value: Any) -> Any:
    """The references in a cell, not checked: a string is one reference, blank ones are left out; None if none is left.

    Example:
        >>> clean_references("A red star."), clean_references(["A red star.", " "]), clean_references([None])
        (['A red star.'], ['A red star.'], None)
    """
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        value = [item for item in value if item is not None and not (isinstance(item, str) and is_blank(item))]
    return None if isinstance(value, list) and not value else value


def read_references(value: Any) -> tuple[str, ...]:
    """The references in a cell, see `clean_references`, as a tuple of strings.

    Raises:
        InvalidSampleError: neither a string nor a list, or an item that is no string.
    """
    return checked_references(clean_references(value))
