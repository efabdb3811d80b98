"""Ranking candidates by their rewards: best first, ties by first index, candidates without a reward last."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["best_of_groups", "rank"]


def rank(rewards: Sequence[float | None]) -> list[int]:
    """Indices of the rewards, best first.

    Equal rewards keep their order; None and NaN come last, in their order, so that a candidate that could not be scored
    loses to every one that could.

    Args:
        rewards: N numbers, or None where there is none; larger is better.

    Example:
        >>> rank([0.2, None, 0.9, 0.9])
        [2, 3, 0, 1]
    """
    return sorted(range(len(rewards)), key=lambda index: _descending(rewards[index]))


def best_of_groups(rewards: Sequence[float | None], group_size: int, k: int = 1) -> list[int]:
    """Indices of the k best of each group of consecutive rewards, group by group, best first.

    Args:
        rewards: G * group_size numbers or None, the candidates of one image side by side.
        group_size: candidates of one image.
        k: how many to choose, at most group_size.

    Returns:
        G * k indices into `rewards`.

    Raises:
        ValueError: sizes do not fit.

    Example:
        >>> best_of_groups([0.1, 0.7, 0.3, 0.5, None, 0.2], group_size=3, k=2)
        [1, 2, 3, 5]
    """
    if group_size < 1 or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards do not divide into groups of {group_size}")
    if not 1 <= k <= group_size:
        raise ValueError(f"k must lie between 1 and the group size {group_size}, got {k}")
    chosen = []
    for start in range(0, len(rewards), group_size):
        chosen += [start + index for index in rank(rewards[start : start + group_size])[:k]]
    return chosen


def _descending(reward: float | None) -> tuple[bool, float]:
    if reward is None or math.isnan(reward):
        return True, 0.0
    return False, -float(reward)
