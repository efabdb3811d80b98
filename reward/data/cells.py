"""Columns and cells of any library as plain values: lists, None for what is missing, lists written as text."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from reward.errors import InvalidSampleError

# A list of texts as Python prints it, or as numpy does: ['A star.' 'It is red.'], where Python's own reader would join
# the two texts to one.
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ITEM = rf"(?:np\.str_\({_QUOTED}\)|{_QUOTED}|None|nan|<NA>)"
_PRINTED_TEXTS = re.compile(rf"\[\s*(?:{_ITEM}(?:\s*,\s*|\s+))*(?:{_ITEM})?\s*\]", re.DOTALL)
_BROKEN_LIST = re.compile(r"""\[\s*['"].*['"]\s*\]""", re.DOTALL)
_NOTHING = ("", "-", "?", "n/a", "na", "nan", "null", "none", "<na>")  # where a number is missing, in small letters
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")
_ONE_VALUE = (str, bytes, bytearray, memoryview, Mapping, set, frozenset)  # though they can be iterated


def missing_to_none(value: Any) -> Any:
    """A cell, but None for what tables write where a value is missing: NaN, and pandas' NA and NaT.

    Example:
        >>> missing_to_none(float("nan")), missing_to_none("nan"), missing_to_none(0)
        (None, 'nan', 0)
    """
    if type(value) in (str, list, dict, tuple):  # most cells
        return value
    if hasattr(type(value), "as_py"):  # a scalar of Arrow
        value = value.as_py()
    if isinstance(value, (float, np.floating)) and np.isnan(value):
        return None
    if type(value).__name__ in ("NAType", "NaTType"):  # by name: pandas need not be installed
        return None
    return value


def read_number(value: Any) -> float | None:
    """A cell as a number, also where it is a text, with a decimal point or comma; None where there is none.

    Raises:
        InvalidSampleError: it is no finite number, or "1,234", of which nobody knows whether it is above a thousand.

    Example:
        >>> read_number("0.5"), read_number("0,5"), read_number(" 7 "), read_number("NA")
        (0.5, 0.5, 7.0, None)
    """
    value = missing_to_none(value)
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    text = value
    if isinstance(value, str):
        if _THOUSANDS.fullmatch(value.strip()):
            raise InvalidSampleError(f"{value!r} may be a number with a decimal comma or one above a thousand")
        text = value.replace(",", ".") if _DECIMAL_COMMA.fullmatch(value.strip()) else value
    try:
        number = math.nan if isinstance(value, (bool, bytes)) else float(text)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidSampleError(f"{value!r:.80} is no number")
    return number


def is_list(value: Any) -> bool:
    """Whether a value is several values in order, of whatever library: a list, a column, a Series, an array.

    A text, bytes, a file, a mapping (which would give its keys), a table (the names of its columns), a set and a scalar
    are not.

    Example:
        >>> is_list(["a.png"]), is_list("a.png"), is_list({"path": "a.png"})
        (True, False, False)
    """
    if isinstance(value, (list, tuple, str)):  # most are, and what follows is slow
        return not isinstance(value, str)
    if not isinstance(value, Iterable) or isinstance(value, _ONE_VALUE):
        return False
    if getattr(value, "ndim", 1) == 0:  # an array that holds one number
        return False
    is_file = hasattr(type(value), "read")
    is_table = hasattr(type(value), "columns") or hasattr(type(value), "column_names")
    return not is_file and not is_table


def to_list(value: Any, name: str) -> list[Any]:
    """The values of a column, or of a cell that holds several, as a list.

    Raises:
        InvalidSampleError: `is_list` does not take it; the message calls it by `name`.

    Example:
        >>> to_list(("A star.", "A red star."), "references")
        ['A star.', 'A red star.']
    """
    if is_list(value):
        if hasattr(type(value), "to_pylist"):  # of Arrow, whose own items are no texts
            values: list[Any] = value.to_pylist()
            return values
        return list(value)
    if isinstance(value, Mapping):
        keys = ", ".join(str(key) for key in value)
        raise InvalidSampleError(
            f"{name} must be a list, got a {type(value).__name__} with the keys {keys:.80}: "
            "name the one that holds the list"
        )
    if isinstance(value, str):
        raise InvalidSampleError(f"{name} must be a list, got one text, {value!r:.80}: put it into a list")
    raise InvalidSampleError(f"{name} must be a list, got {type(value).__name__}")


def parse_list(value: Any) -> Any:
    """A cell; a text that is a list or mapping, as JSON, Python or numpy write it, becomes that list or mapping.

    Tables without types, such as CSV files, hold lists so. Other texts in brackets stay as they are.

    Raises:
        InvalidSampleError: quoted texts in square brackets that are no list, such as "['A star.'; 'It is red.']".

    Example:
        >>> parse_list('["A star."]'), parse_list("['A star.' None]"), parse_list("('A star.', 'It is red.')")
        (['A star.'], ['A star.', None], ['A star.', 'It is red.'])
        >>> parse_list("[A star]")
        '[A star]'
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.startswith(("[", "(", "{")):
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass  # it may be Python's or numpy's
    try:
        if _PRINTED_TEXTS.fullmatch(text):
            return [_parse_item(item) for item in re.findall(_ITEM, text[1:-1], re.DOTALL)]
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if _BROKEN_LIST.fullmatch(text):
            raise InvalidSampleError(
                f"{value!r:.80} looks like a list, but neither JSON nor Python writes lists so"
            ) from None
        return value
    if isinstance(literal, tuple):
        return list(literal)
    if isinstance(literal, (list, dict)):
        return literal
    return value


def _parse_item(item: str) -> str | None:
    if item in ("None", "nan", "<NA>"):
        return None
    if item.startswith("np.str_("):
        item = item.removeprefix("np.str_(").removesuffix(")")
    return str(ast.literal_eval(item))
