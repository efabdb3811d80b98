"""Columns and cells of any library as plain values: lists, None for what is missing, lists that are written as text."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from reward.errors import InvalidSampleError

# A list of texts as Python writes it, or as numpy does, without commas: Python would join those to one text.
_TEXT = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ITEM = rf"(?:np\.str_\({_TEXT}\)|{_TEXT}|None|nan|<NA>)"
_TEXTS = re.compile(rf"\[\s*(?:{_ITEM}(?:\s*,\s*|\s+))*(?:{_ITEM})?\s*\]", re.DOTALL)
_BROKEN = re.compile(r"""\[\s*['"].*['"]\s*\]""", re.DOTALL)


def or_none(value: Any) -> Any:
    """A cell, but None for what tables write where a value is missing: NaN, and pandas' NA and NaT.

    Example:
        >>> or_none(float("nan")), or_none("nan"), or_none(0)
        (None, 'nan', 0)
    """
    if type(value) in (str, list, dict, tuple):  # most cells
        return value
    if hasattr(type(value), "as_py"):  # a scalar of Arrow
        value = value.as_py()
    is_nan = isinstance(value, (float, np.floating)) and value != value
    return None if is_nan or type(value).__name__ in ("NAType", "NaTType") else value


def is_list(value: Any) -> bool:
    """Whether a value is several values in order, of whatever library: a list, a column, a Series, an array.

    A text, bytes, a file, a mapping (which would give its keys), a table (the names of its columns), a set and a scalar
    are not.

    Example:
        >>> is_list(["a.png"]), is_list("a.png"), is_list({"path": "a.png"})
        (True, False, False)
    """
    return isinstance(value, (list, tuple)) or (  # most are, and what follows is slow
        isinstance(value, Iterable)
        and not isinstance(value, (str, bytes, bytearray, memoryview, Mapping, set, frozenset))
        and getattr(value, "ndim", 1) > 0
        and not any(hasattr(type(value), name) for name in ("read", "columns", "column_names"))
    )


def values_of(value: Any, name: str) -> list[Any]:
    """The values of a column, or of a cell that holds several: everything that `is_list` takes, as a list.

    Args:
        name: what messages call it.

    Example:
        >>> values_of(("A star.", "A red star."), "references")
        ['A star.', 'A red star.']
        >>> values_of({"en": "A star."}, "references")
        Traceback (most recent call last):
            ...
        reward.errors.InvalidSampleError: references must be a list, got a dict with the keys en: name the one that \
holds the list
    """
    if is_list(value):
        return value.to_pylist() if hasattr(type(value), "to_pylist") else list(value)  # Arrow's own items are no texts
    if isinstance(value, Mapping):
        keys = ", ".join(str(key) for key in value)
        raise InvalidSampleError(
            f"{name} must be a list, got a {type(value).__name__} with the keys {keys:.80}: "
            "name the one that holds the list"
        )
    what = f"one text, {value!r:.80}: put it into a list" if isinstance(value, str) else type(value).__name__
    raise InvalidSampleError(f"{name} must be a list, got {what}")


def listed(value: Any) -> Any:
    """A cell; a list or mapping that a table without types holds as text is read: as JSON, Python or numpy write it.

    Example:
        >>> listed('["A star."]'), listed("['A star.', 'It is red.']"), listed("['A star.' None]"), listed("[A star]")
        (['A star.'], ['A star.', 'It is red.'], ['A star.', None], '[A star]')
    """
    if not isinstance(value, str) or not (text := value.strip()).startswith(("[", "(", "{")):
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        if _TEXTS.fullmatch(text):
            items = re.findall(_ITEM, text[1:-1], re.DOTALL)
            return [_item(item) for item in items]
        read = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if _BROKEN.fullmatch(text):
            raise InvalidSampleError(
                f"{value!r:.80} looks like a list, but neither JSON nor Python writes lists so"
            ) from None
        return value
    return list(read) if isinstance(read, tuple) else read if isinstance(read, (list, dict)) else value


def _item(written: str) -> str | None:
    if written in ("None", "nan", "<NA>"):
        return None
    return str(ast.literal_eval(written.removeprefix("np.str_(").removesuffix(")") if written[0] == "n" else written))
