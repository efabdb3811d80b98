"""The common JSONL forms of rated captions, pairs and quadruples, in which any benchmark may be given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

from reward.boxes import BoxedImage
from reward.metaeval.benchmarks.items import OVERALL, BenchmarkSpec, Item, PreferencePair, Quadruple, RatedCaption
from reward.metaeval.benchmarks.records import Record, is_jsonl, read_lines, score_in
from reward.values import or_none

__all__ = ["SPECS", "in_common_form", "read_common", "read_pair"]

# A line with one of these fields is in a published form of its own.
_PUBLISHED = {"cand", "mt", "caption", "correct", "candidates", "caption_0"}
# Other numbers are score columns.
_RATED_FIELDS = {"image", "candidate", "references", "ratings", "category", "question", "box", "item", "best"}

_ORIGIN = "you; capreward score adds columns to such a file, which --score-column names"
_OWN: dict[str, Any] = {"origin": _ORIGIN, "licence": "yours"}
SPECS = (
    BenchmarkSpec(
        name="ratings",
        title="Your ratings",
        form=RatedCaption,
        statistic="tau-c",
        files="a .jsonl file with image, candidate, references, ratings (numbers, one per rater, or {aspect: numbers}) "
        "and perhaps category per line; further numbers are score columns",
        **_OWN,
    ),
    BenchmarkSpec(
        name="pairs",
        title="Your pairs",
        form=PreferencePair,
        statistic="accuracy",
        files="a .jsonl file with image, captions (two), label (0, 1, or null for a tie), references and perhaps "
        "category per line; further lists of two numbers are score columns. Or one text a line, as of capreward "
        "judge: image, candidate, item (the same for texts that compete), best (how many chose it, or true) and scores",
        **_OWN,
    ),
    BenchmarkSpec(
        name="quadruples",
        title="Your quadruples",
        form=Quadruple,
        statistic="group",
        files="a .jsonl file with images (two), captions (two, caption k of image k) and perhaps category per line; "
        "further lists of four numbers are score columns",
        **_OWN,
    ),
)


def in_common_form(path: Path | None) -> bool:
    """Whether a path names a file in a common JSONL form, judged by its first line; an empty file is in one."""
    if path is None or not is_jsonl(path):
        return False
    first = next(read_lines(path), None)
    return first is None or not _PUBLISHED.intersection(first.values)


def read_common(path: Path, form: type[Item], images: Path | None = None) -> Iterator[Item]:
    """Reads a file in the common form of a kind of item.

    - `RatedCaption`: `{image, candidate, references, ratings, category, <score columns>}` per line. `ratings` is a list
      of numbers, one per rater, or {aspect: list}. A rating of null or NaN was not given. A caption without ratings is
      left out. A score column is a number.
    - `PreferencePair`: `{image, captions: [2], label: 0|1, references, category, <score columns: [2]>}`. A
      label of null is a tie. Or one text a line: `{image, candidate, item, best, ...}`, where texts that compete have
      the same `item` and `best` is the number of people who chose a text: a pair with each of the others for each.
    - `Quadruple`: `{images: [2], captions: [2], category, <score columns: [4]>}`, scores in the order of
      `Quadruple.columns`.

    References, category, question and box may be absent. A box [x, y, width, height] is drawn in red. A score
    of null or NaN means that there is none.

    Args:
        path: the file.
        form: class of the items.
        images: folder in which relative image paths start; None is the folder of the file.

    Raises:
        DataError: a field is missing or of the wrong type; the message names file, line and field.
    """
    if form is PreferencePair:
        return (yield from _read_pairs(path, images))
    read = {RatedCaption: _read_rated, Quadruple: _read_quadruple}[form]
    for record in read_lines(path):
        if (item := read(record, images)) is not None:
            yield item


def _read_rated(record: Record, images: Path | None) -> RatedCaption | None:
    _, given = record.take("ratings")
    by_aspect = given if isinstance(given, Mapping) else {OVERALL: given}
    ratings = {aspect: _ratings(record, values) for aspect, values in by_aspect.items()}
    item = RatedCaption(
        candidate=record.text("candidate"),
        ratings={aspect: values for aspect, values in ratings.items() if values},
        columns={name: values[0] for name, values in _columns(record, 1).items()},
        **_shared(record, images),
    )
    return item if item.ratings else None


def _read_pairs(path: Path, images: Path | None) -> Iterator[PreferencePair]:
    texts: dict[str, list[Record]] = {}
    for record in read_lines(path):
        if "item" in record.values:
            texts.setdefault(str(record.values["item"]), []).append(record)
        else:
            yield read_pair(record, images)
    for item, records in texts.items():
        votes = [record.take("best")[1] for record in records]
        for record, count in zip(records, votes, strict=True):
            if not isinstance(count, int) or count < 0:
                raise record.error("best", "how many people chose the text, or true or false")
        shared = {str([record.values.get(name) for name in ("image", "question", "box")]) for record in records}
        if len(records) < 2 or not any(votes) or len(shared) > 1:
            raise records[0].error(
                "item", "of two texts or more, equal in image and question, one of them chosen", item
            )
        for best, other in permutations(range(len(records)), 2):
            one, two = (records[place] for place in sorted((best, other)))  # the better one is not always the first
            first, second = _columns(one, 1), _columns(two, 1)
            pair = PreferencePair(
                captions=(one.text("candidate"), two.text("candidate")),
                label=int(best > other),
                columns={name: (first[name][0], second[name][0]) for name in first if name in second},
                **_shared(one, images),
            )
            yield from [pair] * int(votes[best])


def read_pair(record: Record, images: Path | None) -> PreferencePair:
    """A pair from an object in the common form; errors as in `read_common`."""
    _, label = record.take("label")
    if label is not None and (isinstance(label, bool) or label not in (0, 1)):
        raise record.error("label", "0, 1 or null (a tie)")
    return PreferencePair(
        captions=_two(record, "captions"),
        label=None if label is None else int(label),
        columns=_columns(record, 2),
        **_shared(record, images),
    )


def _read_quadruple(record: Record, images: Path | None) -> Quadruple:
    _, shown = record.take("images")
    if not isinstance(shown, list) or len(shown) != 2:
        raise record.error("images", "a list of two")
    return Quadruple(
        images=(_image(record, shown[0], images), _image(record, shown[1], images)),
        captions=_two(record, "captions"),
        image_id=record.where,
        category=record.category(),
        columns=_columns(record, 4),
    )


def _shared(record: Record, images: Path | None) -> dict[str, Any]:
    """What rated captions and pairs have in common."""
    image, box = record.values.get("image"), record.values.get("box")
    shown = _image(record, image, images)
    question = None if record.values.get("question") is None else record.text("question")
    return {
        "image": shown if box is None else BoxedImage(shown, box),
        "question": question,
        "references": () if or_none(record.values.get("references")) is None else record.texts("references"),
        "image_id": image or record.where,
        "category": record.category(),
    }


def _two(record: Record, name: str) -> tuple[str, str]:
    first, second = record.texts(name, 2)
    return first, second


def _columns(record: Record, count: int) -> dict[str, Any]:
    """{name: scores} of the fields that hold `count` scores; a single score is not in a list."""
    columns = {}
    for name, value in record.values.items():
        values = [value] if count == 1 and name not in _RATED_FIELDS else value
        if isinstance(values, list) and len(values) == count and all(map(_is_score, values)):
            columns[name] = tuple(_score(record, name, score) for score in values)
    return columns


def _ratings(record: Record, values: Any) -> tuple[float, ...]:
    values = [values] if _is_score(values) else values
    if not isinstance(values, list) or not values or not all(map(_is_score, values)):
        raise record.error("ratings", "numbers, one per rater", values)
    numbers = (_score(record, "ratings", value) for value in values)
    return tuple(number for number in numbers if not math.isnan(number))


def _is_score(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _score(record: Record, name: str, value: Any) -> float:
    """A finite number, or NaN for null and NaN."""
    number = score_in(value)
    if number is None:  # such as 1e999 or 1 with 400 zeros
        raise record.error(name, "finite numbers", str(value))
    return number


def _image(record: Record, image: Any, images: Path | None) -> Path | None:
    if image is None:
        return None
    if not isinstance(image, str) or not image.strip():
        raise record.error("image", "a path", image)
    return (images or record.folder) / image  # an absolute path is left as it is
