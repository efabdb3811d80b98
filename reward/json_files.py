"""Reads JSON files whose faults are named exactly, and the captions of a model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reward.errors import DataError, InvalidSampleError
from reward.samples import check_encodable, column_names, is_blank

__all__ = ["check_same_images", "check_text", "parse_json", "read_captions", "read_json"]

_IMAGE_KEYS, _CAPTION_KEYS = (*column_names("image"), "image_id"), column_names("candidate")


def read_captions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads the captions of one model: {image: caption} as JSON, or JSONL with one image and caption a line.

    A JSONL line has an image and a caption under a name of `reward.samples.COLUMN_NAMES`, or `image_id`.

    Raises:
        DataError: unreadable, empty, an image named twice, or a caption that is no text.
    """
    captions: dict[str, str] = {}
    is_lines = Path(path).suffix.lower() in (".jsonl", ".ndjson")
    for where, image, caption in _caption_lines(Path(path)) if is_lines else _caption_entries(Path(path)):
        check_text(image, f"{path}: the image of {where}", blank=False)
        check_text(caption, f"{path}: the caption of {where}", blank=True)
        if image in captions:
            raise DataError(f"{path}: {image!r} is there twice; which one is meant?")
        captions[image] = caption
    if not captions:
        raise DataError(f"{path} holds no captions")
    return captions


def _caption_entries(path: Path) -> Iterator[tuple[str, Any, Any]]:
    values = read_json(path)
    if not isinstance(values, dict):
        raise DataError(
            f'{path} must hold one JSON object {{"image.jpg": "caption", ...}}, got {type(values).__name__}'
        )
    for image, caption in values.items():
        yield repr(image), image, caption


def _caption_lines(path: Path) -> Iterator[tuple[str, Any, Any]]:
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}: line {number}")
        if not isinstance(row, dict):
            raise DataError(f"{path}: line {number} must be a JSON object, got {type(row).__name__}")
        values = []
        for what, keys in (("image", _IMAGE_KEYS), ("caption", _CAPTION_KEYS)):
            key = next((key for key in keys if key in row), None)
            if key is None:
                raise DataError(
                    f"{path}: line {number} has no {what} ({' or '.join(keys)}); it has: {', '.join(row) or 'nothing'}"
                )
            values.append(row[key])
        yield f"line {number}", *values


def check_same_images(images: Mapping[str, Any], among: Mapping[str, Any], name: str, other: str) -> None:
    """Refuses images that are missing among the others.

    Raises:
        DataError: some are missing; the message counts them and names examples.
    """
    missing = [image for image in images if image not in among]
    if missing:
        examples = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise DataError(
            f"{len(missing)} of the {len(images)} images in the {name} are missing in the {other}: {examples}"
        )


def check_text(value: Any, what: str, *, blank: bool) -> None:
    """Refuses what is not text; `blank` says whether text without a visible character is allowed.

    Raises:
        DataError: `what` says of which value.
    """
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
