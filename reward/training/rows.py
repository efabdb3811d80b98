"""The rows that a run is trained and evaluated on, and their order."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from torch.utils.data import ConcatDataset

from reward.errors import ConfigError, DataError
from reward.metrics.base import MetricSpec
from reward.training.config import TrainingConfig
from reward.training.data import Judgements, load_parts, make_judgements, replaced_aspects
from reward.training.pairs import CaptionPairs, load_pairs
from reward.training.sampling import EpochOrder, balanced_draw, draw_shares
from reward.training.shares import make_shares, rows_per_epoch

if TYPE_CHECKING:
    from transformers import TrainingArguments


Rows: TypeAlias = Judgements | CaptionPairs


class Joined(ConcatDataset[Any]):
    """The rows of several data sets, one after the other."""

    @property
    def epoch(self) -> int:
        return self.datasets[0].epoch  # type: ignore[attr-defined]

    @epoch.setter
    def epoch(self, value: int) -> None:
        for part in self.datasets:
            part.epoch = value  # type: ignore[attr-defined]


@dataclass(frozen=True)
class TrainingRows:
    """The rows of a run.

    Args:
        sets: {data set: {part: rows}}, all of one kind: the part that is trained on, the one to stop by, and those to
            report. At least one data set has the part to stop by.
        shares: {data set: share of the rows of an epoch}.
        train_part: name of the part that is trained on.
    """

    sets: Mapping[str, Mapping[str, Rows]]
    shares: Mapping[str, float]
    train_part: str

    @property
    def train(self) -> Joined:
        """All rows that are trained on: those of the data sets in turn."""
        return Joined(self.of_part(self.train_part).values())

    def of_part(self, part: str) -> dict[str, Rows]:
        """{data set: its rows of a part}, of the data sets that have it."""
        return {source: parts[part] for source, parts in self.sets.items() if part in parts}

    def label(self, part: str, source: str) -> str:
        """What the part of a data set is called in figures."""
        return f"{part} of {source}" if len(self.sets) > 1 else part

    def parts(self) -> dict[str, Rows]:
        """{label: rows} of every part of every data set."""
        return {self.label(part, source): rows for source, own in self.sets.items() for part, rows in own.items()}

    def texts(self) -> list[str]:
        """Captions to train on, each once, for training a tokenizer."""
        return list(dict.fromkeys(text for rows in self.of_part(self.train_part).values() for text in rows.texts()))

    def per_epoch(self) -> dict[str, int]:
        """{data set: rows (ratings, or pairs) that an epoch takes of it}."""
        sizes = {source: len(rows.kinds) for source, rows in self.of_part(self.train_part).items()}
        return rows_per_epoch(sizes, self.shares)

    def counts(self) -> dict[str, dict[str, int]]:
        """{part: {kind of error: number of pairs}} of the parts that are pairs."""
        return {part: rows.counts() for part, rows in self.parts().items() if isinstance(rows, CaptionPairs)}

    def warn_of_left_out(self, other_stages: Collection[str] = ()) -> None:
        """Warns of kinds of errors in the data to train on that neither this run nor another stage trains."""
        left: Counter[str] = Counter()
        for rows in self.of_part(self.train_part).values():
            left.update(rows.left_out if isinstance(rows, CaptionPairs) else {})
        if lost := {kind: count for kind, count in left.items() if kind not in other_stages}:
            warnings.warn(
                f"the data have pairs of the kinds {', '.join(f'{kind} ({count:,})' for kind, count in lost.items())}, "
                "which no stage trains: name them in `categories`, or leave out their columns or rows",
                stacklevel=2,
            )


def load_rows(spec: MetricSpec, shares: Mapping[str, float], config: TrainingConfig) -> TrainingRows:
    """Loads the rows for a configuration.

    Args:
        spec: facts of the metric.
        shares: {data set: share} as given to `train`; `config.data` and `config.pairs` take precedence.
        config: settings.
    """
    if config.data is not None and len(shares) > 1:
        raise ConfigError(
            f"the setting data names {config.data!r}, beside {len(shares)} data sets with shares: leave out one of them"
        )
    of_pairs = make_shares(config.pairs) if config.pairs else shares
    if config.loss == "bce":
        return TrainingRows(_load_pairs(of_pairs, config), of_pairs, config.train_part)
    shares = make_shares(config.data) if config.data else shares
    ratings = {source: _load_ratings(source, spec, config, alone=len(shares) == 1) for source in shares}
    _check_validation(ratings, config)
    _check_ratings(spec, config, ratings)
    return TrainingRows(ratings, shares, config.train_part)


def _load_pairs(sources: Collection[str], config: TrainingConfig) -> dict[str, dict[str, CaptionPairs]]:
    pairs = {source: load_pairs(source, config, validation=len(sources) == 1) for source in sources}
    _check_validation(pairs, config)
    return pairs


def _load_ratings(source: str, spec: MetricSpec, config: TrainingConfig, *, alone: bool) -> dict[str, Judgements]:
    """The parts of one data set; beside others, it may lack the one to stop by."""
    splits, root = load_parts(source, config)
    optional = config.test_parts if alone else (config.validation_part, *config.test_parts)
    there = [part for part in optional if any(name in splits for name in _splits_of(part, spec))]
    needed = (config.train_part, config.validation_part) if alone else (config.train_part,)
    try:
        return {part: make_judgements(splits, part, spec, config, root=root) for part in (*needed, *there)}
    except DataError as error:
        raise error if alone else DataError(f"data set {source!r}: {error}") from error


def _check_validation(sets: Mapping[str, Mapping[str, Rows]], config: TrainingConfig) -> None:
    if not any(config.validation_part in parts for parts in sets.values()):
        raise DataError(f"none of the data sets {', '.join(sets)} has a part {config.validation_part!r} to stop by")


def _check_ratings(spec: MetricSpec, config: TrainingConfig, sets: Mapping[str, Mapping[str, Judgements]]) -> None:
    """Refuses ratings from which nothing can be learned; training itself would not notice."""
    train = [parts[config.train_part] for parts in sets.values()]
    rated = set().union(*(rows.aspects() for rows in train))
    unrated = [aspect for place, aspect in enumerate(spec.aspects) if place not in rated]
    if unrated:
        raise DataError(
            f"the part {config.train_part!r} does not rate {', '.join(unrated)}, so their scores would not be "
            f"trained; train only the rated aspects with model.aspects: "
            f"[{', '.join(spec.aspects[place] for place in sorted(rated))}]"
        )
    if _all_equal(train):
        raise DataError(f"all ratings of the part {config.train_part!r} are equal, so nothing can be learned from it")
    for source, parts in sets.items():
        if config.validation_part in parts and _all_equal([parts[config.validation_part]]):
            whose = f" of {source!r}" if len(sets) > 1 else ""
            raise DataError(
                f"all ratings of the part {config.validation_part!r}{whose} are equal, so it cannot tell which step is "
                "best"
            )


def _all_equal(parts: Sequence[Judgements]) -> bool:
    ratings: dict[int, set[float]] = {}
    for rows in parts:
        for aspect, values in rows.ratings().items():
            ratings.setdefault(aspect, set()).update(values)
    return sum(map(len, parts)) > 1 and all(len(values) == 1 for values in ratings.values())


def _splits_of(part: str, spec: MetricSpec) -> list[str]:
    own = replaced_aspects(spec) or spec
    return [part, *(f"{part}.{name}" for name in (*spec.aspects, *own.aspects, *own.aliases))]


def make_order(rows: TrainingRows, config: TrainingConfig, args: TrainingArguments) -> EpochOrder:
    """The order of the rows in training."""
    sets = rows.of_part(rows.train_part)
    step = next(iter(sets.values())).step
    kinds: list[Sequence[int]] = [own.kinds for own in sets.values()]
    if config.sampling == "pool":
        kinds = [[0] * len(own) for own in kinds]  # each pair once, whatever its kind
    counts = list(rows.per_epoch().values())
    draw = None
    if len(sets) > 1:
        draw = partial(draw_shares, kinds, counts)
    elif step == 2:
        draw = partial(_balanced_pairs, kinds[0])
    known = [own.lengths() for own in sets.values()]  # the scenes' are None: not known before they are drawn
    by_length = config.group_by_length and None not in known
    lengths = [length for own in known for length in own or ()] if by_length else None
    batch_size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size // step
    return EpochOrder(lengths, sum(counts), batch_size, config.seed, draw, step)


def _balanced_pairs(kinds: Sequence[int], seed: str) -> list[int]:
    return balanced_draw(kinds, f"pairs {seed}")
