"""Elo ratings as CapArena has them: the median over many random orders of the battles."""

from __future__ import annotations

import math

import numpy as np

from reward.metaeval.arena.table import Arena

__all__ = ["BASE", "SCALE", "START", "K", "resampled_elo"]

K, SCALE, BASE, START = 4.0, 400.0, 10.0, 1000.0


def resampled_elo(arena: Arena, points: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """Elo ratings after the battles of each bootstrap resample, which come one after the other in the order drawn.

    A battle moves points between its two models: K (what the first one won - what its rating let expect), where a
    lead of SCALE points lets expect BASE times the other's chance. All start at START. The end depends on the order,
    hence the resamples.

    Args:
        arena: N battles of M models.
        points: (N,), see `Arena`; NaN is left out.
        resamples: number R; N battles are drawn for each, with replacement, as in CapArena.
        seed: of the draws.

    Returns:
        (R, M).

    Source: Elo, "The rating of chessplayers", 1978; the numbers are CapArena's.

    Example:
        >>> arena = Arena.of([("1.jpg", "x", "y", "")])
        >>> resampled_elo(arena, np.array([1.0]), resamples=1).tolist()
        [[1002.0, 998.0]]
    """
    decided = ~np.isnan(points)
    pairs, won = arena.pairs[decided], points[decided]
    draws = np.random.default_rng(seed).integers(len(won), size=(len(won), resamples))
    count = len(arena.systems)
    ratings = np.full(resamples * count, START)  # flat, because this loop is long: one row after the other
    rows = np.arange(resamples) * count
    rate = math.log(BASE) / SCALE
    for battle in draws:
        first, second = rows + pairs[battle, 0], rows + pairs[battle, 1]
        ahead, behind = ratings[first], ratings[second]
        change = K * (won[battle] - 1 / (1 + np.exp(rate * (behind - ahead))))
        ratings[first] = ahead + change
        ratings[second] = behind - change
    return ratings.reshape(resamples, count)
