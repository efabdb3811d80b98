"""The common JSONL forms of rated captions, pairs and quadruples, in which any benchmark may be given."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import finite, take, take_category, take_texts
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, CaptionPair, Item, Quadruple, RatedCaption

__all__ = ["SPECS", "in_common_form", "is_jsonl", "read_common", "read_lines", "read_pair"]

JSONL_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
# A line with one of these is in a published form of its own, not in a common one.
_PUBLISHED = {"cand", "mt", "caption", "correct", "candidates", "caption_0"}
_RATED_FIELDS = {"image", "candidate", "references", "ratings", "category"}  # other numbers are score columns

_ORIGIN = "yourself; capreward judge and capreward score add columns to such a file, which --score-column names"
_OWN: dict[str, Any] = {"origin": _ORIGIN, "licence": "yours"}
SPECS = (
    BenchmarkSpec(
        name="ratings",
        title="Your ratings",
        form=RatedCaption,
        statistic="tau-c",
        files="a .jsonl file with image, candidate, references, ratings (numbers, one a rater, or {aspect: numbers}) "
        "and perhaps category a line; further numbers are score columns",
        **_OWN,
    ),
    BenchmarkSpec(
        name="pairs",
        title="Your pairs",
        form=CaptionPair,
        statistic="accuracy",
        files="a .jsonl file with image, captions (two), label (0, 1, or null for a tie), references and perhaps "
        "category a line; further lists of two numbers are score columns",
        **_OWN,
    ),
    BenchmarkSpec(
        name="quadruples",
        title="Your quadruples",
        form=Quadruple,
        statistic="group",
        files="a .jsonl file with images (two), captions (two, caption k of image k) and perhaps category a line; "
        "further lists of four numbers are score columns",
        **_OWN,
    ),
)


def is_jsonl(path: Path | None) -> bool:
    """Whether a path names a file with one JSON object a line, plain or packed by gzip."""
    return path is not None and path.is_file() and path.name.lower().endswith(JSONL_ENDINGS)


def in_common_form(path: Path | None) -> bool:
    """Whether a path names a file in a common JSONL form, judged by its first line; an empty file is."""
    if path is None or not is_jsonl(path):
        return False
    _, row = next(read_lines(path), ("", {}))
    return not _PUBLISHED.intersection(row)


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, each with its place for messages; blank lines are skipped.

    NaN, which is not JSON but which Python writes, is read; an infinite number is refused.

    Raises:
        DataError: unreadable, or a line that is not a JSON object.
    """
    packed = path.suffix.lower() == ".gz"
    try:
        # utf-8-sig drops the byte order mark that some editors put in front
        with gzip.open(path, "rt", encoding="utf-8-sig") if packed else path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    row = json.loads(line, parse_constant=_constant)
                except (ValueError, RecursionError) as error:
                    raise DataError(f"{where} is not valid JSON: {error}") from error
                if not isinstance(row, dict):
                    raise DataError(f"{where} must be a JSON object, got {type(row).__name__}")
                yield where, row
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _constant(name: str) -> float:
    if name == "NaN":
        return math.nan
    raise ValueError(f"{name} is not a number")


def read_common(path: Path, form: type[Item], images: Path | None = None) -> Iterator[Item]:
    """Reads a file in the common form of a kind of item.

    - `RatedCaption`: `{image, candidate, references, ratings, category, <score columns>}` a line. `ratings` is a list
      of numbers, one a rater, or {aspect: list}. A rating of null or NaN was not given, and a caption that nobody rated
      is left out. A score column is a number.
    - `CaptionPair`: `{image, captions: [2], label: 0|1, references, category, systems, <score columns: [2]>}`. A label
      of null is a tie.
    - `Quadruple`: `{images: [2], captions: [2], category, <score columns: [4]>}`, scores in the order of
      `Quadruple.columns`.

    References, category and systems may be left out. A score of null or NaN is none.

    Args:
        path: the file.
        form: class of the items.
        images: folder in which relative image paths start; None is the folder of the file.

    Raises:
        DataError: a field is missing or of the wrong type; the message names file, line and field.
    """
    read = {RatedCaption: _rated, CaptionPair: read_pair, Quadruple: _quadruple}[form]
    for where, row in read_lines(path):
        if (item := read(row, where, images or path.parent)) is not None:
            yield item


def _rated(row: dict[str, Any], where: str, folder: Path) -> RatedCaption | None:
    given = take(row, "ratings", object, where)
    by_aspect = given if isinstance(given, Mapping) else {OVERALL: given}
    ratings = {aspect: _ratings(values, f"{where}: ratings") for aspect, values in by_aspect.items()}
    item = RatedCaption(
        candidate=take(row, "candidate", str, where),
        ratings={aspect: values for aspect, values in ratings.items() if values},
        image=_image(row.get("image"), folder, where),
        references=_references(row, where),
        image_id=row.get("image") or where,
        category=take_category(row, where),
        columns={name: values[0] for name, values in _columns(row, where, 1).items()},
    )
    return item if item.ratings else None


def read_pair(row: dict[str, Any], where: str, folder: Path) -> CaptionPair:
    """A pair from an object in the common form; errors as in `read_common`."""
    label: Any = take(row, "label", object, where)
    if label is not None and (isinstance(label, bool) or label not in (0, 1)):
        raise DataError(f"{where}: label must be 0, 1 or null (a tie), got {label!r:.60}")
    return CaptionPair(
        captions=_two(row, "captions", where),
        label=None if label is None else int(label),
        image=_image(row.get("image"), folder, where),
        references=_references(row, where),
        image_id=row.get("image") or where,
        category=take_category(row, where),
        systems=None if row.get("systems") is None else _two(row, "systems", where),
        columns=_columns(row, where, 2),
    )


def _quadruple(row: dict[str, Any], where: str, folder: Path) -> Quadruple:
    shown = take(row, "images", object, where)
    if not isinstance(shown, list) or len(shown) != 2:
        raise DataError(f"{where}: images must be a list of two, got {shown!r:.60}")
    return Quadruple(
        images=(_image(shown[0], folder, where), _image(shown[1], folder, where)),
        captions=_two(row, "captions", where),
        image_id=where,
        category=take_category(row, where),
        columns=_columns(row, where, 4),
    )


def _two(row: Mapping[str, Any], name: str, where: str) -> tuple[str, str]:
    first, second = take_texts(row, name, where, count=2)
    return first, second


def _columns(row: Mapping[str, Any], where: str, count: int) -> dict[str, Any]:
    """{name: scores} of the fields that hold so many scores; a single score stands without a list."""
    columns = {}
    for name, value in row.items():
        values = [value] if count == 1 and name not in _RATED_FIELDS else value
        if isinstance(values, list) and len(values) == count and all(map(_is_score, values)):
            columns[name] = tuple(finite(score, f"{where}: {name}") for score in values)
    return columns


def _references(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    return () if row.get("references") is None else take_texts(row, "references", where)


def _ratings(values: Any, where: str) -> tuple[float, ...]:
    values = [values] if _is_score(values) else values
    if not isinstance(values, list) or not values or not all(map(_is_score, values)):
        raise DataError(f"{where} must be numbers, one a rater, got {values!r:.60}")
    numbers = (finite(value, where) for value in values)
    return tuple(number for number in numbers if not math.isnan(number))


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _image(image: Any, folder: Path, where: str) -> Path | None:
    if image is None:
        return None
    if not isinstance(image, str) or not image.strip():
        raise DataError(f"{where}: image must be a path, got {image!r:.60}")
    return folder / image  # an absolute path stays as it is
