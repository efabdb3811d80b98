"""The rows that a run is trained and evaluated on, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from reward.errors import DataError
from reward.metrics.base import MetricSpec
from reward.training.caption_pairs import CaptionPairs, ScenePairs, make_pairs
from reward.training.config import PAIR_LOSSES, TrainingConfig
from reward.training.judgements import Judgements, check_ratings, make_judgements
from reward.training.sampling import EpochOrder, balanced_draw
from reward.training.splits import TRAIN, VALIDATION, load_splits, scene_parts

if TYPE_CHECKING:
    from transformers import TrainingArguments


TrainingRows: TypeAlias = Judgements | CaptionPairs


def load_rows(spec: MetricSpec, data: Sequence[str], config: TrainingConfig) -> dict[str, TrainingRows]:
    """Loads the rows for a configuration, {part: rows}: `train`, `val`, and those of `test_parts` that are there.

    Args:
        spec: facts of the metric.
        data: data sets as `train` takes them, whose rows are taken together; `config.data` and `config.pairs` take
            precedence.
        config: settings.
    """
    parts = dict.fromkeys((TRAIN, VALIDATION, *config.test_parts))
    is_pairs = config.loss in PAIR_LOSSES
    names = (config.pairs if is_pairs else config.data) or data
    if is_pairs and "scenes" in names:
        if len(names) > 1:
            raise DataError("pairs of the scenes are drawn anew each epoch, and cannot stand beside other pairs")
        sizes = scene_parts(config)
        return {part: ScenePairs(part, sizes[part], config) for part in parts if part in sizes}
    sets = {name: load_splits(name, config) for name in names}
    if len(sets) > 1:  # messages name the split and the data set
        for name, splits in sets.items():
            sets[name] = {part: replace(split, name=f"{part} of {name}") for part, split in splits.items()}
    rows: dict[str, TrainingRows] = {}
    for part in parts:
        rows_of_part = make_pairs(sets, part, config) if is_pairs else make_judgements(sets, part, spec, config)
        if rows_of_part is not None:
            rows[part] = rows_of_part
    if not is_pairs:
        check_ratings(rows, spec)
    return rows


def make_order(rows: TrainingRows, config: TrainingConfig, args: TrainingArguments) -> EpochOrder:
    """The order of the rows in training."""
    draw = None
    if isinstance(rows, CaptionPairs):
        kinds = rows.kinds
        if config.sampling == "pool":  # each pair comes once, whatever its kind
            kinds = [0] * len(rows.kinds)
        draw = partial(_draw_pairs, kinds)
    batch_size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size // rows.step
    # The lengths of the scenes' pairs are None: not known before they are drawn.
    return EpochOrder(rows.lengths(), len(rows.kinds), batch_size, config.seed, draw, rows.step)


def _draw_pairs(kinds: Sequence[int], seed: str) -> list[int]:
    return balanced_draw(kinds, f"pairs {seed}")
