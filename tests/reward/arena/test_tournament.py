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


def test_draws_depend_on_the_seed_and_on_nothing_else():
    assert draw_pairs(9, 12, "a") == draw_pairs(9, 12, "a")
    assert draw_pairs(9, 12, "a") != draw_pairs(9, 12, "b")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        draw_pairs(3, 0, 0)


def test_nobody_is_shown_first_more_often_than_others():
    firsts = Counter(first for first, _ in draw_pairs(9, 36, 0))
    assert set(firsts.values()) == {4}


def results(players):
    pair = st.tuples(st.integers(0, players - 1), st.integers(0, players - 1)).filter(lambda p: p[0] != p[1])
    return st.lists(st.tuples(pair, st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1, max_size=12).map(
        lambda games: [(i, j, points) for (i, j), points in games]
    )


@settings(deadline=None, max_examples=60)
@given(results(5))
def test_exchanging_players_and_points_changes_nothing(games):
    exchanged = [(second, first, 1 - points) for first, second, points in games]
    for rate in (win_rates, bradley_terry):
        np.testing.assert_allclose(rate(5, games), rate(5, exchanged), atol=1e-8)


@settings(deadline=None, max_examples=60)
@given(results(5))
def test_points_that_are_turned_round_turn_the_ratings(games):
    turned = [(first, second, 1 - points) for first, second, points in games]
    for rate in (win_rates, bradley_terry):
        np.testing.assert_allclose(rate(5, games), 1 - rate(5, turned), atol=1e-6)
        assert np.nanmin(rate(5, games)) >= 0
        assert np.nanmax(rate(5, games)) <= 1


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
    expected = 1 / (1 + np.exp(-best))
    played = {player for i, j, _ in games for player in (i, j)}
    found = bradley_terry(4, games)
    for player in range(4):
        if player in played:
            assert found[player] == pytest.approx(expected[player], abs=1e-5)
        else:
            assert np.isnan(found[player])


def test_bradley_terry_knows_whom_a_player_met():
    # 0 beats 1 beats 2 beats 3: player 1 and player 2 both won half, but 1 lost to the stronger one
    games = [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0)]
    assert win_rates(4, games)[1] == win_rates(4, games)[2]
    strengths = bradley_terry(4, games)
    assert list(np.argsort(-strengths)) == [0, 1, 2, 3]


def test_nobody_plays():
    assert np.isnan(win_rates(2, [])).all()
    assert np.isnan(bradley_terry(2, [])).all()
    assert len(bradley_terry(0, [])) == 0
