"""The rows that a run is trained and evaluated on, and their order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset as TorchDataset

from reward.errors import DataError
from reward.metrics.base import MetricSpec
from reward.training.config import TrainingConfig
from reward.training.data import Judgements, load_parts, make_judgements
from reward.training.pairs import CaptionPairs, load_pairs
from reward.training.sampling import EpochOrder, MixedOrder, PairOrder

if TYPE_CHECKING:
    from transformers import TrainingArguments

__all__ = ["RatingsAndPairs", "TrainingRows", "load_rows", "make_order"]


class RatingsAndPairs(TorchDataset[Any]):
    """Rated rows, then rows of pairs."""

    def __init__(self, ratings: Judgements, pairs: CaptionPairs) -> None:
        self.ratings, self.pairs = ratings, pairs

    def __len__(self) -> int:
        return len(self.ratings) + len(self.pairs)

    def __getitem__(self, item: int) -> Any:
        after = item - len(self.ratings)
        return self.ratings[item] if after < 0 else self.pairs[after]

    @property
    def epoch(self) -> int:
        return self.ratings.epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self.ratings.epoch = self.pairs.epoch = value


@dataclass(frozen=True)
class TrainingRows:
    """The rows of a run.

    Args:
        train: rows to train on.
        parts: {part: rows}, of one kind: the part that is trained on, the one to stop by, and those to report.
    """

    train: Judgements | CaptionPairs | RatingsAndPairs
    parts: Mapping[str, Judgements | CaptionPairs]

    def counts(self) -> dict[str, dict[str, int]]:
        """{part: {kind of error: number of pairs}} of the parts that are pairs."""
        counts = {part: rows.counts() for part, rows in self.parts.items() if isinstance(rows, CaptionPairs)}
        if isinstance(self.train, RatingsAndPairs):
            counts["beside the ratings"] = self.train.pairs.counts()
        return counts


def load_rows(spec: MetricSpec, data: str | os.PathLike[str], config: TrainingConfig) -> TrainingRows:
    """Loads the rows for a configuration.

    Args:
        spec: facts of the metric.
        data: the data set given to `train`; `config.data` and `config.pairs` take precedence.
        config: settings.

    Raises:
        DataError: see `reward.training.data` and `reward.training.pairs`.
    """
    if config.loss == "bce":
        pairs = load_pairs(config.pairs or data, config)
        return TrainingRows(pairs[config.train_part], pairs)
    splits, root = load_parts(config.data or data, config)
    tests = [part for part in config.test_parts if any(name in splits for name in _splits_of(part, spec))]
    names = (config.train_part, config.validation_part, *tests)
    parts = {part: make_judgements(splits, part, spec, config, root=root) for part in names}
    train = parts[config.train_part]
    _check_ratings(spec, config, parts)
    if not config.pair_weight:
        return TrainingRows(train, parts)
    return TrainingRows(RatingsAndPairs(train, load_pairs(config.pairs or data, config)[config.train_part]), parts)


def _check_ratings(spec: MetricSpec, config: TrainingConfig, parts: Mapping[str, Judgements]) -> None:
    """Refuses ratings from which nothing can be learned; training itself would not notice."""
    train = parts[config.train_part]
    unrated = [aspect for place, aspect in enumerate(spec.aspects) if place not in train.aspects()]
    if unrated:
        raise DataError(
            f"the part {config.train_part!r} does not rate {', '.join(unrated)}, so their scores would not be "
            f"trained; train only the rated aspects with model.aspects: "
            f"[{', '.join(spec.aspects[place] for place in sorted(train.aspects()))}]"
        )
    uses = {
        config.train_part: "nothing can be learned from it",
        config.validation_part: "it cannot tell which step is best",
    }
    for part, reason in uses.items():
        if len(parts[part]) > 1 and all(len(ratings) == 1 for ratings in parts[part].ratings().values()):
            raise DataError(f"all ratings of the part {part!r} are equal, so {reason}")


def _splits_of(part: str, spec: MetricSpec) -> list[str]:
    return [part, *(f"{part}.{name}" for name in (*spec.aspects, *spec.aliases))]


def make_order(
    rows: Judgements | CaptionPairs | RatingsAndPairs, config: TrainingConfig, args: TrainingArguments
) -> EpochOrder | PairOrder | MixedOrder:
    """The order of the rows in training; the two halves of mixed batches are each in an order of their own."""
    a_step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size

    def of_ratings(ratings: Judgements, batch_size: int) -> EpochOrder:
        lengths = ratings.lengths() if config.group_by_length else None
        return EpochOrder(lengths, len(ratings), batch_size, config.seed)

    def of_pairs(pairs: CaptionPairs, batch_size: int) -> PairOrder:
        lengths = pairs.pair_lengths() if config.group_by_length else None
        return PairOrder(pairs.kinds, lengths, batch_size, config.seed)

    if isinstance(rows, CaptionPairs):
        return of_pairs(rows, a_step)
    if isinstance(rows, Judgements):
        return of_ratings(rows, a_step)
    half = a_step // 2
    return MixedOrder(of_ratings(rows.ratings, half), of_pairs(rows.pairs, half), args.train_batch_size)
