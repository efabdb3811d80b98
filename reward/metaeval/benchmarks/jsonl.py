"""The common JSONL form, in which any benchmark may be given, and which the loaders of published files give, too."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from reward.data.drawn_images import BoxedImage
from reward.data.image_files import image_file
from reward.errors import DataError
from reward.metaeval.benchmarks.items import CAPTIONS, OVERALL, PAIRS, QUADRUPLES, RATINGS, Entry

JSONL_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
# A line with one of these fields is in a published form of its own.
_PUBLISHED = {"cand", "mt", "caption", "correct", "candidates", "caption_0"}
_FIELDS = {"image", "images", "image_id", "candidate", "captions", "references", "ratings", "label", "category"}
_FIELDS |= {"question", "box", "item", "best", "cells"}  # others that hold numbers are score columns


def is_jsonl(path: Path) -> bool:
    """Whether a path names a file with one JSON object per line, plain or compressed by gzip."""
    return path.is_file() and path.name.lower().endswith(JSONL_ENDINGS)


def in_common_form(path: Path) -> bool:
    """Whether a path names a file in a common JSONL form, judged by its first line; an empty file is in one."""
    if not is_jsonl(path):
        return False
    for _, entry in read_lines(path):
        return not _PUBLISHED.intersection(entry)
    return True


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, each with its place; blank lines are skipped.

    Raises:
        DataError: unreadable, or a line that is not a JSON object.
    """
    open_text = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with open_text(path, "rt", encoding="utf-8-sig") as file:  # some editors write a byte order mark
            for number, line in enumerate(file, start=1):
                if line.strip():
                    value = json.loads(line)
                    if not isinstance(value, dict):
                        raise ValueError(f"line {number} is no object")
                    yield f"{path}, line {number}", value
    except (OSError, EOFError, gzip.zlib.error, ValueError, RecursionError) as error:  # type: ignore[attr-defined]
        line = f"line {number} of " if isinstance(error, (json.JSONDecodeError, RecursionError)) else ""
        raise DataError(f"cannot read {line}{path}: {error}") from error


def read_common(path: Path, form: str) -> Iterator[tuple[str, Entry]]:
    """The entries of a file in the common form, each with its place.

    - `ratings`: `{image, candidate, references, ratings, category, <score columns>}` per line. `ratings` is a list of
      numbers, one per rater, or {aspect: list}. A rating of null or NaN was not given. A score column is a number.
    - `pairs`: `{image, captions: [2], label: 0|1, references, category, <score columns: [2]>}`. A label of
      null is a tie. Or one text a line: `{image, candidate, item, best, ...}`, where texts that compete have the same
      `item` and `best` is the number of people who chose a text: a pair with each of the others for each.
    - `quadruples`: `{images: [2], captions: [2], category, <score columns: [4]>}`, the scores of caption 0 with image
      0, caption 1 with image 0, caption 0 with image 1, caption 1 with image 1.

    References, category, question and box may be absent. A box [x, y, width, height] is drawn in red. A score
    of null or NaN means that there is none.

    Raises:
        DataError: unreadable, or texts of an item that do not compete.
    """
    texts: dict[str, list[tuple[str, Entry]]] = {}
    for where, entry in read_lines(path):
        if form == PAIRS and "item" in entry:
            texts.setdefault(str(entry["item"]), []).append((where, entry))
        else:
            yield where, entry
    for lines in texts.values():
        where = lines[0][0]
        for pair in _pair_texts(where, [text for _, text in lines]):
            yield where, pair


def _pair_texts(where: str, texts: Sequence[Entry]) -> Iterator[Entry]:
    """Pairs of the texts of an item: for each person, the chosen text with each of the others."""
    votes = [int(_field(text, where, "best")) for text in texts]
    contexts = {str([text.get(name) for name in ("image", "question", "box")]) for text in texts}
    if len(texts) < 2 or not any(votes) or len(contexts) > 1:
        raise DataError(
            f"{where}: item must be of two texts or more, equal in image and question, one of them chosen, got "
            f"{texts[0]['item']!r}"
        )
    for best, other in permutations(range(len(texts)), 2):
        first, second = texts[min(best, other)], texts[max(best, other)]  # the better one is not always the first
        pair: dict[str, Any] = {}
        for name, value in first.items():
            if name in _FIELDS:
                pair[name] = value
            elif name in second:  # a score column
                pair[name] = [value, second[name]]
        pair["captions"] = [first.get("candidate"), second.get("candidate")]
        pair["label"] = int(best > other)
        for _ in range(votes[best]):
            yield pair


def as_item(entry: Entry, form: str, where: str, root: Path) -> dict[str, Any]:
    """Checks an entry, and makes it a row of `Benchmark.rows`, with its score columns as `columns`.

    Args:
        entry: see `read_common`; an image may also be another than a path, see `CaptionSample`.
        form: of the benchmark.
        where: place of the entry, for messages and where no image is named.
        root: folder in which relative image paths start, or the folder `images` in it.

    Raises:
        DataError: a field is missing or of the wrong type; the message names place and field.
    """
    name: Any = where
    if form == QUADRUPLES:
        images = tuple(_image(image, where, root) for image in _field(entry, where, "images"))
    else:
        images = (_image(entry.get("image"), where, root),)
        if isinstance(entry.get("image"), str):
            name = entry["image"]
    if entry.get("box") is not None:
        images = (BoxedImage(images[0], entry["box"]),)
    if form == RATINGS:
        captions = (_field(entry, where, "candidate"),)
    else:
        captions = tuple(_field(entry, where, "captions"))
    item: dict[str, Any] = {
        "captions": captions,
        "images": images,
        "references": tuple(text for text in _field(entry, where, "references", ()) if text.strip()),
        "image_id": str(entry.get("image_id") or name),
        "category": str(_field(entry, where, "category", "")).strip(),
        "question": _field(entry, where, "question", None),
        "cells": entry.get("cells") or {},
        "columns": _columns(entry, CAPTIONS[form]),
    }
    if form == RATINGS:
        ratings = _field(entry, where, "ratings")
        by_aspect = ratings if isinstance(ratings, Mapping) else {OVERALL: ratings}
        item["ratings"] = {}
        for aspect, values in by_aspect.items():
            numbers = _numbers(values, where)
            if numbers:
                item["ratings"][aspect] = numbers
    elif form == PAIRS:
        label = _field(entry, where, "label")
        item["label"] = math.nan if label is None else float(label)
    return item


def _is_texts(value: Any, count: int | None = None) -> bool:
    is_list = isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)
    return is_list and count in (None, len(value))


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "candidate": (lambda value: isinstance(value, str), "text"),
    "question": (lambda value: isinstance(value, str), "text"),
    "references": (_is_texts, "a list of texts"),
    "captions": (lambda value: _is_texts(value, 2), "a list of two texts"),
    "images": (lambda value: isinstance(value, (list, tuple)) and len(value) == 2, "a list of two"),
    "category": (lambda value: type(value) in (str, int), "text or a whole number"),
    "label": (lambda value: value is None or (type(value) in (int, float) and value in (0, 1)), "0, 1 or null (a tie)"),
    "best": (lambda value: isinstance(value, int) and value >= 0, "how many people chose the text, or true or false"),
    "ratings": (lambda value: value is not None, "numbers, one per rater"),
}


def _field(entry: Entry, where: str, name: str, default: Any = ...) -> Any:
    """A field of the right kind; `default` stands for one that is absent or null."""
    if name not in entry and default is ...:
        raise DataError(f"{where} has no field {name!r}; it has: {', '.join(map(str, entry)) or 'none'}")
    value = entry.get(name)
    if default is not ... and (value is None or value != value):
        return default
    is_right, kind = _KINDS[name]
    if not is_right(value):
        raise DataError(f"{where}: {name} must be {kind}, got {value!r:.60}")
    return value


def is_score(value: Any) -> bool:
    """Whether a value is a number or null, and neither true nor false."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _numbers(values: Any, where: str) -> tuple[float, ...]:
    """The ratings that were given."""
    ratings = [values] if is_score(values) else values
    if not isinstance(ratings, (list, tuple)) or not all(map(is_score, ratings)):
        raise DataError(f"{where}: ratings must be numbers, one per rater, got {values!r:.60}")
    numbers = tuple(float(rating) for rating in ratings if rating is not None and rating == rating)
    if any(map(math.isinf, numbers)):
        raise DataError(f"{where}: ratings must be finite numbers, got {values!r:.60}")
    return numbers


def _columns(entry: Entry, count: int) -> dict[str, tuple[float, ...]]:
    """{name: scores} of the further fields that hold `count` scores; a single score is not in a list."""
    columns = {}
    for name, value in entry.items():
        values = [value] if count == 1 else value
        is_list = isinstance(values, (list, tuple)) and len(values) == count
        if name not in _FIELDS and is_list and all(map(is_score, values)):
            columns[name] = tuple(float("nan" if score is None else score) for score in values)
    return columns


def _image(image: Any, where: str, root: Path) -> Any:
    """An image, or its path; one that is not there keeps the path that it would have."""
    if not isinstance(image, (str, Path)):
        if isinstance(image, (bool, int, float, list)):
            raise DataError(f"{where}: image must be a path, got {image!r:.60}")
        return image
    if not str(image).strip():
        raise DataError(f"{where}: image must be a path, got {image!r}")
    path = Path(image_file(root / image))
    in_images = Path(image_file(root / "images" / image))
    if in_images.is_file() and not path.is_file():
        return in_images
    return path
