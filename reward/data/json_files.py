"""Reads JSON files whose faults are named exactly."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reward.data.samples import check_encodable, is_blank
from reward.errors import DataError, InvalidSampleError


def check_same_images(images: Mapping[str, Any], others: Mapping[str, Any], name: str, other_name: str) -> None:
    """Checks that each image is among the others, which messages call `name` and `other_name`.

    Raises:
        DataError: some are missing; the message names the first three.
    """
    missing = [image for image in images if image not in others]
    if missing:
        examples = ", ".join(missing[:3])
        if len(missing) > 3:
            examples += ", ..."
        raise DataError(
            f"{len(missing)} of the {len(images)} images in the {name} are missing in the {other_name}: {examples}"
        )


def check_string(value: Any, name: str, *, blank: bool) -> None:
    """Checks that a value, which messages call `name`, is a text in valid Unicode.

    Args:
        value: anything.
        name: for messages.
        blank: whether a text without a visible character is allowed.

    Raises:
        DataError: it is none.
    """
    if not isinstance(value, str):
        raise DataError(f"{name} must be a text, got {type(value).__name__}: {value!r:.80}")
    if not blank and is_blank(value):
        raise DataError(f"{name} is empty")
    try:
        check_encodable(value, name)
    except InvalidSampleError as error:
        raise DataError(str(error)) from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file, in which no object may have a key twice.

    Raises:
        DataError: missing, unreadable, not JSON, or a doubled key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors put a byte order mark in front
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return parse_json(text, str(path))


def parse_json(text: str, name: str) -> Any:
    """Reads a JSON value, in which no object may have a key twice.

    Raises:
        DataError: not JSON, a doubled key, or nested too deeply; the message begins with `name`.
    """

    def check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key in values:
                raise DataError(f"{name}: {key!r} is there twice; which one is meant?")
            values[key] = value
        return values

    try:
        return json.loads(text, object_pairs_hook=check_keys)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"{name} is not valid JSON: {error}") from error
    except RecursionError as error:
        raise DataError(f"{name} is nested too deeply to be read") from error
