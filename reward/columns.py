"""The column names that mean image, references and candidate: one table for commands, data set helpers and rewards."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from reward.errors import DataError, InvalidSampleError
from reward.samples import checked_references, is_blank

__all__ = ["COLUMN_NAMES", "column_names", "find_column", "named", "one_image", "read_references"]

# For each role: names that are taken in this order, and synonyms, of which at most one may be there.
COLUMN_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "candidate": (("candidate",), ("cand", "caption")),
    "candidates": (("candidates",), ("cands", "captions")),
    # `images` first: where both are there, TRL shows `images` to the policy; `file_name` is what imagefolder reads
    "image": (("images", "image"), ("file_name", "image_path", "img")),
    "references": (("references",), ("refs",)),
}


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
    there = f"The columns are: {named(columns)}."
    if given is not None:
        if given in columns:
            return given
        close = difflib.get_close_matches(str(given), columns, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise DataError(f"{option} names {given!r}, which is no column.{hint} {there}")
    names, synonyms = COLUMN_NAMES[role]
    for name in names:
        if name in columns:
            return name
    found = [name for name in synonyms if name in columns]
    if len(found) > 1:
        raise DataError(f"{role} could be any of {', '.join(found)}: choose one with {option}. {there}")
    if not found and needed_by:
        raise DataError(
            f"{needed_by} needs a column with the {role}, but none is named {' or '.join(column_names(role))}. "
            f"{there} Name it with {option}."
        )
    return found[0] if found else None


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


def read_references(value: Any) -> tuple[str, ...]:
    """The references in a cell: a string is one reference, blank ones are left out, and None is none.

    Raises:
        InvalidSampleError: neither a string nor a list, or an item that is no string.

    Example:
        >>> read_references("A red star."), read_references(["A red star.", " "]), read_references(None)
        (('A red star.',), ('A red star.',), ())
    """
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        value = [item for item in value if item is not None and not (isinstance(item, str) and is_blank(item))]
    return checked_references(value)
