"""Rated captions as training rows: a split for each aspect, a column for each aspect, or a single score."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict

from torch.utils.data import Dataset as TorchDataset

from reward.data.column_names import column_names
from reward.data.samples import CaptionSample
from reward.errors import DataError, InvalidSampleError
from reward.metaeval.benchmarks.items import OVERALL
from reward.metrics.base import MetricSpec, installed_specs
from reward.training.splits import TRAIN, VALIDATION, Split, part_error

if TYPE_CHECKING:
    from reward.training.config import TrainingConfig


# {column: the role whose usual names stand in for it}
_ROLES = {"cand": "candidate", "refs": "references", "score": "rating"}


class TrainingRow(TypedDict):
    """A caption, what is judged of it (the index of an aspect, or of a kind of error), and the number to learn."""

    sample: CaptionSample
    aspect: int
    target: float


class Judgement(NamedTuple):
    """One rating of a caption, whose image is `images[row]`."""

    candidate: str
    references: Sequence[str]
    aspect: int
    target: float
    images: Sequence[Any]
    row: int


# Both kinds of rows, these and the pairs, have what orders them: `kinds`, `lengths`, `texts`, `step` and `epoch`.
@dataclass(eq=False)
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

    step: ClassVar[int] = 1  # rows of a judgement

    ratings: Sequence[Judgement]
    seed: int = 0
    reference_free_rate: float = 0.0
    max_references: int | None = None
    choose: bool = False
    epoch: int = field(default=0, init=False)  # set by the trainer

    @property
    def kinds(self) -> list[int]:
        """Kinds of errors, as pairs have them; judgements are all of one kind."""
        return [0] * len(self.ratings)

    def __len__(self) -> int:
        return len(self.ratings)

    def __getitem__(self, item: int) -> TrainingRow:
        rating = self.ratings[item]
        image = rating.images[rating.row]
        sample = CaptionSample(rating.candidate, image, self._references(rating.references, item))
        return {"sample": sample, "aspect": rating.aspect, "target": rating.target}

    def _references(self, references: Sequence[str], item: int) -> list[str]:
        # Of seed, epoch and row alone: workers, processes and resumed runs draw the same.
        rng = random.Random(f"references {self.seed} {self.epoch} {item}")
        if rng.random() < self.reference_free_rate:
            return []
        if self.max_references is None or len(references) <= self.max_references:
            return list(references)
        if not self.choose:
            return list(references[: self.max_references])
        chosen = sorted(rng.sample(range(len(references)), self.max_references))
        return [references[index] for index in chosen]

    def lengths(self) -> list[int]:
        """Characters of candidate and references of each row, a measure of its cost; shape (N,)."""
        lengths = []
        for rating in self.ratings:
            references = rating.references[: self.max_references]
            lengths.append(len(rating.candidate) + sum(map(len, references)))
        return lengths

    def texts(self) -> list[str]:
        """Every candidate and reference once, in a fixed order, for training a tokenizer."""
        texts = [rating.candidate for rating in self.ratings]
        for rating in self.ratings:
            texts += rating.references
        return list(dict.fromkeys(texts))

    def sorted_by_length(self) -> Judgements:
        """The same rows from short to long, so that batches taken in order need little padding."""
        lengths = self.lengths()
        order = sorted(range(len(self)), key=lengths.__getitem__)
        return replace(self, ratings=[self.ratings[row] for row in order])

    def without_references(self) -> Judgements:
        """The same rows without references."""
        return replace(self, reference_free_rate=1.0)


def make_judgements(
    sets: Mapping[str, Mapping[str, Split]], part: str, spec: MetricSpec, config: TrainingConfig
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
    # One score may stand for the aspects that the metric has when it is installed.
    installed = installed_specs().get(spec.name, spec)
    joins_aspects = spec.aspects == (OVERALL,) != installed.aspects
    splits_of_aspects = ", ".join(f"{part}.{name}" for name in spec.aliases or spec.aspects)
    expected = f"splits {splits_of_aspects}, or a split {part!r} with columns named after the aspects"
    ratings: list[Judgement] = []
    for name, splits in sets.items():
        columns = _rating_columns(splits, part, spec)
        if not columns and joins_aspects:
            columns = [(split, column, 0) for split, column, _ in _rating_columns(splits, part, installed)]
        if not columns and part in splits and len(spec.aspects) == 1:
            columns = [(splits[part], "score", 0)]
        if not columns and part == TRAIN:
            raise part_error({name: splits}, part, expected)
        for split, column, aspect in columns:
            ratings += _ratings_of(split, column, aspect, needs_references=config.reference_free_rate < 1)
    if not ratings and part == VALIDATION:
        raise part_error(sets, part, expected)
    if not ratings:
        return None
    is_training = part == TRAIN
    rate = config.reference_free_rate
    if not is_training and rate < 1:
        rate = 0.0
    return Judgements(
        ratings,
        seed=config.seed,
        reference_free_rate=rate,
        max_references=config.max_references,
        choose=is_training,
    )


def check_ratings(parts: Mapping[str, Any], spec: MetricSpec) -> None:
    """Refuses ratings from which nothing can be learned; training itself would not notice."""
    indices = {rating.aspect for rating in parts[TRAIN].ratings}
    rated: list[str] = []
    unrated: list[str] = []
    for index, aspect in enumerate(spec.aspects):
        if index in indices:
            rated.append(aspect)
        else:
            unrated.append(aspect)
    if unrated:
        raise DataError(
            f"the part {TRAIN!r} does not rate {', '.join(unrated)}, so their scores would not be trained; train only "
            f"the rated aspects with model.aspects: [{', '.join(rated)}]"
        )
    uses = {TRAIN: "so nothing can be learned from it", VALIDATION: "so it cannot tell which step is best"}
    for part, use in uses.items():
        ratings = parts[part].ratings
        aspects = {rating.aspect for rating in ratings}
        values = {(rating.aspect, rating.target) for rating in ratings}
        if len(ratings) > 1 and len(values) == len(aspects):
            raise DataError(f"all ratings of the part {part!r} are equal, {use}")


def _rating_columns(splits: Mapping[str, Split], part: str, spec: MetricSpec) -> list[tuple[Split, str, int]]:
    """(split, column of the ratings, index of the aspect) for each rated aspect."""
    aspects = {aspect: index for index, aspect in enumerate(spec.aspects)}
    for alias, aspect in spec.aliases.items():
        aspects[alias] = aspects[aspect]
    columns = []
    for name, index in aspects.items():
        if f"{part}.{name}" in splits:
            columns.append((splits[f"{part}.{name}"], "score", index))
    if columns or part not in splits:
        return columns
    split = splits[part]
    return [(split, name, index) for name, index in aspects.items() if name in split.rows.column_names]


def _ratings_of(split: Split, column: str, aspect: int, *, needs_references: bool) -> list[Judgement]:
    """The ratings in a column; a faulty cell is refused with its row."""
    if column == "score":
        column = _column_of(split, column)
    candidate_column = _column_of(split, "cand")
    reference_column = _column_of(split, "refs")
    required = {candidate_column: "cand", column: column}
    if needs_references:
        required = {reference_column: "refs", **required}
    split.check(required)
    if hasattr(split.rows.features[column], "names"):
        raise DataError(
            f"split {split.name!r}: {column} is a ClassLabel, whose numbers are only places: write a number in [0, 1]"
        )
    candidates = split.rows[candidate_column]
    references: Sequence[Any] = split.rows[reference_column] if needs_references else [()] * len(candidates)
    ratings = []
    for row, rating in enumerate(split.rows[column]):
        where = f"split {split.name!r}, row {row}"
        if isinstance(rating, bool) or not isinstance(rating, (int, float)) or not 0 <= rating <= 1:  # or NaN
            raise DataError(
                f"{where}: {column} must be a number in [0, 1], got {rating!r}; "
                "map a five-point rating r to (r - 1) / 4"
            )
        try:
            sample = CaptionSample(candidates[row], references=references[row])
        except InvalidSampleError as error:
            raise DataError(f"{where}: {error}") from error
        ratings.append(Judgement(sample.candidate, sample.references, aspect, float(rating), split.images, row))
    return ratings


def _column_of(split: Split, name: str) -> str:
    """The column itself, or else the first with a usual name of its role."""
    columns = split.rows.column_names
    if name in columns:
        return name
    return next((usual for usual in column_names(_ROLES[name]) if usual in columns), name)
