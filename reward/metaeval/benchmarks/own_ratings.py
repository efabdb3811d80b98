"""Ratings of one's own as a benchmark: any data that `capreward score` reads, with ratings in them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reward.data.cells import is_list, missing_to_none, parse_list, read_number
from reward.data.samples import find_column, join_names
from reward.errors import DataError, InvalidSampleError
from reward.metaeval.benchmarks.items import OVERALL, PAIRS, RATINGS, Benchmark, BenchmarkSpec
from reward.metaeval.benchmarks.own_captions import read_items
from reward.scoring.readers import open_source
from reward.scoring.sources import Source

_CORRELATIONS = {name: name for name in ("tau-c", "tau-b", "spearman", "pearson")}
_SPEC = BenchmarkSpec(
    "ratings", "", RATINGS, "tau-c", _CORRELATIONS, cider_documents="image", judgments="mean", checked="own"
)
_LABELS = replace(_SPEC, statistic="auc", statistics={"AUROC": "auc", "AP": "ap", **_CORRELATIONS})
_PAIRS = BenchmarkSpec("pairs", "", PAIRS, "accuracy", cider_documents="image", checked="own")

_ONE_OF_TWO = re.compile(r"(candidate|cand|caption|response|text)s?[ _-]?([ab]|[0-2])", re.IGNORECASE)
_CHOSEN = ["chosen", "rejected"]  # columns whose names say which caption is better
_RATERS = ("rater", "rater_id", "annotator", "annotator_id", "worker", "worker_id", "worker id")
_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_NOT_RATED = ("", "-", "n/a", "na", "nan", "null", "?")
_LONGEST_WORD = 30  # characters of a rating in words; what is longer is a caption
_LABELS_OF_PAIRS = {"first": 0.0, "second": 1.0, "tie": math.nan}  # place of the better caption, as in `Benchmark`


def load_ratings(
    data: Any,
    *,
    rating_columns: Sequence[str] = (),
    rater_column: str | None = None,
    rating_map: Mapping[str, float] | None = None,
    candidate_column: str | None = None,
    limit: int | None = None,
    split: str | None = None,
    **columns: Any,
) -> Benchmark:
    """Reads ratings of captions, or choices between two captions, as a benchmark.

    A row is a rated caption, of which the mean rating counts: numbers, `true` and `false`, or words of a map; in one
    column, a column for each rater, a list, or {aspect: ratings}. Ratings of 0 and 1 alone are labels. In a long table
    a row is what one rater says of a caption, and a column names the rater. With two columns of captions (such as
    `caption_a` and `caption_b`) a row is a pair, and its rating is the better caption (`A`, `B`, `caption_a`, or the
    number in the name), `tie`, or a word of a map, which is above 0 where the first is better. Columns named `chosen`
    and `rejected` need no rating.

    Args:
        data: see `reward.scoring.readers.open_source`.
        rating_columns: one, or one for each rater; empty takes the column `rating`, `ratings` or `human_score`.
        rater_column: of a long table, what names the rater.
        rating_map: {word: number}, whatever the case of the words.
        candidate_column, split: see `score_dataset`.
        limit: takes only so many rated captions.
        columns: image_column, references_column and image_root, see `score_dataset`.

    Raises:
        DataError: a column is missing, nothing is rated, a rating is a word that is not in the map, or a long table
            does not say which column names the raters.
    """
    reader = open_source(data, split=split)
    captions: list[str] = []
    if candidate_column is None:
        captions = _pair_columns(reader.columns)
    rating_columns = _rating_columns(reader.columns, rating_columns, needed=captions != _CHOSEN)
    if rater_column is not None:
        find_column("rater", reader.columns, rater_column, option="--rater-column")
    scale = _Scale(reader, captions, rating_map or {})
    if captions:
        if rater_column is not None or len(rating_columns) > 1:
            raise DataError(
                f"{' and '.join(captions)} of {reader.name} are pairs, of which one column of choices is read: name it "
                "with --rating-column, and leave out --rater-column"
            )
        spec = _PAIRS
        items = _read_choices(reader, scale, rating_columns, columns)[:limit]
        provenance = f"{len(items)} choices between {' and '.join(captions)}"
        if rating_columns:
            provenance += f" in column {rating_columns[0]}"
    else:
        option = "--candidate-column"
        caption = find_column("candidate", reader.columns, candidate_column, option=option, needed_by="scoring")
        columns["candidate_column"] = caption
        items, raters = _read_rated(reader, scale, rating_columns, rater_column, columns)
        items = items[:limit]
        # Where some items have no overall rating, NaN is among the means, and they are no labels.
        means = {float(np.mean(item["ratings"].get(OVERALL, [math.nan]))) for item in items}
        spec = _LABELS if means == {0.0, 1.0} else _SPEC
        count = 0
        for item in items:
            count += sum(map(len, item["ratings"].values()))
        noun = "columns" if len(rating_columns) > 1 else "column"
        names = join_names(rating_columns, most=10)
        different = len({_caption_key(item) for item in items})
        repeats = "" if different == len(items) else f" ({different} different ones)"
        provenance = f"{count} ratings in {noun} {names}{raters}, of {len(items)} captions{repeats} in column {caption}"
    benchmark = Benchmark.of(replace(spec, name=reader.name, title=reader.name), items)
    return replace(benchmark, provenance=provenance)


def _read_choices(
    reader: Source, scale: _Scale, rating_columns: Sequence[str], columns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The pairs of which somebody has chosen the better caption, or called it a tie."""
    items = []
    for row, item in read_items(reader, captions=scale.captions, judgments=rating_columns, **columns):
        choice: str | None = "first"  # of chosen and rejected
        if rating_columns:
            choice = scale.choice(row, rating_columns[0])
        if choice is not None:
            items.append({**item, "label": _LABELS_OF_PAIRS[choice]})
    scale.check()
    if not items:
        raise DataError(f"no row of {reader.name} has a choice in {', '.join(rating_columns)}")
    return items


def _read_rated(
    reader: Source,
    scale: _Scale,
    rating_columns: Sequence[str],
    rater_column: str | None,
    columns: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], str]:
    """The captions that somebody has rated, and in words who did."""
    judgments = [*rating_columns]
    if rater_column is not None:
        judgments.append(rater_column)
    rows, items = [], []
    for row, item in read_items(reader, judgments=judgments, **columns):
        item["ratings"] = scale.ratings(row, rating_columns)
        if item["ratings"]:
            rows.append(row)
            items.append(item)
    scale.check()
    if not items:
        raise DataError(f"no row of {reader.name} has a rating in {', '.join(rating_columns)}")
    if rater_column is not None:
        items, raters = _join_raters(reader, rows, items, rater_column)
        return items, f" by {len(raters)} raters in column {rater_column} ({join_names(raters, most=10)})"
    if len(rating_columns) > 1:
        return items, " (one for each rater)"
    _check_one_row_each(reader, items)
    return items, ""


def _pair_columns(names: Sequence[str]) -> list[str]:
    """The two columns of captions of which one is better; none if a row is one caption."""
    if {*_CHOSEN} <= {*names}:
        return _CHOSEN
    captions = [name for name in names if _ONE_OF_TWO.fullmatch(name)]
    if len(captions) != 2:
        return []
    return captions


def _rating_columns(names: Sequence[str], wanted: Sequence[str], *, needed: bool) -> list[str]:
    """The columns of ratings: those that are named (`a,b,c` are three), else the one with a name that means a rating.

    Columns such as `annotator_1`, `score_1` or `judge_1` are not taken for ratings: they may be workers' numbers or
    scores of systems.
    """
    chosen: list[str] = []
    for text in wanted:
        if text in names:
            chosen.append(text)
        else:
            chosen += text.split(",")
    for name in chosen:
        find_column("rating", names, name, option="--rating-column")
    if chosen or not needed:
        return chosen
    column = find_column("rating", names, option="--rating-column")
    if column is None:
        raise DataError(
            "bench needs ratings, and no column is named rating, ratings or human_score. The columns are: "
            f"{join_names(names)}. Name the column with --rating-column, of several raters with --rating-column A,B,C"
        )
    return [column]


class _Scale:
    """Reads what people said as numbers, and collects the words that no map explains.

    Args:
        reader: the data.
        captions: the two columns of captions of pairs, else none.
        rating_map: {word: number}.
    """

    def __init__(self, reader: Source, captions: Sequence[str], rating_map: Mapping[str, float]) -> None:
        self.name, self.captions = reader.name, captions
        self.words = {word.strip().lower(): number for word, number in rating_map.items()}
        self.class_names = _class_names(reader)
        self.unknown: dict[str, list[str]] = {}  # {column: words}

    def ratings(self, row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """{aspect: ratings} of a caption; empty where nobody rated it."""
        ratings: dict[str, tuple[float, ...]] = {}
        for column in columns:
            by_aspect = parse_list(row.get(column))
            if not isinstance(by_aspect, Mapping):
                by_aspect = {OVERALL: by_aspect}
            for aspect, values in by_aspect.items():
                if not is_list(values):
                    values = [values]
                numbers = [self._number(value, column) for value in values]
                rated = tuple(number for number in numbers if number is not None)
                if rated:
                    ratings[str(aspect)] = ratings.get(str(aspect), ()) + rated
        return ratings

    def choice(self, row: Mapping[str, Any], column: str) -> str | None:
        """Which of two captions is better: "first", "second" or "tie"; None where nobody chose."""
        written = self._written(row.get(column), column)
        word = written.lower().removesuffix(".0")
        number = self.words.get(word)
        if word == "tie" or number == 0:
            return "tie"
        if number is not None:
            return "first" if number > 0 else "second"
        for side, name in zip(("first", "second"), self.captions, strict=True):
            if word in (name.lower(), name[-1].lower()):
                return side
        if word not in _NOT_RATED:
            self._note_unknown(column, written)
        return None

    def check(self) -> None:
        """Refuses words that stand for no number, with the line to type.

        Raises:
            DataError: there are some.
        """
        for column, words in self.unknown.items():
            wanted, meaning = "a number", ""
            if self.captions:
                wanted = f"{self.captions[0]}, {self.captions[1]} or tie"
                meaning = f"(above 0 where {self.captions[0]} is better) "
            if max(map(len, words)) > _LONGEST_WORD:
                raise DataError(
                    f"column {column!r} of {self.name} holds texts, not {wanted}: name the column of ratings with "
                    "--rating-column (rating_columns=)"
                )
            line = ",".join(f"{word}=NUMBER" for word in sorted(words)[:6])
            raise DataError(
                f"column {column!r} of {self.name} holds words, not {wanted}: give each its number "
                f'{meaning}by --rating-map "{line}" (rating_map=)'
            )

    def _number(self, value: Any, column: str) -> float | None:
        """A rating as a number; None where nobody rated, or if it is an unknown word."""
        written = self._written(value, column)
        word = written.lower()
        # What the user says of a word goes before all else.
        if word in self.words:
            return float(self.words[word])
        if word in _NOT_RATED:
            return None
        if word in _WORDS:
            return _WORDS[word]
        try:
            return read_number(written)
        except InvalidSampleError as error:
            if written[0].isdigit() and "," in written:  # 1,234, which --rating-map cannot name
                raise DataError(f"column {column!r} of {self.name}: {error}") from None
            self._note_unknown(column, written)
            return None

    def _written(self, value: Any, column: str) -> str:
        """What stands in a cell; of a `ClassLabel` of `datasets` the name, since its number is only a place."""
        value = missing_to_none(value)
        if value is None:
            return ""
        if column in self.class_names and isinstance(value, int):
            value = self.class_names[column][value] if value >= 0 else ""  # -1 stands for no label
        return str(value).strip()

    def _note_unknown(self, column: str, word: str) -> None:
        words = self.unknown.setdefault(column, [])
        if word not in words:
            words.append(word)


def _class_names(reader: Source) -> dict[str, list[str]]:
    """{column: names of its classes} of the columns that `datasets` calls ClassLabel, or lists of it."""
    metadata = getattr(reader.schema, "metadata", None) or {}
    described = json.loads(metadata.get(b"huggingface", b"{}"))
    features = (described.get("info") or {}).get("features") or {}
    names = {}
    for column, feature in features.items():
        if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):  # of a list of them
            feature = feature["feature"]
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            names[column] = feature["names"]
    return names


def _check_one_row_each(reader: Source, items: Sequence[Mapping[str, Any]]) -> None:
    """Refuses a long table that is not called one: it would count each rater as a caption.

    Raises:
        DataError: captions come again, and a column is named as one of raters is, or all come twice or more.
    """
    # Some captions may come twice by chance, as where two systems wrote the same; a long table repeats them all.
    captions = len({_caption_key(item) for item in items})
    raters = [name for name in reader.columns if name.strip().lower() in _RATERS]
    if len(items) >= 2 * captions or (raters and len(items) > captions):
        raise DataError(
            f"{reader.name} has {len(items)} rated rows of {captions} captions, as where each rater has a row: "
            f"name the column that says who rated, --rater-column {raters[0] if raters else 'COLUMN'} (rater_column=)"
        )


def _join_raters(
    reader: Source, rows: Sequence[Mapping[str, Any]], items: Sequence[dict[str, Any]], rater_column: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """One item for all rows of a caption, with the ratings in the order in which the raters appear; and the raters.

    Raises:
        DataError: a row names no rater, or a rater has rated a caption twice.
    """
    joined: dict[Any, dict[str, Any]] = {}
    ratings_of: dict[Any, dict[str, dict[str, tuple[float, ...]]]] = {}  # {caption: {rater: {aspect: ratings}}}
    raters: dict[str, None] = {}
    for row, item in zip(rows, items, strict=True):
        caption, rater = item["captions"][0], row.get(rater_column)
        if rater is None or not str(rater).strip():
            raise DataError(f"{reader.name}: a rating of {caption!r:.60} has no rater in {rater_column!r}")
        raters[str(rater)] = None
        key = _caption_key(item)
        first = joined.setdefault(key, item)
        # A column that differs between rows of one caption is about the rater, and no score of the caption. Texts are
        # compared, since NaN is not equal to itself.
        for name, value in item["columns"].items():
            if str(first["columns"][name]) != str(value):
                first["columns"][name] = (math.nan,)
        by_rater = ratings_of.setdefault(key, {})
        if str(rater) in by_rater:
            raise DataError(f"{reader.name}: {rater!r} has rated {caption!r:.60} twice; keep one of the rows")
        by_rater[str(rater)] = item["ratings"]
    # By rater, so that the first rating of each caption is of the same person where all have rated all.
    for key, item in joined.items():
        item["ratings"] = {}
        for rater in raters:
            for aspect, ratings in ratings_of[key].get(rater, {}).items():
                item["ratings"][aspect] = (*item["ratings"].get(aspect, ()), *ratings)
    return list(joined.values()), list(raters)


def _caption_key(item: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is the same in all rows of one caption."""
    if item["images"][0] is None:
        return None, item["question"], item["captions"]
    return item["image_id"], item["question"], item["captions"]
