"""Correct and incorrect captions of images as training rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from torch.utils.data import Dataset as TorchDataset

from reward.errors import DataError
from reward.samples import CaptionSample
from reward.training.data import Judgement, load_parts, scene_parts
from reward.training.pair_sources import ContrastPair, PairSource, ScenePairs, make_table_pairs

if TYPE_CHECKING:
    from reward.training.config import TrainingConfig

__all__ = ["CaptionPairs", "load_pairs"]


class CaptionPairs(TorchDataset[Judgement]):
    """Captions of pairs, one per row: row 2k is pair k's correct caption, row 2k + 1 its incorrect one.

    A row's `aspect` is the kind of error of its pair, its `target` 1 or 0 for correct or not. What a row holds depends
    on `epoch` and its number alone.

    Args:
        source: gives the pairs.
    """

    step = 2  # rows of a pair

    def __init__(self, source: PairSource) -> None:
        self.epoch = 0
        self.categories = tuple(source.categories)
        self.kinds = source.kinds()
        self.left_out = source.left_out
        self._source = source
        self._rows: Sequence[int] = range(2 * len(self.kinds))
        self._last: tuple[tuple[int, int], ContrastPair] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, item: int) -> Judgement:
        number, wrong = divmod(self._rows[item], 2)
        key = (number, self.epoch)
        if self._last is None or self._last[0] != key:  # the two rows of a pair are mostly asked for in turn
            self._last = key, self._source.draw(*key)
        pair = self._last[1]
        sample = CaptionSample(pair.incorrect if wrong else pair.correct, pair.image)
        return {"sample": sample, "aspect": self.kinds[number], "target": 1.0 - wrong}

    def counts(self) -> dict[str, int]:
        """{category: number of pairs}."""
        counts = Counter(self.kinds)
        return {name: counts[kind] for kind, name in enumerate(self.categories)}

    def lengths(self) -> list[int] | None:
        """About how many characters the correct caption of each pair has (P,), or None where that is not known."""
        return self._source.lengths()

    def texts(self) -> list[str]:
        """Captions that a tokenizer may be trained on."""
        return self._source.texts()

    def sorted_by_length(self) -> CaptionPairs:
        """The same rows from short to long, so that batches taken in order need little padding."""
        ordered = CaptionPairs(self._source)
        lengths = self.lengths()
        if lengths is not None:
            ordered._rows = sorted(self._rows, key=lambda row: (lengths[row // 2], row))
        return ordered


def load_pairs(
    source: str | os.PathLike[str], config: TrainingConfig, *, validation: bool = True
) -> dict[str, CaptionPairs]:
    """Loads the parts of a data set of pairs.

    The scenes give new pairs in each epoch. In a data set, the part `train` is the split `train.pairs` or, without it,
    the split `train`; see `make_table_pairs` for its columns.

    Args:
        source: as for `reward.training.data.load_parts`.
        config: gives the categories, the names of the parts, seed, and numbers and seed of the scenes.
        validation: whether the part to stop by must be there.

    Returns:
        {part: pairs}: the parts to train on and to stop by, and those of `config.test_parts` that are there.

    Raises:
        DataError: the data set cannot be loaded, or lacks parts, columns, captions or categories.
    """
    names = (config.train_part, config.validation_part, *config.test_parts)
    if source == "scenes":
        sizes = scene_parts(config)
        sources = {part: ScenePairs(part, sizes[part], config) for part in names if part in sizes}
        _check_parts(source, config, sources, "scenes", validation)
        return {part: CaptionPairs(source) for part, source in sources.items()}
    splits, root = load_parts(source, config)
    tables = {part: f"{part}.pairs" if f"{part}.pairs" in splits else part for part in names}
    tables = {part: split for part, split in tables.items() if split in splits}
    _check_parts(source, config, tables, ", ".join(splits), validation)
    return {
        part: CaptionPairs(make_table_pairs(splits[split], split, config, root=root, fresh=part == config.train_part))
        for part, split in tables.items()
    }


def _check_parts(
    source: str | os.PathLike[str], config: TrainingConfig, parts: Container[str], names: str, validation: bool
) -> None:
    for part in (config.train_part, *[config.validation_part] * validation):
        if part not in parts:
            raise DataError(
                f"the data set of pairs {str(source)!r} has no part {part!r} (nor {part}.pairs); it has {names}"
            )
