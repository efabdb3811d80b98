"""Finds the files of a benchmark, and takes checked values out of their rows and entries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from reward.errors import DataError
from reward.json_files import read_json

__all__ = ["MissingFileError", "find_file", "finite", "read_entries", "take", "take_category", "take_texts"]

T = TypeVar("T")

_KINDS = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}


class MissingFileError(DataError):
    """A file is not where it should be; `load_benchmark` adds where it comes from and under which licence."""


def find_file(path: Path, *names: str) -> Path:
    """The path itself if it is a file, else the first of these names that is a file in the folder.

    Args:
        path: what the user gave.
        names: relative to the folder, most likely first.

    Raises:
        MissingFileError: none of them exists.
    """
    if path.is_file():
        return path
    for name in names:
        if (path / name).is_file():
            return path / name
    raise MissingFileError(f"{path} holds no {' or '.join(names)}")


def read_entries(
    path: Path, kind: type[dict] | type[list] = dict, *, noun: str = "entry"
) -> Iterator[tuple[str, str, Any]]:
    """The entries of a JSON object or list: key or number, place for messages, and value.

    Args:
        path: of the file.
        kind: what it holds, dict or list.
        noun: what messages call an entry.

    Raises:
        DataError: unreadable, or the file holds something else.
    """
    values = read_json(path)
    if not isinstance(values, kind):
        wanted = "object" if kind is dict else "list"
        raise DataError(f"{path} must hold a JSON {wanted}, got {type(values).__name__}")
    for key, value in values.items() if isinstance(values, dict) else enumerate(values, start=1):
        yield str(key), f"{path}, {noun} {key}", value


def take(row: Any, name: str, kind: type[T], where: str) -> T:
    """A field of a JSON object.

    Args:
        row: the object.
        name: of the field.
        kind: str, int, bool, list or dict; true and false are not numbers here. `object` takes any value.
        where: names the object in messages.

    Raises:
        DataError: no object, no such field, or another type.

    Example:
        >>> take({"caption": "A dog."}, "caption", str, "entry 1")
        'A dog.'
    """
    if not isinstance(row, dict):
        raise DataError(f"{where} must be a JSON object, got {type(row).__name__}")
    if name not in row:
        raise DataError(f"{where} has no field {name!r}; it has: {', '.join(map(str, row)) or 'none'}")
    value = row[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
        raise DataError(f"{where}: {name} must be {_KINDS[kind]}, got {value!r:.60}")
    return value


def take_texts(row: Any, name: str, where: str, *, count: int | None = None) -> tuple[str, ...]:
    """A field that is a list of texts; without the blank ones if their number does not matter.

    Raises:
        DataError: as `take`, something in the list is not text, or there are more or fewer than `count`.
    """
    values = take(row, name, object, where)
    wanted = "texts" if count is None else {2: "two texts", 3: "three texts"}[count]
    if (
        not isinstance(values, list)
        or not all(isinstance(value, str) for value in values)
        or count not in (None, len(values))
    ):
        raise DataError(f"{where}: {name} must be a list of {wanted}, got {values!r:.60}")
    return tuple(value for value in values if count is not None or value.strip())


def take_category(row: Any, where: str) -> str:
    """The field `category` as text; empty where it is absent or null.

    Raises:
        DataError: neither text nor a whole number.
    """
    value = row.get("category")
    if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
        raise DataError(f"{where}: category must be text or a whole number, got {value!r:.60}")
    return "" if value is None else str(value).strip()


def finite(value: float | None, where: str) -> float:
    """A number as a float, NaN for null.

    Raises:
        DataError: the number is too large for a float, such as 1e999 or 1 with 400 zeros.
    """
    try:
        number = math.nan if value is None else float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise DataError(f"{where}: {str(value)[:60]} is not a finite number")
    return number
