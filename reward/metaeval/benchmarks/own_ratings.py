"""Ratings of one's own as a benchmark: any data that `capreward score` reads, with ratings in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from reward.data.cells import is_list, missing_to_none, parse_list
from reward.data.image_files import image_file
from reward.data.samples import find_column, one_image, read_references
from reward.errors import DataError, InvalidSampleError
from reward.metaeval.benchmarks.items import OVERALL, PAIRS, RATINGS, Benchmark, BenchmarkSpec
from reward.scoring.columns import image_identity
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow, Source

_CORRELATIONS = {name: name for name in ("tau-c", "tau-b", "spearman", "pearson")}
_SPEC = BenchmarkSpec(
    "ratings", "", RATINGS, "tau-c", _CORRELATIONS, documents="image", judgments="mean", checked="own"
)
_LABELS = replace(_SPEC, statistic="auc", statistics={"AUROC": "auc", "AP": "ap", **_CORRELATIONS})
_PAIRS = BenchmarkSpec("pairs", "", PAIRS, "accuracy", documents="image", checked="own")

_RATER = re.compile(r"(rating|rater|annotator|human|judge|score)([ _-]?\d+|[ _-][a-z])", re.IGNORECASE)
_ONE_OF_TWO = re.compile(r"(candidate|cand|caption|response|text)s?[ _-]?([ab]|[0-2])", re.IGNORECASE)
_BETTER_AND_WORSE = (("chosen", "rejected"), ("correct", "incorrect"), ("better", "worse"))
_WORDS = {"true": 1.0, "yes": 1.0, "correct": 1.0, "false": 0.0, "no": 0.0, "incorrect": 0.0}
_NOTHING = ("", "-", "n/a", "na", "nan", "null", "?")  # is written where nobody rated
_TIES = ("tie", "both", "equal", "same", "neither", "none", "draw")


def load_ratings(
    data: Any,
    *,
    rating_columns: Sequence[str] = (),
    rating_map: Mapping[str, float] | None = None,
    candidate_column: str | None = None,
    limit: int | None = None,
    split: str | None = None,
    **columns: Any,
) -> Benchmark:
    """Reads ratings of captions, or choices between two captions, as a benchmark.

    A row is a rated caption, of which the mean rating counts: numbers, `true` and `false`, or words of a map; in one
    column, a column for each rater, a list, or {aspect: ratings}. Ratings of 0 and 1 alone are labels. With two columns
    of captions (such as `caption_a` and `caption_b`) a row is a pair, and its rating is the better caption (`A`, `B`,
    `caption_a`, or the number in the name), `tie`, or a word of a map, which is above 0 where the first is better.
    Columns named `chosen` and `rejected` need no rating.

    Args:
        data: see `reward.scoring.readers.open_source`.
        rating_columns: one, or one for each rater; empty looks for known names.
        rating_map: {word: number}, whatever the case of the words.
        candidate_column, split: see `score_dataset`.
        limit: reads only so many rated rows.
        columns: image_column, references_column and image_root, see `score_dataset`.

    Raises:
        DataError: a column is missing, nothing is rated, or a rating is a word that is not in the map.
    """
    fields = [*rating_columns, candidate_column, columns.get("image_column"), columns.get("references_column")]
    source = open_source(data, split=split, fields=fields)
    names = source.columns
    rating_columns = [n for each in rating_columns for n in ([each] if each in names else each.split(","))]
    captions = [name for name in names if candidate_column is None and _ONE_OF_TWO.fullmatch(name)]
    captions = captions if len(captions) == 2 else []
    raters = [str(find_column("rating", names, name, option="--rating-column")) for name in rating_columns]
    ranked = next((list(two) for two in _BETTER_AND_WORSE if {*two} <= {*names}), [])
    if ranked and not raters and candidate_column is None:  # the names say which is better
        captions = ranked
    else:
        raters = raters or ([] if "rating" in names else [name for name in names if _RATER.fullmatch(name)])
        raters = raters or [str(find_column("rating", names, option="--rating-column", needed_by="bench"))]
    words = {word.strip().lower(): number for word, number in (rating_map or {}).items()}

    def judged() -> Iterator[dict[str, Any]]:
        for row, item in _items(source, captions, raters, candidate_column, **columns):
            if captions:
                item["label"] = _choice(row.get(raters[0]), raters[0], captions, words) if raters else 0.0
            else:
                item["ratings"] = _ratings(row, raters, words)
            if item.get("ratings") or item.get("label", ...) is not ...:
                yield item

    try:
        benchmark = Benchmark.of(_PAIRS if captions else _SPEC, islice(judged(), limit))
    except DataError:
        raise
    except ValueError as error:  # a rating in words
        raise _unknown(source, str(error), captions, words) from None
    if benchmark.rows.empty:
        raise DataError(f"no row of {source.name} has a rating in {', '.join(raters)}")
    spec = benchmark.spec if captions or not _are_labels(benchmark) else _LABELS
    return replace(benchmark, spec=replace(spec, name=source.name, title=source.name))


def load_captions(
    data: Any, *, candidate_column: str | None = None, split: str | None = None, **columns: Any
) -> Benchmark:
    """Reads captions without ratings, whose other numbers are score columns; arguments as for `load_ratings`."""
    fields = [candidate_column, columns.get("image_column"), columns.get("references_column")]
    source = open_source(data, split=split, fields=fields)
    items = ({**item, "ratings": {}} for _, item in _items(source, [], [], candidate_column, **columns))
    return Benchmark.of(replace(_SPEC, name=source.name, title=source.name), items)


def _items(
    source: Source,
    captions: Sequence[str],
    raters: Sequence[str],
    candidate_column: str | None,
    *,
    image_column: str | None = None,
    references_column: str | None = None,
    image_root: str | Path | None = None,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row as it is, and as an item without its judgment; the other numbers of a row are score columns."""
    names = source.columns
    captions = captions or [
        str(find_column("candidate", names, candidate_column, option="--candidate-column", needed_by="scoring"))
    ]
    image = find_column("image", names, image_column, option="--image-column")
    references = find_column("references", names, references_column, option="--references-column")
    question = find_column("question", names, option="--question-column")
    further = {role: find_column(role, names, option=f"--{role}-column") for role in ("rubric", "questions")}
    root = Path(source.folder if image_root is None else image_root)
    with suppress(DataError):  # not one image is there, which matters to some metrics, and is told by them
        root = find_root(source, image, image_root)
    others = [name for name in names if name not in {*captions, *raters, image, references, question}]
    for number, bare in enumerate(source.rows(names), start=1):
        where = f"{source.name}, row {number}"
        if isinstance(bare, BadRow):
            raise DataError(f"{where}: {bare.message}")
        row = {name: missing_to_none(cell) for name, cell in bare.items()}
        texts = [row.get(name) for name in captions]
        asked = None if question is None else row.get(question)
        try:
            shown = None if image is None else one_image(row.get(image))
            given = () if references is None else read_references(row.get(references))
        except InvalidSampleError as error:
            raise DataError(f"{where}: {error}") from None
        scores = {} if len(captions) == 2 else {name: (_number(row.get(name)),) for name in others}
        yield (
            row,
            {
                "captions": tuple(text if isinstance(text, str) else "" for text in texts),
                "images": (_shown(shown, root),),
                "references": given,
                "image_id": where if shown is None else image_identity(shown),
                "category": "",
                "question": asked if isinstance(asked, str) and asked.strip() else None,
                "cells": {role: parse_list(row.get(name)) for role, name in further.items() if name is not None},
                "columns": scores,
            },
        )


def _shown(image: Any, root: Path) -> Any:
    if isinstance(image, dict) and image.get("path"):
        return {**image, "path": root / image["path"]}
    return str(image_file(root / image)) if isinstance(image, str) else image


def _number(value: Any) -> float:
    """A cell as a number, also where it is written as text; NaN for anything else."""
    try:
        number = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _ratings(row: Mapping[str, Any], raters: Sequence[str], words: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    """{aspect: ratings} of a caption; empty where nobody rated it. ValueError(column) for a rating in words."""
    given: dict[str, tuple[float, ...]] = {}
    for name in raters:
        cell = parse_list(row.get(name))
        for aspect, values in (cell if isinstance(cell, Mapping) else {OVERALL: cell}).items():
            for value in map(missing_to_none, values if is_list(values) else [values]):
                word = _word(value)
                if word in _NOTHING:
                    continue
                number = float(value) if isinstance(value, (bool, np.bool_)) else words.get(word, _number(value))
                number = _WORDS.get(word, math.nan) if math.isnan(number) else number
                if math.isnan(number):
                    raise ValueError(name)
                given[str(aspect)] = (*given.get(str(aspect), ()), number)
    return given


def _word(value: Any) -> str:
    return "" if value is None else str(value).strip().lower()


def _choice(value: Any, rater: str, captions: Sequence[str], words: Mapping[str, float]) -> Any:
    """Which of two captions is better, 0 or 1; NaN for a tie, ... where nobody chose. ValueError as in `_ratings`."""
    word = _word(value)
    if word in words:
        return {0.0: math.nan}.get(words[word], float(words[word] < 0))
    if word in _TIES:
        return math.nan
    if word in _NOTHING:
        return ...
    for place, name in enumerate(captions):
        if word.removesuffix(".0") in (name.lower(), name[-1].lower()):
            return float(place)
    if captions[0][-1].isalpha() and word.removesuffix(".0") in ("0", "1"):
        return float(word)
    raise ValueError(rater)


def _unknown(source: Source, column: str, captions: Sequence[str], words: Mapping[str, float]) -> DataError:
    """The error for ratings in words, with the line to type."""
    cells = [missing_to_none(row.get(column)) for row in source.rows([column]) if not isinstance(row, BadRow)]
    found = {str(cell).strip() for cell in cells if isinstance(cell, str) and math.isnan(_number(cell))}
    unknown = sorted(word for word in found if word.lower() not in (*_NOTHING, *words))
    wanted = f"{captions[0]}, {captions[1]} or tie" if captions else "a number"
    more = f"(above 0 where {captions[0]} is better) " if captions else ""
    line = ",".join(f"{word}=NUMBER" for word in unknown[:6])
    return DataError(
        f"column {column!r} of {source.name} holds words, not {wanted}: give each its number "
        f'{more}by --rating-map "{line}" (rating_map=)'
    )


def _are_labels(benchmark: Benchmark) -> bool:
    return {float(np.mean(each.get(OVERALL, [math.nan]))) for each in benchmark.rows["ratings"]} == {0.0, 1.0}
