"""Reads the common JSONL forms of rated captions, pairs and quadruples, in which any benchmark may be given."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import finite, take_category
from reward.metaeval.benchmarks.forms import OVERALL, CaptionPair, Quadruple, RatedCaption

__all__ = ["is_jsonl", "read_lines", "read_pairs", "read_quadruples", "read_rated"]

_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_RATED = {"image", "candidate", "references", "ratings", "category"}
_PAIRS = {"image", "captions", "references", "label", "category", "systems"}
_QUADRUPLES = {"images", "captions", "category"}


def is_jsonl(path: Path | None) -> bool:
    """Whether a path names a file with one JSON object a line, perhaps packed by gzip."""
    return path is not None and path.is_file() and path.name.lower().endswith(_ENDINGS)


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file, each with its place for messages; blank lines are passed over.

    NaN, which JSON does not have but Python writes, is read as such; an infinite number is refused.

    Raises:
        DataError: unreadable, or a line that is no JSON object.
    """
    try:
        # Some editors put a byte order mark in front, which utf-8-sig takes away.
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.suffix.lower() == ".gz"
            else path.open(encoding="utf-8-sig")
        ) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    row = json.loads(line, parse_constant=_constant)
                except (ValueError, RecursionError) as error:
                    raise DataError(f"{where} is no JSON: {error}") from error
                if not isinstance(row, dict):
                    raise DataError(f"{where} must be a JSON object, got {type(row).__name__}")
                yield where, row
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _constant(name: str) -> float:
    if name == "NaN":
        return math.nan
    raise ValueError(f"{name} is no number")


def read_rated(path: Path, images: Path | None = None) -> Iterator[RatedCaption]:
    """Reads `{image, candidate, references, ratings, <score columns>}` a line.

    `ratings` is a list of numbers, one a rater, or {aspect: list}. A rating of null or NaN was not given; a caption
    that nobody rated is left out. `category` is text or a whole number, and may be left out. Any further field with a
    number is a score column; null or NaN is no score.

    Args:
        path: the file.
        images: folder in which relative image paths start; None is the folder of the file.

    Raises:
        DataError: a field is missing or of the wrong type; the message names file, line and field.
    """
    for where, row in read_lines(path):
        given = _field(row, "ratings", where)
        by_aspect = given if isinstance(given, Mapping) else {OVERALL: given}
        ratings = {aspect: _ratings(values, f"{where}: ratings") for aspect, values in by_aspect.items()}
        ratings = {aspect: values for aspect, values in ratings.items() if values}
        item = RatedCaption(
            candidate=_text(row, "candidate", where),
            ratings=ratings,
            image=_image(row.get("image"), path, images, where),
            references=_references(row, where),
            image_id=row.get("image") or where,
            category=take_category(row, where),
            columns={
                name: finite(value, f"{where}: {name}")
                for name, value in row.items()
                if name not in _RATED and _is_score(value)
            },
        )
        if ratings:
            yield item


def read_pairs(path: Path, images: Path | None = None) -> Iterator[CaptionPair]:
    """Reads `{category, image, captions: [2], label: 0|1, references, <score columns: [2]>}` a line.

    `label` null is a tie. Any further field with two numbers is a score column; null or NaN is no score.

    Args, Raises: as for `read_rated`.
    """
    for where, row in read_lines(path):
        label = _field(row, "label", where)
        if label is not None and (isinstance(label, bool) or label not in (0, 1)):
            raise DataError(f"{where}: label must be 0, 1 or null (a tie), got {label!r:.60}")
        systems = row.get("systems")
        yield CaptionPair(
            captions=_two(row, "captions", where),
            label=None if label is None else int(label),
            image=_image(row.get("image"), path, images, where),
            references=_references(row, where),
            image_id=row.get("image") or where,
            category=take_category(row, where),
            systems=None if systems is None else _two(row, "systems", where),
            columns={
                name: (finite(value[0], f"{where}: {name}"), finite(value[1], f"{where}: {name}"))
                for name, value in row.items()
                if name not in _PAIRS and _are_scores(value, 2)
            },
        )


def read_quadruples(path: Path, images: Path | None = None) -> Iterator[Quadruple]:
    """Reads `{images: [2], captions: [2], category, <score columns: [4]>}` a line.

    Args, Raises: as for `read_rated`; the four scores are in the order of `Quadruple.columns`.
    """
    for where, row in read_lines(path):
        shown = _field(row, "images", where)
        if not isinstance(shown, list) or len(shown) != 2:
            raise DataError(f"{where}: images must be a list of two, got {shown!r:.60}")
        first, second = (_image(image, path, images, where) for image in shown)
        columns = {}
        for name, value in row.items():
            if name not in _QUADRUPLES and _are_scores(value, 4):
                one, two, three, four = (finite(score, f"{where}: {name}") for score in value)
                columns[name] = (one, two, three, four)
        yield Quadruple(
            images=(first, second),
            captions=_two(row, "captions", where),
            image_id=where,
            category=take_category(row, where),
            columns=columns,
        )


def _field(row: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise DataError(f"{where} has no field {name!r}; it has: {', '.join(map(str, row)) or 'none'}")
    return row[name]


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = _field(row, name, where)
    if not isinstance(value, str):
        raise DataError(f"{where}: {name} must be text, got {value!r:.60}")
    return value


def _references(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    values = row.get("references")
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise DataError(f"{where}: references must be a list of texts, got {values!r:.60}")
    return tuple(value for value in values if value.strip())


def _two(row: Mapping[str, Any], name: str, where: str) -> tuple[str, str]:
    values = _field(row, name, where)
    if not isinstance(values, list) or len(values) != 2 or not all(isinstance(value, str) for value in values):
        raise DataError(f"{where}: {name} must be a list of two texts, got {values!r:.60}")
    return values[0], values[1]


def _ratings(values: Any, where: str) -> tuple[float, ...]:
    values = [values] if _is_score(values) else values
    if not isinstance(values, list) or not values or not all(map(_is_score, values)):
        raise DataError(f"{where} must be numbers, one a rater, got {values!r:.60}")
    numbers = (finite(value, where) for value in values)
    return tuple(number for number in numbers if not math.isnan(number))


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _are_scores(values: Any, count: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(map(_is_score, values))


def _image(image: Any, path: Path, images: Path | None, where: str) -> Path | None:
    if image is None:
        return None
    if not isinstance(image, str) or not image.strip():
        raise DataError(f"{where}: image must be a path, got {image!r:.60}")
    return (images or path.parent) / image  # an absolute path stays itself
