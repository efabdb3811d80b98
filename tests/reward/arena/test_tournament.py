"""Tournaments: fair draws within the limit, win rates, Bradley-Terry against an independent optimiser."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from reward.arena.tournament import bradley_terry, draw_pairs, win_rates


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 24), st.integers(1, 300), st.integers(0, 5))
def test_draws_are_bounded_even_and_linked(players, limit, seed):
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


def test_draws_depend_on_the_seed_alone_and_show_nobody_first_more_often_than_others():
    assert draw_pairs(9, 12, "a") == draw_pairs(9, 12, "a") != draw_pairs(9, 12, "b")
    assert set(Counter(first for first, _ in draw_pairs(9, 36, 0)).values()) == {4}
    with pytest.raises(ValueError, match="at least 1, got 0"):
        draw_pairs(3, 0, 0)


def results(players):
    pair = st.tuples(st.integers(0, players - 1), st.integers(0, players - 1)).filter(lambda p: p[0] != p[1])
    return st.lists(st.tuples(pair, st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=12).map(
        lambda games: [(i, j, points) for (i, j), points in games]
    )


@settings(deadline=None, max_examples=60)
@given(results(5))
def test_turned_players_and_points_change_nothing_and_turned_points_turn_the_ratings(games):
    exchanged = [(second, first, 1 - points) for first, second, points in games]
    turned = [(first, second, 1 - points) for first, second, points in games]
    for rate in (win_rates, bradley_terry):
        rates = rate(5, games)
        np.testing.assert_allclose(rates, rate(5, exchanged), atol=1e-8)
        np.testing.assert_allclose(rates, 1 - rate(5, turned), atol=1e-6)
        assert 0 <= np.nanmin(rates) <= np.nanmax(rates) <= 1


@settings(deadline=None, max_examples=20)
@given(results(4))
def test_bradley_terry_is_the_maximum_of_the_penalised_likelihood(games):
    def loss(logits):
        # log of the sigmoid, written out by hand; every player also half wins against a player of strength 0
        terms = [
            points * np.logaddexp(0, logits[j] - logits[i]) + (1 - points) * np.logaddexp(0, logits[i] - logits[j])
            for i, j, points in games
        ]
        prior = 0.5 * (np.logaddexp(0, -logits) + np.logaddexp(0, logits))
        return sum(terms) + prior.sum()

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    played = {player for i, j, _ in games for player in (i, j)}
    expected = [1 / (1 + np.exp(-best[player])) if player in played else np.nan for player in range(4)]
    assert bradley_terry(4, games) == pytest.approx(expected, abs=1e-5, nan_ok=True)


def test_nobody_plays():
    assert np.isnan(win_rates(2, [])).all()
    assert np.isnan(bradley_terry(2, [])).all()
    assert len(bradley_terry(0, [])) == 0
