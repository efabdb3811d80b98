"""Tournaments of bounded size: who meets whom, and what the results say about each player."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

import numpy as np

__all__ = ["Result", "bradley_terry", "draw_pairs", "win_rates"]

Result = tuple[int, int, float]  # two players, and what the first one won: 1 a win, 0.5 a tie, 0 a loss

_PRIOR = 1.0  # games of each player against an average one, half of them won: keeps strengths finite
_STEPS, _TOLERANCE = 1000, 1e-10


def draw_pairs(players: int, limit: int, seed: int | str) -> list[tuple[int, int]]:
    """Who meets whom: everybody everybody else if the limit allows, else as evenly as can be.

    The players are drawn into a circle, and meet their neighbours first, then those two places on, and so on. So every
    player meets somebody with `players / 2` games, all are linked by `players - 1`, the numbers of games of two players
    differ by at most 2, and nobody comes first in his pairs more often than others.

    Args:
        players: how many, at least 0.
        limit: most pairs, at least 1.
        seed: of the draw.

    Returns:
        Different pairs (i, j) of different players; each i, j in 0..players-1.

    Raises:
        ValueError: the limit is below 1.

    Example:
        >>> len(draw_pairs(8, 10, seed=0)), len(draw_pairs(4, 10, seed=0))
        (10, 6)
    """
    if limit < 1:
        raise ValueError(f"the limit of comparisons must be at least 1, got {limit}")
    circle = list(range(players))
    random.Random(seed).shuffle(circle)
    return [(circle[i], circle[j]) for i, j in islice(_around(players), limit)]


def _around(players: int) -> list[tuple[int, int]]:
    """All pairs of places on a circle, near ones first; of each distance, first pairs that share no player."""
    pairs: list[tuple[int, int]] = []
    for distance in range(1, players // 2 + 1):
        starts = range(players if 2 * distance != players else distance)
        # blocks of `distance` starts in turn: within the even blocks, nobody is in two pairs
        ordered = sorted(starts, key=lambda start: (start // distance % 2, start))
        pairs += [(start, (start + distance) % players) for start in ordered]
    return pairs


def win_rates(players: int, results: Sequence[Result]) -> np.ndarray:
    """Mean of what each player won, (players,) in [0, 1]; NaN for who had no game.

    Example:
        >>> win_rates(3, [(0, 1, 1.0), (1, 2, 0.5)])
        array([1.  , 0.25, 0.5 ])
    """
    won, games = np.zeros(players), np.zeros(players)
    for first, second, points in results:
        won[[first, second]] += points, 1 - points
        games[[first, second]] += 1
    return np.divide(won, games, out=np.full(players, np.nan), where=games > 0)


def bradley_terry(players: int, results: Sequence[Result]) -> np.ndarray:
    """How likely each player beats an average one of these, by the Bradley-Terry model: (players,) in (0, 1).

    Unlike win rates it takes into account whom a player met. Strengths are those of maximum likelihood, where a tie is
    half a win for both, after one more game of each player with an average one, half of it won: without it the
    strength of a player who won everything would be infinite. NaN for who had no game.

    Source: Hunter, "MM algorithms for generalized Bradley-Terry models", 2004, for the iteration.

    Example:
        >>> strengths = bradley_terry(3, [(0, 1, 1.0), (1, 2, 1.0)])
        >>> bool(strengths[0] > strengths[1] > strengths[2])
        True
    """
    met = np.zeros((players, players))
    won = np.full(players, _PRIOR / 2)
    for first, second, points in results:
        met[first, second] += 1
        met[second, first] += 1
        won[[first, second]] += points, 1 - points
    strength = np.ones(players)  # relative to the average player of the prior, whose strength is 1
    for _ in range(_STEPS):
        expected = (met / (strength[:, None] + strength)).sum(axis=1) + _PRIOR / (strength + 1)
        new = won / expected
        done = np.abs(np.log(new / strength)).max(initial=0) < _TOLERANCE
        strength = new
        if done:
            break
    return np.where(met.any(axis=1), strength / (strength + 1), np.nan)
