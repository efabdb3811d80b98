"""Rows with an image, a candidate, references and a score each become rated captions."""

from __future__ import annotations

import ast
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.files import MissingFileError
from reward.metaeval.benchmarks.forms import OVERALL, RatedCaption
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_lines
from reward.metaeval.benchmarks.tables import ReadRows, Row, find_splits, image_folder, read_file
from reward.samples import ImageLike

__all__ = ["is_common", "merge_rows", "rated_split"]

# Names that the published data sets give their columns.
_IMAGE = ("image", "img")
_NAME = ("file_name", "imgid")
_CANDIDATE = ("cand", "mt", "caption")
_REFERENCES = ("refs", "references")
_SCORE = ("score", "human_score")
_TEXTS = (*_NAME, *_CANDIDATE, *_REFERENCES, *_SCORE)
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


def is_common(path: Path) -> bool:
    """Whether a path is a file in the common JSONL form, rather than a table in the columns read here."""
    return is_jsonl(path) and not any(name in next((row for _, row in read_lines(path)), {}) for name in _CANDIDATE)


def rated_split(path: Path, images: Path | None, names: Sequence[str], config: str = "") -> Iterator[RatedCaption]:
    """Rated captions of one split of a data set on disk, of one rating a row.

    Args:
        path: a file, which is the split, or a folder as for `find_splits`.
        images: folder of images that are not in the data; None is the folder `images` beside it, or its own.
        names: what the split may be called.
        config: as for `find_splits`.

    Raises:
        MissingFileError: no such split.
        DataError: as for `merge_rows`.
    """
    if path.is_file():
        return merge_rows({OVERALL: lambda columns=None: read_file(path, columns)}, images)
    splits = find_splits(path, config)
    for name in (*names, *([""] if len(splits) == 1 else [])):
        if name in splits:
            return merge_rows({OVERALL: splits[name]}, images)
    raise MissingFileError(
        f"{path} holds no split {' or '.join(names)}, only {', '.join(sorted(splits)[:12]) or 'nothing of the kind'}"
    )


def merge_rows(splits: Mapping[str, ReadRows], images: Path | None) -> Iterator[RatedCaption]:
    """One rated caption for all rows of the same image and candidate, in the order of their first rows.

    An image is told by its file name; without one, by its references, which no other image has. A score of null or
    NaN was not given; a caption that has none is left out. Every row counts as one judgment.

    Args:
        splits: {aspect: rows that rate it}.
        images: as for `rated_split`.

    Raises:
        DataError: a column is missing, or a value is of the wrong type; the message names row and column.
    """
    ratings: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    rows_of: dict[str, set[tuple[str, str]]] = {}
    for aspect, read in splits.items():
        rows_of[aspect] = set()
        for row in read(_needed(read)):
            key = _key(row)
            rows_of[aspect].add(key)
            score = _score(row)
            if not math.isnan(score):
                ratings[key].setdefault(aspect, []).append(score)
    done: set[tuple[str, str]] = set()
    shown: dict[str, ImageLike | None] = {}
    for aspect, read in splits.items():
        if rows_of[aspect] <= done:  # the images of the other aspects are the same, and need not be read again
            continue
        for row in read():
            key = _key(row)
            if key in done:
                continue
            done.add(key)
            if key not in ratings:
                continue
            if key[0] not in shown:
                shown[key[0]] = _image(row, images)
            yield RatedCaption(
                candidate=_candidate(row),
                ratings={name: tuple(values) for name, values in ratings[key].items()},
                image=shown[key[0]],
                references=_references(row),
                image_id=key[0],
            )


def _needed(read: ReadRows) -> tuple[str, ...]:
    """Columns that tell images and candidates apart; not the images themselves, which are large, if that can be."""
    first = next(iter(read()), None)
    if first is None or not isinstance(_column(first, _IMAGE, needed=False)[1], dict):
        return (*_TEXTS, *_IMAGE)
    named = _column(first, _NAME, needed=False)[1] is not None
    return _TEXTS if named or _references(first) else (*_TEXTS, *_IMAGE)


def _column(row: Row, names: Sequence[str], *, needed: bool = True) -> tuple[str, Any]:
    for name in names:
        if name in row.values:
            return name, row.values[name]
    if needed:
        raise DataError(f"{row.where} has no column {' or '.join(names)}; it has: {', '.join(row.values) or 'none'}")
    return "", None


def _key(row: Row) -> tuple[str, str]:
    return _image_name(row), _candidate(row)


def _image_name(row: Row) -> str:
    name, value = _column(row, _NAME, needed=False)
    shown, image = _column(row, _IMAGE, needed=False)
    if value is None and isinstance(image, str):
        name, value = shown, image
    if value is None and (references := "\n".join(_references(row))):
        return hashlib.sha256(references.encode(errors="surrogatepass")).hexdigest()[:16]
    if value is None and isinstance(image, dict):
        name, value = shown, image.get("path")
    if value is None:
        raise DataError(f"{row.where} has nothing that names its image: no {', '.join(_NAME)} and no references")
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise DataError(f"{row.where}: {name} must be the name of an image, got {value!r:.60}")
    return str(value)


def _candidate(row: Row) -> str:
    name, value = _column(row, _CANDIDATE)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{row.where}: {name} must be text, got {value!r:.60}")
    return value or ""  # published data have empty captions, which no metric can score


def _score(row: Row) -> float:
    name, value = _column(row, _SCORE)
    if value is None or value == "":
        return math.nan
    try:
        number = math.inf if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if math.isinf(number):
        raise DataError(f"{row.where}: {name} must be a finite number, got {value!r:.60}")
    return number


def _references(row: Row) -> tuple[str, ...]:
    """A list; in CSV files its text, as Python or JSON writes lists."""
    name, value = _column(row, _REFERENCES)
    given = value
    if isinstance(value, str):
        try:
            given = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            try:
                given = json.loads(value)
            except (ValueError, RecursionError):
                given = None
    elif value is None:
        given = []
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise DataError(f"{row.where}: {name} must be a list of texts, got {value!r:.60}")
    return tuple(text for text in given if text.strip())


def _image(row: Row, images: Path | None) -> ImageLike | None:
    _, value = _column(row, _IMAGE, needed=False)
    if isinstance(value, dict) and value.get("bytes") is not None:
        return value
    root = image_folder(row.folder, images, *(() if images else ("images",)))
    if isinstance(value, dict):
        value = value.get("path")
    if value is None:
        value = _column(row, _NAME, needed=False)[1]
    return None if value is None else _existing(root / str(value))


def _existing(path: Path) -> Path:
    """The path, with an ending if it has none and such a file is there."""
    if path.suffix.lower() in _SUFFIXES:
        return path
    return next((file for suffix in _SUFFIXES if (file := Path(f"{path}{suffix}")).exists()), path)
