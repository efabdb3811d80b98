"""Order of the training rows: shuffled, in batches of similar length, a function of seed and epoch alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from torch.utils.data import Sampler

__all__ = ["EpochOrder", "length_grouped_order"]

# Rows are sorted by length within blocks of this many batches: long enough to save padding, short enough to mix.
_BLOCK = 50


def length_grouped_order(lengths: Sequence[int], batch_size: int, seed: str) -> list[int]:
    """A random order in which each `batch_size` neighbours have similar lengths.

    transformers' own sampler runs through each block from long to short; here the batches are shuffled again, since
    length and quality of a caption go together and the model would otherwise see drifting ratings.

    Args:
        lengths: N lengths.
        batch_size: rows a batch.
        seed: equal seeds give equal orders.

    Returns:
        A permutation of range(N); an incomplete batch comes last.

    Example:
        >>> sorted(length_grouped_order([3, 1, 2], 2, "0"))
        [0, 1, 2]
    """
    rng = random.Random(seed)
    rows = list(range(len(lengths)))
    rng.shuffle(rows)
    full: list[list[int]] = []
    rest: list[int] = []
    for start in range(0, len(rows), _BLOCK * batch_size):
        block = sorted(rows[start : start + _BLOCK * batch_size], key=lambda row: lengths[row])
        for first in range(0, len(block), batch_size):
            batch = block[first : first + batch_size]
            if len(batch) == batch_size:
                full.append(batch)
            else:
                rest = batch
    rng.shuffle(full)
    return [row for batch in full for row in batch] + rest


class EpochOrder(Sampler[int]):
    """Sampler whose order depends on seed and `epoch` alone, so that a resumed run sees what an unbroken one sees.

    Args:
        lengths: N lengths, or None to shuffle without regard to them.
        count: number of rows N.
        batch_size: rows of one optimizer step over all processes, which therefore share one length.
        seed: the run's seed.
    """

    def __init__(self, lengths: Sequence[int] | None, count: int, batch_size: int, seed: int) -> None:
        self._lengths = lengths if lengths is not None else [0] * count
        self._batch_size = batch_size
        self._seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(length_grouped_order(self._lengths, self._batch_size, f"order {self._seed} {self.epoch}"))
