"""Who plays whom in a tournament: bounded, even and linked draws."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.rewards.tournament import draw_pairs


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 24), st.integers(1, 300), st.integers(0, 5))
def test_draws_are_bounded_even_and_linked(players: int, limit: int, seed: int) -> None:
    pairs = draw_pairs(players, limit, seed)
    everybody = players * (players - 1) // 2
    assert len(pairs) == min(limit, everybody)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert all(0 <= i < players and 0 <= j < players and i != j for i, j in pairs)
    games = Counter(player for pair in pairs for player in pair)
    counts = [games[player] for player in range(players)]
    if players:
        assert max(counts) - min(counts) <= 2
    if players > 1 and limit >= (players + 1) // 2:
        assert min(counts) >= 1
    if players > 1 and limit >= players - 1:
        met = {pairs[0][0]}
        for _ in range(players):
            met |= {player for pair in pairs if met & set(pair) for player in pair}
        assert len(met) == players


def test_draws_depend_on_the_seed_alone_and_show_nobody_first_more_often_than_others() -> None:
    assert draw_pairs(9, 12, "a") == draw_pairs(9, 12, "a") != draw_pairs(9, 12, "b")
    assert set(Counter(first for first, _ in draw_pairs(9, 36, 0)).values()) == {4}
    with pytest.raises(ValueError, match="at least 1, got 0"):
        draw_pairs(3, 0, 0)
