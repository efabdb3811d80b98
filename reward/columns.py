"""Names of the columns that hold images, references and candidates, and how their cells are read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from reward.errors import DataError, InvalidSampleError
from reward.samples import checked_references, is_blank

__all__ = ["COLUMN_NAMES", "column_names", "find_column", "named", "one_image", "read_references"]

# For each role: names in order of preference, and synonyms, of which a data set may have only one.
COLUMN_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "candidate": (("candidate",), ("cand", "caption")),
    "candidates": (("candidates",), ("cands", "captions")),
    # `images` comes first because TRL shows it to the policy; `file_name` is the column of an imagefolder
    "image": (("images", "image"), ("file_name", "image_path", "img")),
    "references": (("references",), ("refs",)),
}


def column_names(role: str) -> tuple[str, ...]:
    """All names of a role, in order of preference.

    Example:
        >>> column_names("image")
        ('images', 'image', 'file_name', 'image_path', 'img')
    """
    names, synonyms = COLUMN_NAMES[role]
    return names + synonyms


def find_column(
    role: str, columns: Iterable[str], given: str | None = None, *, option: str, needed_by: str | None = None
) -> str | None:
    """Finds the column of a role: the given one, else the first known name, else the only synonym.

    Args:
        role: `"image"`, `"references"`, `"candidate"` or `"candidates"`.
        columns: names of all columns.
        given: the name that the user chose, or None.
        option: how the user chooses it, such as `"image_column="` or `"--image-column"`; for the errors.
        needed_by: who needs the column, such as `"metric 'vela'"`; None if it may be missing.

    Returns:
        Its name; None if there is none and it is not needed.

    Raises:
        DataError: the given or needed column does not exist, or several columns could be meant.

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
    listing = f"The columns are: {named(columns)}."
    if given is not None:
        if given in columns:
            return given
        close = difflib.get_close_matches(str(given), columns, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise DataError(f"{option} names {given!r}, which is no column.{hint} {listing}")
    names, synonyms = COLUMN_NAMES[role]
    for name in names:
        if name in columns:
            return name
    present = [name for name in synonyms if name in columns]
    if len(present) > 1:
        raise DataError(f"{role} could be any of {', '.join(present)}: choose one with {option}. {listing}")
    if not present and needed_by:
        raise DataError(
            f"{needed_by} needs a column with the {role}, but none is named {' or '.join(column_names(role))}. "
            f"{listing} Name it with {option}."
        )
    return present[0] if present else None


def named(columns: Sequence[str], most: int = 30) -> str:
    """Joins the first `most` names of columns for a message.

    Example:
        >>> named(["image", "caption", "id"], most=2)
        'image, caption, and 1 more'
    """
    return ", ".join([*columns[:most], *([f"and {len(columns) - most} more"] if columns[most:] else [])]) or "none"


def one_image(value: Any) -> Any:
    """The image in a cell: the cell itself, or the only image of a list; None if there is none.

    Raises:
        InvalidSampleError: a list of several images; a caption is judged against one.

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
    """The references in a cell. A string is one reference, blank ones are dropped, and None means none.

    Raises:
        InvalidSampleError: neither a string nor a list, or an item that is not a string.

    Example:
        >>> read_references("A red star."), read_references(["A red star.", " "]), read_references(None)
        (('A red star.',), ('A red star.',), ())
    """
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        value = [item for item in value if item is not None and not (isinstance(item, str) and is_blank(item))]
    return checked_references(value)
