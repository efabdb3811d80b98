"""Rated captions as training rows: a split for each aspect, a column for each aspect, or a single score."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from torch.utils.data import Dataset as TorchDataset

from reward.data.samples import CaptionSample, column_names
from reward.errors import DataError, InvalidSampleError
from reward.metaeval.benchmarks.items import OVERALL
from reward.metrics.base import MetricSpec, installed_specs
from reward.training.tables import TRAIN, VALIDATION, Table, lacking

if TYPE_CHECKING:
    from reward.training.config import TrainingConfig


# {column: the role whose usual names stand in for it}
_ROLES = {"cand": "candidate", "refs": "references", "score": "rating"}


class TrainingRow(TypedDict):
    """A caption, what is judged of it (the place of an aspect, or of a kind of error), and the number to learn."""

    sample: CaptionSample
    aspect: int
    target: float


class Rating(NamedTuple):
    """One rating of a caption, whose image is the one at `place` of `images`."""

    candidate: str
    references: Sequence[str]
    aspect: int
    target: float
    images: Sequence[Any]
    place: int


class Judgements(TorchDataset[TrainingRow]):
    """Rows (caption, aspect, rating) of one part. An image is read when its row is asked for.

    The references of a row depend only on `seed`, `epoch` and the row. The order of the rows, the number of worker
    processes, and whether the run was resumed do not matter.

    Args:
        ratings: N ratings.
        seed: seed of the choices below.
        reference_free_rate: share of rows without references.
        max_references: most references per row, or None.
        choose: whether `max_references` are chosen at random (training), or the first ones are taken (evaluation).
    """

    step = 1  # rows of a judgement

    def __init__(
        self,
        ratings: Sequence[Rating],
        *,
        seed: int = 0,
        reference_free_rate: float = 0.0,
        max_references: int | None = None,
        choose: bool = False,
    ) -> None:
        self.epoch = 0
        self.ratings = list(ratings)
        self.kinds = [0] * len(self.ratings)  # of errors, as pairs have them; judgements are all of one kind
        self._seed = seed
        self._reference_free_rate = reference_free_rate
        self._max_references = max_references
        self._choose = choose

    def __len__(self) -> int:
        return len(self.ratings)

    def __getitem__(self, item: int) -> TrainingRow:
        row = self.ratings[item]
        sample = CaptionSample(row.candidate, row.images[row.place], self._references(row.references, item))
        return {"sample": sample, "aspect": row.aspect, "target": row.target}

    def _references(self, references: Sequence[str], item: int) -> list[str]:
        rng = random.Random(f"references {self._seed} {self.epoch} {item}")
        if rng.random() < self._reference_free_rate:
            return []
        if self._max_references is None or len(references) <= self._max_references:
            return list(references)
        if not self._choose:
            return list(references[: self._max_references])
        kept = sorted(rng.sample(range(len(references)), self._max_references))
        return [references[place] for place in kept]

    def lengths(self) -> list[int]:
        """Characters of candidate and references of each row, a measure of its cost; shape (N,)."""
        most = self._max_references
        return [len(row.candidate) + sum(map(len, row.references[:most])) for row in self.ratings]

    def texts(self) -> list[str]:
        """Every candidate and reference once, in a fixed order, for training a tokenizer."""
        candidates = {row.candidate: None for row in self.ratings}
        return list(candidates | {text: None for row in self.ratings for text in row.references})

    def sorted_by_length(self) -> Judgements:
        """The same rows from short to long, so that batches taken in order need little padding."""
        ordered = copy(self)
        pairs = sorted(zip(self.lengths(), range(len(self)), strict=True))
        ordered.ratings = [self.ratings[item] for _, item in pairs]
        return ordered

    def without_references(self) -> Judgements:
        """The same rows without references."""
        bare = copy(self)
        bare._reference_free_rate = 1.0
        return bare


def make_judgements(
    sets: Mapping[str, Mapping[str, Table]], part: str, spec: MetricSpec, config: TrainingConfig
) -> Judgements | None:
    """The rows of one part of data sets, one after the other; None if none has it, unless it is the part to stop by.

    In a data set, a part is either one split an aspect, named `<part>.<aspect>` with the rating in the column `score`
    (LongCap-Arena), or one split `<part>` with one column an aspect (the scenes), or, for a metric of one aspect, a
    split `<part>` with the column `score`. Aspects may be named by their aliases. A checkpoint may have the single
    score `overall` in place of the metric's aspects. If the data do not rate `overall`, each rating of an aspect then
    counts as a rating of `overall`. Besides the rating, a split has the columns `image` (or `file_name`), `cand` and,
    unless `config.reference_free_rate` is 1, `refs`; other usual names of them do as well. Every data set must have the
    part to train on.

    Args:
        sets: {data set: {name: split}}.
        part: the part's name.
        spec: facts of the metric: its aspects and aliases.
        config: gives seed, `reference_free_rate` and `max_references`; the part `train` is shown as in training,
            others as in evaluation.
    """
    whole = installed_specs().get(spec.name, spec)  # whose aspects one score may stand for
    own = whole if spec.aspects == (OVERALL,) != whole.aspects else None
    names = [f"{part}.{name}" for name in spec.aliases or spec.aspects]
    expected = f"splits {', '.join(names)}, or a split {part!r} with columns named after the aspects"
    ratings: list[Rating] = []
    for source, splits in sets.items():
        found = _find_ratings(splits, part, spec)
        if not found and own is not None:
            found = [(table, column, 0) for table, column, _ in _find_ratings(splits, part, own)]
        if not found and part in splits and len(spec.aspects) == 1:
            found = [(splits[part], "score", 0)]
        if not found and part == TRAIN:
            raise lacking({source: splits}, part, expected)
        for table, column, aspect in found:
            ratings += _ratings_of(table, column, aspect, needs_references=config.reference_free_rate < 1)
    if not ratings and part == VALIDATION:
        raise lacking(sets, part, expected)
    training = part == TRAIN
    rate = config.reference_free_rate if training else float(config.reference_free_rate == 1)
    most = config.max_references
    made = Judgements(ratings, seed=config.seed, reference_free_rate=rate, max_references=most, choose=training)
    return made if ratings else None


def check_ratings(parts: Mapping[str, Judgements], spec: MetricSpec) -> None:
    """Refuses ratings from which nothing can be learned; training itself would not notice."""
    rated = {row.aspect for row in parts[TRAIN].ratings}
    if unrated := [aspect for place, aspect in enumerate(spec.aspects) if place not in rated]:
        raise DataError(
            f"the part {TRAIN!r} does not rate {', '.join(unrated)}, so their scores would not be trained; train only "
            f"the rated aspects with model.aspects: [{', '.join(spec.aspects[place] for place in sorted(rated))}]"
        )
    uses = {TRAIN: "so nothing can be learned from it", VALIDATION: "so it cannot tell which step is best"}
    for part, use in uses.items():
        ratings = parts[part].ratings
        different, aspects = {(row.aspect, row.target) for row in ratings}, {row.aspect for row in ratings}
        if len(ratings) > 1 and len(different) == len(aspects):
            raise DataError(f"all ratings of the part {part!r} are equal, {use}")


def _find_ratings(splits: Mapping[str, Table], part: str, spec: MetricSpec) -> list[tuple[Table, str, int]]:
    """(split, column of the ratings, place of the aspect) for each rated aspect."""
    names = {**{aspect: aspect for aspect in spec.aspects}, **spec.aliases}
    places = {name: spec.aspects.index(aspect) for name, aspect in names.items()}
    found = [(splits[f"{part}.{name}"], "score", at) for name, at in places.items() if f"{part}.{name}" in splits]
    if not found and part in splits:
        there = splits[part].rows.column_names
        found = [(splits[part], name, at) for name, at in places.items() if name in there]
    return found


def _ratings_of(table: Table, column: str, aspect: int, *, needs_references: bool) -> list[Rating]:
    """The ratings in a column; a faulty cell is refused with its row."""
    there = table.rows.column_names
    names = {
        own: own if own in there else next((name for name in column_names(role) if name in there), own)
        for own, role in _ROLES.items()
    }
    column = names.get(column, column)
    needed = ({"refs": names["refs"]} if needs_references else {}) | {"cand": names["cand"], column: column}
    table.check({name: own for own, name in needed.items()})
    cells = [table.rows[name] for name in (names["cand"], column)]
    cells.append(table.rows[needed["refs"]] if needs_references else [None] * len(table.rows))
    ratings = []
    for number, (candidate, rating, references) in enumerate(zip(*cells, strict=True)):
        where = f"split {table.name!r}, row {number}"
        if isinstance(rating, bool) or not isinstance(rating, (int, float)) or not 0 <= rating <= 1:  # or NaN
            raise DataError(
                f"{where}: {column} must be a number in [0, 1], got {rating!r}; "
                "map a five-point rating r to (r - 1) / 4"
            )
        try:
            sample = CaptionSample(candidate, references=references)
        except InvalidSampleError as error:
            raise DataError(f"{where}: {error}") from error
        ratings.append(Rating(sample.candidate, sample.references, aspect, float(rating), table.images, number))
    return ratings
