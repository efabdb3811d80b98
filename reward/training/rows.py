"""The rows that a run is trained and evaluated on, and their order."""

from __future__ import annotations

import bisect
import itertools
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from torch.utils.data import Dataset as TorchDataset

from reward.errors import ConfigError, DataError
from reward.metrics.base import MetricSpec
from reward.training.config import TrainingConfig
from reward.training.data import Judgements, load_parts, make_judgements, replaced_aspects
from reward.training.pairs import CaptionPairs, load_pairs
from reward.training.sampling import EpochOrder, MixedOrder, PairOrder, draw_shares
from reward.training.shares import make_shares, rows_per_epoch

if TYPE_CHECKING:
    from transformers import TrainingArguments

__all__ = ["Joined", "Rows", "TrainingRows", "load_rows", "make_order"]

Rows: TypeAlias = Judgements | CaptionPairs


class Joined(TorchDataset[Any]):
    """The rows of several data sets, one after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = list(parts)
        self._ends = list(itertools.accumulate(map(len, self._parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, item: int) -> Any:
        number = bisect.bisect_right(self._ends, item)
        return self._parts[number][item - self._ends[number] + len(self._parts[number])]

    @property
    def epoch(self) -> int:
        return self._parts[0].epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        for part in self._parts:
            part.epoch = value


@dataclass(frozen=True)
class TrainingRows:
    """The rows of a run.

    Args:
        sets: {data set: {part: rows}}, all of one kind: the part that is trained on, the one to stop by, and those to
            report. At least one data set has the part to stop by.
        shares: {data set: share of the rows of an epoch}.
        beside: {data set: pairs}, trained on beside ratings.
        train_part: name of the part that is trained on.
    """

    sets: Mapping[str, Mapping[str, Rows]]
    shares: Mapping[str, float]
    train_part: str
    beside: Mapping[str, CaptionPairs] = field(default_factory=dict)

    @property
    def train(self) -> Joined:
        """All rows that are trained on: those of the data sets in turn, then the pairs beside them."""
        return Joined([*self.of_part(self.train_part).values(), *self.beside.values()])

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
        texts = [text for rows in self.of_part(self.train_part).values() for text in rows.texts()]
        return texts if len(self.sets) == 1 else list(dict.fromkeys(texts))

    def longest(self, size: int) -> list[Any]:
        """The batch of so many rows to train on that has the longest texts; beside ratings, half of it is pairs."""
        train = self.of_part(self.train_part)
        if not self.beside:
            return _longest(train.values(), size)
        return _longest(train.values(), size // 2) + _longest(self.beside.values(), size // 2)

    def per_epoch(self) -> dict[str, int]:
        """{data set: rows (ratings, or pairs) that an epoch takes of it}."""
        return rows_per_epoch(_sizes(self.of_part(self.train_part)), self.shares)

    def counts(self) -> dict[str, dict[str, int]]:
        """{part: {kind of error: number of pairs}} of the parts that are pairs."""
        counts = {part: rows.counts() for part, rows in self.parts().items() if isinstance(rows, CaptionPairs)}
        for source, pairs in self.beside.items():
            counts[f"beside the ratings ({source})" if len(self.beside) > 1 else "beside the ratings"] = pairs.counts()
        return counts

    def warn_of_left_out(self, other_stages: Collection[str] = ()) -> None:
        """Warns of kinds of errors in the data to train on that neither this run nor another stage trains."""
        left: Counter[str] = Counter()
        for rows in (*self.of_part(self.train_part).values(), *self.beside.values()):
            left.update(rows.left_out if isinstance(rows, CaptionPairs) else {})
        if lost := {kind: count for kind, count in left.items() if kind not in other_stages}:
            warnings.warn(
                f"the data have pairs of the kinds {', '.join(f'{kind} ({count:,})' for kind, count in lost.items())}, "
                "which no stage trains: name them in `categories`, or leave out their columns or rows",
                stacklevel=2,
            )


def _longest(sets: Iterable[Rows], size: int) -> list[Any]:
    places: list[tuple[int, Rows, range]] = []
    for rows in sets:
        step = 2 if isinstance(rows, CaptionPairs) else 1
        count = len(rows) // step
        given = rows.pair_lengths() if isinstance(rows, CaptionPairs) else rows.lengths()
        lengths = given or [0] * count
        places += [(lengths[place], rows, range(step * place, step * place + step)) for place in range(count)]
    places.sort(key=lambda place: -place[0])
    return [rows[item] for _, rows, items in places[:size] for item in items][:size]


def load_rows(spec: MetricSpec, shares: Mapping[str, float], config: TrainingConfig) -> TrainingRows:
    """Loads the rows for a configuration.

    Args:
        spec: facts of the metric.
        shares: {data set: share} as given to `train`; `config.data` and `config.pairs` take precedence.
        config: settings.

    Raises:
        ConfigError: `config.data` names a data set, and so do several others.
        DataError: see `reward.training.data` and `reward.training.pairs`; or no data set has a part to stop by.
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
    pairs = _load_pairs(of_pairs, config) if config.pair_weight else {}
    beside = {source: parts[config.train_part] for source, parts in pairs.items()}
    return TrainingRows(ratings, shares, config.train_part, beside)


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


def make_order(
    rows: TrainingRows, config: TrainingConfig, args: TrainingArguments
) -> EpochOrder | PairOrder | MixedOrder:
    """The order of the rows in training; the two halves of mixed batches are each in an order of their own."""
    a_step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    train = rows.of_part(rows.train_part)
    if not rows.beside:
        return _order(train, rows.shares, config, a_step)
    ratings, pairs = (_order(sets, rows.shares, config, a_step // 2) for sets in (train, rows.beside))
    assert isinstance(pairs, PairOrder)
    return MixedOrder(ratings, pairs, args.train_batch_size, after=sum(map(len, train.values())))


def _order(
    sets: Mapping[str, Rows], shares: Mapping[str, float], config: TrainingConfig, batch_size: int
) -> EpochOrder | PairOrder:
    kinds = [_kinds(rows) for rows in sets.values()]
    if config.sampling == "pool":
        kinds = [[0] * len(own) for own in kinds]  # each pair once, whatever its kind
    counts = list(rows_per_epoch(_sizes(sets), shares).values())
    draw = partial(draw_shares, kinds, counts) if len(sets) > 1 else None
    given = [rows.pair_lengths() if isinstance(rows, CaptionPairs) else rows.lengths() for rows in sets.values()]
    known = [own for own in given if own is not None]  # the scenes' are not known before they are drawn
    lengths = [length for own in known for length in own] if config.group_by_length and known == given else None
    if any(isinstance(rows, CaptionPairs) for rows in sets.values()):
        return PairOrder([kind for own in kinds for kind in own], lengths, batch_size, config.seed, sum(counts), draw)
    return EpochOrder(lengths, sum(counts), batch_size, config.seed, draw)


def _kinds(rows: Rows) -> Sequence[int]:
    """The kind of error of each pair; ratings are all of one kind."""
    return rows.kinds if isinstance(rows, CaptionPairs) else [0] * len(rows)


def _sizes(sets: Mapping[str, Rows]) -> dict[str, int]:
    return {source: len(_kinds(rows)) for source, rows in sets.items()}
