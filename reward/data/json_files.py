"""Reads JSON files whose faults are named exactly."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reward.data.samples import check_encodable, is_blank
from reward.errors import DataError, InvalidSampleError


def check_same_images(images: Mapping[str, Any], among: Mapping[str, Any], name: str, other: str) -> None:
    """Refuses images that are missing among the others."""
    missing = [image for image in images if image not in among]
    if missing:
        examples = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise DataError(
            f"{len(missing)} of the {len(images)} images in the {name} are missing in the {other}: {examples}"
        )


def check_string(value: Any, what: str, *, blank: bool) -> None:
    """Refuses what is not text; `blank` says whether text without a visible character is allowed."""
    if not isinstance(value, str):
        raise DataError(f"{what} must be a text, got {type(value).__name__}: {value!r:.80}")
    if not blank and is_blank(value):
        raise DataError(f"{what} is empty")
    try:
        check_encodable(value, what)
    except InvalidSampleError as error:
        raise DataError(str(error)) from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file, in which no object may have a key twice.

    Raises:
        DataError: missing, unreadable, not JSON, or a doubled key.
    """
    return parse_json(_text(Path(path)), str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a byte order mark in front
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def parse_json(text: str, where: str) -> Any:
    """Reads a JSON value, in which no object may have a key twice. Raises: as `read_json`, with `where` in front."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            keys = [key for key, _ in pairs]
            doubled = next(key for key in keys if keys.count(key) > 1)
            raise DataError(f"{where}: {doubled!r} is there twice; which one is meant?")
        return values

    try:
        return json.loads(text, object_pairs_hook=unique)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"{where} is not valid JSON: {error}") from error
    except RecursionError as error:
        raise DataError(f"{where} is nested too deeply to be read") from error
