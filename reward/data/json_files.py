"""Reads JSON whose faults are named exactly."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from reward.errors import DataError


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file; raises DataError if it cannot be read, and for what `parse_json` refuses."""
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
    """Reads a JSON value; raises DataError, which begins with `name`, if it is none, or an object has a key twice."""

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
