"""Tournaments of bounded size: who meets whom, and what the results say about each player."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

import numpy as np

from reward.arena.strengths import chances_against_average

__all__ = ["Result", "bradley_terry", "draw_pairs", "win_rates"]

Result = tuple[int, int, float]  # two players, and what the first one won: 1 a win, 0.5 a tie, 0 a loss

_PRIOR = 1.0  # games of each player against an average one, half of them won: keeps strengths finite


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
    """Chance that each player beats an average one, by the Bradley-Terry model: (players,) in (0, 1).

    Unlike a win rate, it takes the strength of the opponents into account. A tie counts as half a win for both. Each
    player is given one more game with an average player, half of it won: without it, the strength of a player who won
    everything would be infinite. NaN for a player without a game.

    Example:
        >>> strengths = bradley_terry(3, [(0, 1, 1.0), (1, 2, 1.0)])
        >>> bool(strengths[0] > strengths[1] > strengths[2])
        True
    """
    wins = np.zeros((players, players))
    for first, second, points in results:
        wins[first, second] += points
        wins[second, first] += 1 - points
    played = (wins + wins.T).any(axis=1)
    return np.where(played, chances_against_average(wins[None], prior=_PRIOR)[0], np.nan)
