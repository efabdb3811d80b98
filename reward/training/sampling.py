"""The order of the training rows: shuffled, balanced, in batches of similar length, given by seed and epoch alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from torch.utils.data import Sampler

# Rows are sorted by length within blocks of this many batches: long enough to save padding, short enough to mix.
_BLOCK = 50


def length_grouped_order(lengths: Sequence[int], batch_size: int, seed: str) -> list[int]:
    """A random order in which each `batch_size` neighbours have similar lengths.

    The sampler of transformers orders each block from long to short. Here the batches are shuffled again: length and
    quality of a caption are correlated, and the ratings would otherwise drift during training.

    Args:
        lengths: N lengths.
        batch_size: rows per batch.
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
    order: list[int] = []
    for batch in full:
        order += batch
    return order + rest


@dataclass(eq=False)
class EpochOrder(Sampler[int]):
    """Sampler whose order depends only on seed and `epoch`, so that a resumed run sees what an unbroken one sees.

    Args:
        lengths: lengths of all judgements or pairs, or None to shuffle without regard to them.
        count: number of them in an epoch.
        batch_size: how many make one optimizer step over all processes; they get similar lengths.
        seed: the run's seed.
        draw: gives those of an epoch, from a text that names seed and epoch; None takes the first `count`.
        step: rows of each, which come one after the other: 1 of a judgement, 2 of a pair, whose two captions are then
            in one batch of an even number of rows.
    """

    lengths: Sequence[int] | None
    count: int
    batch_size: int
    seed: int
    draw: Callable[[str], Sequence[int]] | None = None
    step: int = 1
    epoch: int = field(default=0, init=False)  # set by the trainer

    def __len__(self) -> int:
        return self.step * self.count

    def __iter__(self) -> Iterator[int]:
        seed = f"{self.seed} {self.epoch}"
        drawn = range(self.count) if self.draw is None else self.draw(seed)
        lengths = [0] * len(drawn)
        if self.lengths is not None:
            lengths = [self.lengths[item] for item in drawn]
        rows: list[int] = []
        for index in length_grouped_order(lengths, self.batch_size, f"order {seed}"):
            first = self.step * drawn[index]
            rows += range(first, first + self.step)
        return iter(rows)


def balanced_draw(kinds: Sequence[int], seed: str) -> list[int]:
    """Indices of `kinds`, each kind equally often.

    Those of a rare kind are repeated, each once before any is used twice; some of a frequent kind are left out.

    Args:
        kinds: N numbers.
        seed: equal seeds give equal draws.

    Returns:
        N indices, in random order; the numbers of indices of two kinds differ by at most one.

    Example:
        >>> sorted(balanced_draw([5, 5, 5, 7], "0"))[2:]
        [3, 3]
    """
    rng = random.Random(seed)
    indices: dict[int, list[int]] = {}
    for index, kind in enumerate(kinds):
        indices.setdefault(kind, []).append(index)
    if not indices:
        return []
    share, rest = divmod(len(kinds), len(indices))
    with_one_more = rng.sample(sorted(indices), rest)
    drawn: list[int] = []
    for kind in sorted(indices):
        missing = share + (kind in with_one_more)
        while missing > 0:
            drawn += rng.sample(indices[kind], min(missing, len(indices[kind])))
            missing -= len(indices[kind])
    rng.shuffle(drawn)
    return drawn
