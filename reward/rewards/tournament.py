"""Tournaments of bounded size: which players meet, and what each of them wins."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

import numpy as np

Result = tuple[int, int, float]  # two players, and what the first one won: 1 a win, 0.5 a tie, 0 a loss


def draw_pairs(players: int, limit: int, seed: int | str) -> list[tuple[int, int]]:
    """Draws who plays whom: all pairs if the limit allows, else as many as it allows, spread evenly.

    The players are put on a circle at random. They meet their neighbours first, then the players two places on, and so
    on. So `players / 2` games suffice for everybody to play, and `players - 1` to link everybody. The numbers of games
    of two players differ by at most 2, and nobody is first in a pair more often than others.

    Args:
        players: how many, at least 0.
        limit: most pairs, at least 1.
        seed: of the draw.

    Returns:
        Different pairs (i, j) of different players; each i, j in 0..players-1.

    Example:
        >>> len(draw_pairs(8, 10, seed=0)), len(draw_pairs(4, 10, seed=0))
        (10, 6)
    """
    circle = list(range(players))
    random.Random(seed).shuffle(circle)
    return [(circle[i], circle[j]) for i, j in islice(_around(players), limit)]


def _around(players: int) -> list[tuple[int, int]]:
    """All pairs of places on a circle, the nearest first; at each distance, pairs that share no player come first."""
    pairs: list[tuple[int, int]] = []
    for distance in range(1, players // 2 + 1):
        starts = range(players if 2 * distance != players else distance)
        # blocks of `distance` starts in turn: within the even blocks, no player is in two pairs
        ordered = sorted(starts, key=lambda start: (start // distance % 2, start))
        pairs += [(start, (start + distance) % players) for start in ordered]
    return pairs


def win_rates(players: int, results: Sequence[Result]) -> np.ndarray:
    """Mean of the points of each player, (players,) in [0, 1]; NaN for a player without a game.

    Example:
        >>> win_rates(3, [(0, 1, 1.0), (1, 2, 0.5)])
        array([1.  , 0.25, 0.5 ])
    """
    won, games = np.zeros(players), np.zeros(players)
    for first, second, points in results:
        won[[first, second]] += points, 1 - points
        games[[first, second]] += 1
    return np.divide(won, games, out=np.full(players, np.nan), where=games > 0)
