"""Ratings of one's own as a benchmark: any data that `capreward score` reads, with ratings in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import DataError, InvalidSampleError
from reward.image_files import image_file
from reward.metaeval.benchmarks.items import OVERALL, Benchmark, BenchmarkSpec, Item, PreferencePair, RatedCaption
from reward.metaeval.benchmarks.records import number_in
from reward.samples import find_column, one_image, read_references
from reward.scoring.columns import image_identity
from reward.scoring.image_root import image_root as find_root
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow, Source
from reward.values import is_list, listed, or_none

__all__ = ["load_captions", "load_ratings"]

_CORRELATIONS = {name: name for name in ("tau-c", "tau-b", "spearman", "pearson")}
_SPEC = BenchmarkSpec(
    name="ratings",
    title="",
    form=RatedCaption,
    statistic="tau-c",
    statistics=_CORRELATIONS,
    judgments="mean",
    checked="own",
)
_LABELS = replace(_SPEC, statistic="auc", statistics={"AUROC": "auc", "AP": "ap", **_CORRELATIONS})
_PAIRS = BenchmarkSpec(name="pairs", title="", form=PreferencePair, statistic="accuracy", checked="own")

_RATER = re.compile(r"(rating|rater|annotator|human|judge|score)([ _-]?\d+|[ _-][a-z])", re.IGNORECASE)
_ONE_OF_TWO = re.compile(r"(candidate|cand|caption|response|text)s?[ _-]?([ab]|[0-2])", re.IGNORECASE)
_BETTER_AND_WORSE = (("chosen", "rejected"), ("correct", "incorrect"), ("better", "worse"))
_WORDS = {"true": 1.0, "yes": 1.0, "correct": 1.0, "false": 0.0, "no": 0.0, "incorrect": 0.0}
_NOTHING = ("", "-", "n/a", "na", "nan", "null", "?")  # is written where nobody rated
_TIES = ("tie", "both", "equal", "same", "neither", "none", "draw")


@dataclass(frozen=True)
class _Reader:
    """Makes items of rows.

    Args:
        source: the data.
        captions: the column of captions, or the two.
        raters: the columns of ratings; empty reads captions without, or pairs of which the first is better.
        words: {word in lower case: number}.
        roles: {role: column or None} of image, references and question.
        cells: {role: column} of further cells that a metric may need.
        root: where relative image paths start.
    """

    source: Source
    captions: Sequence[str]
    raters: Sequence[str]
    words: Mapping[str, float]
    roles: Mapping[str, str | None]
    cells: Mapping[str, str]
    root: Path

    def items(self) -> Iterator[Item]:
        for number, row in enumerate(self.source.rows(self.source.columns), start=1):
            where = f"{self.source.name}, row {number}"
            if isinstance(row, BadRow):
                raise DataError(f"{where}: {row.message}")
            try:
                shared = self._shared(row, where)
            except InvalidSampleError as error:
                raise DataError(f"{where}: {error}") from None
            texts = [or_none(row.get(name)) for name in self.captions]
            captions = [text if isinstance(text, str) else "" for text in texts]
            if len(captions) == 2:
                label = self._choice(or_none(row.get(self.raters[0]))) if self.raters else 0
                if label is not ...:
                    yield PreferencePair((captions[0], captions[1]), label, **shared)
            elif (ratings := self._ratings(row)) or not self.raters:
                cells = {role: listed(or_none(row.get(name))) for role, name in self.cells.items()}
                yield RatedCaption(captions[0], ratings, columns=self._scores(row), cells=cells, **shared)

    def _shared(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        cells = {role: None if name is None else or_none(row.get(name)) for role, name in self.roles.items()}
        image, question = one_image(cells["image"]), cells["question"]
        shown = {**image, "path": self.root / image["path"]} if isinstance(image, dict) and image.get("path") else image
        return {
            "image": str(image_file(self.root / image)) if isinstance(image, str) else shown,
            "image_id": where if image is None else image_identity(image),
            "references": read_references(cells["references"]),
            "question": question if isinstance(question, str) and question.strip() else None,
        }

    def _ratings(self, row: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
        """{aspect: ratings} of a caption; empty where nobody rated it."""
        given: dict[str, list[float]] = {}
        for name in self.raters:
            cell = listed(or_none(row.get(name)))
            for aspect, values in (cell if isinstance(cell, Mapping) else {OVERALL: cell}).items():
                for value in values if is_list(values) else [values]:
                    if (number := self._number(value, name)) is not None:
                        given.setdefault(str(aspect), []).append(number)
        return {aspect: tuple(numbers) for aspect, numbers in given.items()}

    def _number(self, value: Any, column: str) -> float | None:
        value = or_none(value)
        if value is None or str(value).strip().lower() in _NOTHING:
            return None
        if isinstance(value, (bool, np.bool_)):
            return float(value)
        word = str(value).strip().lower()
        number = self.words.get(word, number_in(value, -math.inf, math.inf, text=True))
        number = _WORDS.get(word) if number is None else number
        if number is None:
            raise self._unknown(column, "a number")
        return number

    def _choice(self, value: Any) -> Any:
        """Which of two captions is better, 0 or 1; None for a tie, ... where nobody chose."""
        if value is None or str(value).strip().lower() in _NOTHING:
            return ...
        word = str(value).strip().lower()
        if word in self.words:
            sign = self.words[word]
            return None if sign == 0 else int(sign < 0)
        if word in _TIES:
            return None
        for place, name in enumerate(self.captions):
            if word.removesuffix(".0") in (name.lower(), name[-1].lower()):
                return place
        if self.captions[0][-1].isalpha() and word.removesuffix(".0") in ("0", "1"):
            return int(float(word))
        raise self._unknown(self.raters[0], f"{self.captions[0]}, {self.captions[1]} or tie")

    def _scores(self, row: Mapping[str, Any]) -> dict[str, float]:
        """The other numbers of a row, which `--score-column` may name."""
        read = {*self.captions, *self.raters, *self.roles.values()}
        others = {name: or_none(cell) for name, cell in row.items() if name not in read}
        numbers = {name: number_in(cell, -math.inf, math.inf, text=True) for name, cell in others.items()}
        return {name: math.nan if number is None else number for name, number in numbers.items()}

    def _unknown(self, column: str, wanted: str) -> DataError:
        """The error for ratings in words, with the line to type."""
        found: dict[str, None] = {}
        more = f"(above 0 where {self.captions[0]} is better) " if len(self.captions) == 2 else ""
        for row in self.source.rows([column]):
            cell = None if isinstance(row, BadRow) else or_none(row.get(column))
            if (
                isinstance(cell, str)
                and cell.strip().lower() not in _NOTHING
                and number_in(cell, -math.inf, math.inf, text=True) is None
            ):
                found[cell.strip()] = None
        line = ",".join(f"{word}=NUMBER" for word in sorted(found)[:6])
        return DataError(
            f"column {column!r} of {self.source.name} holds words, not {wanted}: give each its number "
            f'{more}by --rating-map "{line}" (rating_map=)'
        )


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
    raters = [str(find_column("rating", names, name, option="--rating-column")) for name in rating_columns]
    ranked = next((list(two) for two in _BETTER_AND_WORSE if {*two} <= {*names}), [])
    if ranked and not raters and candidate_column is None:  # the names say which is better
        captions = ranked
    else:
        raters = raters or ([] if "rating" in names else [name for name in names if _RATER.fullmatch(name)])
        raters = raters or [str(find_column("rating", names, option="--rating-column", needed_by="bench"))]
    words = {word.strip().lower(): number for word, number in (rating_map or {}).items()}
    reader = _reader(source, captions if len(captions) == 2 else [], raters, words, candidate_column, **columns)
    items = tuple(islice(reader.items(), limit))
    if not items:
        raise DataError(f"no row of {source.name} has a rating in {', '.join(raters)}")
    spec = _PAIRS if len(captions) == 2 else _LABELS if _are_labels(items) else _SPEC
    return Benchmark(replace(spec, name=source.name, title=source.name), items)


def load_captions(
    data: Any, *, candidate_column: str | None = None, split: str | None = None, **columns: Any
) -> Benchmark:
    """Reads captions without ratings, whose other numbers are score columns; arguments as for `load_ratings`."""
    fields = [candidate_column, columns.get("image_column"), columns.get("references_column")]
    source = open_source(data, split=split, fields=fields)
    items = tuple(_reader(source, [], [], {}, candidate_column, **columns).items())
    return Benchmark(replace(_SPEC, name=source.name, title=source.name), items)


def _reader(
    source: Source,
    captions: Sequence[str],
    raters: Sequence[str],
    words: Mapping[str, float],
    candidate_column: str | None,
    *,
    image_column: str | None = None,
    references_column: str | None = None,
    image_root: str | Path | None = None,
) -> _Reader:
    names = source.columns
    if not captions:
        found = find_column("candidate", names, candidate_column, option="--candidate-column", needed_by="scoring")
        captions = [str(found)]
    roles = {
        "image": find_column("image", names, image_column, option="--image-column"),
        "references": find_column("references", names, references_column, option="--references-column"),
        "question": find_column("question", names, option="--question-column"),
    }
    root = Path(source.folder if image_root is None else image_root)
    with suppress(DataError):  # not one image is there, which matters to some metrics, and is told by them
        root = find_root(source, roles["image"], image_root)
    found_cells = {role: find_column(role, names, option=f"--{role}-column") for role in ("rubric", "questions")}
    cells = {role: name for role, name in found_cells.items() if name is not None}
    return _Reader(source, captions, raters, words, roles, cells, root)


def _are_labels(items: Sequence[Item]) -> bool:
    means = {float(np.mean(item.ratings.get(OVERALL, [math.nan]))) for item in items if isinstance(item, RatedCaption)}
    return means == {0.0, 1.0}
