"""Bradley-Terry strengths against an independent optimiser, tables without a maximum, and fair tournaments."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from reward.metaeval.arena.ratings import bradley_terry_ratings
from reward.metaeval.arena.strengths import fit_strengths, win_tables
from reward.metaeval.arena.table import Arena
from reward.metaeval.arena.tournament import draw_pairs
from tests.reward.metaeval.arena.made_arenas import draw_arena

TABLES = st.integers(2, 6).flatmap(
    lambda count: st.lists(
        st.lists(st.sampled_from([0.5, 1, 2, 3.5, 7, 40]), min_size=count, max_size=count),
        min_size=count,
        max_size=count,
    )
)


def loss(strengths: np.ndarray, wins: np.ndarray) -> float:
    return float((wins * np.log1p(np.exp(strengths[None, :] - strengths[:, None]))).sum())


@settings(max_examples=25, deadline=None)
@given(TABLES)
def test_the_maximum_is_what_a_general_optimiser_finds(table: list[list[float]]) -> None:
    wins = np.array(table) * ~np.eye(len(table), dtype=bool)
    strengths = fit_strengths(wins[None])[0]
    other = minimize(loss, np.zeros(len(wins)), args=(wins,), method="BFGS", options={"gtol": 1e-8}).x
    assert strengths == pytest.approx(other - other.mean(), abs=1e-4)
    assert strengths.mean() == pytest.approx(0, abs=1e-9)
    assert fit_strengths(wins.T[None])[0] == pytest.approx(-strengths, abs=1e-7)


def test_extreme_tables_converge() -> None:
    wins = np.array([[0, 5000, 1e5], [1, 0, 5000], [1, 1, 0.0]])
    strengths = fit_strengths(wins[None])[0]
    gradient = wins.sum(axis=1) - ((wins + wins.T) / (1 + np.exp(strengths[None] - strengths[:, None]))).sum(axis=1)
    assert np.abs(gradient).max() < 1e-5


def test_many_tables_at_once_are_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    wins = rng.integers(0, 4, size=(50, 4, 4)) * ~np.eye(4, dtype=bool)  # some have no finite maximum
    one_by_one = np.concatenate([fit_strengths(table[None].astype(float)) for table in wins])
    assert not np.isfinite(one_by_one).all()
    np.testing.assert_allclose(fit_strengths(wins.astype(float)), one_by_one, atol=1e-7)


@pytest.mark.parametrize(
    ("wins", "expected"),
    [
        ([[0, 3], [0, 0]], [np.inf, -np.inf]),
        ([[0, 1, 1], [0, 0, 1], [0, 0, 0]], [np.inf, np.nan, -np.inf]),  # a ladder: nothing links two both ways
        ([[0, 3, 2], [0, 0, 1], [0, 1, 0]], [np.inf, 0, 0]),  # the first never lost a point
        ([[0, 1, 2], [1, 0, 2], [0, 0, 0]], [0, 0, -np.inf]),  # the last never won one
        # the last two met only each other and lost to nobody of the first two, who met only each other
        ([[0, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], [0, 0, np.nan, np.nan]),
        # won all its own battles, but over one that is below the others: no chain of points leads back
        ([[0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]], [0, 0, -np.inf, np.nan]),
    ],
)
def test_without_a_finite_maximum(wins: list[list[float]], expected: list[float]) -> None:
    np.testing.assert_allclose(fit_strengths(np.array([wins], dtype=float))[0], expected, atol=1e-9)
    finite = fit_strengths(np.array([wins], dtype=float), prior=1.0)[0]
    assert np.isfinite(finite).all()
    for one, first in enumerate(expected):
        for two, second in enumerate(expected):
            if first > second and np.isinf([first, second]).any():
                assert finite[one] > finite[two]


def test_weights_minimise_the_loss_of_caparena() -> None:
    """Section 3.2 of the paper: the sum of cross-entropies, each divided by the chance P of its pair."""
    arena, points = draw_arena([1.0, 0.2, -1.0], 90, images=60, ties=0.2, seed=1)
    keep = np.array([n % 4 == 0 or set(pair) != {0, 1} for n, pair in enumerate(arena.pairs.tolist())])
    arena, points = arena.rows(keep), points[keep]
    pairs = [frozenset(pair) for pair in arena.pairs.tolist()]
    chances = np.array([pairs.count(pair) / len(pairs) for pair in pairs])

    def loss(strengths: np.ndarray) -> float:
        first, second = strengths[arena.pairs].T
        chance = 1 / (1 + np.exp(second - first))
        return float((-(points * np.log(chance) + (1 - points) * np.log(1 - chance)) / chances).sum())

    expected = minimize(loss, np.zeros(3), tol=1e-12).x
    fitted = fit_strengths(win_tables(arena.weighted(), points))[0]
    assert fitted == pytest.approx(expected - expected.mean(), abs=1e-4)
    assert not np.allclose(fitted, fit_strengths(win_tables(arena, points))[0], atol=1e-3)
    ratings = bradley_terry_ratings(arena.weighted(), points)
    assert sum(ratings.battles.values()) == 2 * len(arena)  # battles are counted, not weighed
    alike = replace(arena, weights=np.ones(len(arena)))
    assert bradley_terry_ratings(alike, points) == bradley_terry_ratings(arena, points)


def test_win_tables_count_ties_half_and_leave_out_what_is_undecided() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("2", "y", "x", ""), ("3", "z", "x", ""), ("4", "x", "y", "")])
    points = np.array([1, 0.5, 0, np.nan])
    whole, first_thrice = win_tables(arena, points, np.array([[1, 1, 1, 1], [3, 0, 0, 5]]))
    assert whole.tolist() == [[0, 1.5, 1], [0.5, 0, 0], [0, 0, 0]]
    assert first_thrice.tolist() == [[0, 3, 0], [0, 0, 0], [0, 0, 0]]


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


@settings(deadline=None, max_examples=20)
@given(results(4))
def test_with_a_prior_it_is_the_maximum_of_the_penalised_likelihood(games):
    def loss(logits):
        # log of the sigmoid, written out by hand; every player also half wins against a player of strength 0
        terms = [
            points * np.logaddexp(0, logits[j] - logits[i]) + (1 - points) * np.logaddexp(0, logits[i] - logits[j])
            for i, j, points in games
        ]
        prior = 0.5 * (np.logaddexp(0, -logits) + np.logaddexp(0, logits))
        return sum(terms) + prior.sum()

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    wins = np.zeros((1, 4, 4))
    for i, j, points in games:
        wins[0, i, j] += points
        wins[0, j, i] += 1 - points
    assert fit_strengths(wins, prior=1.0)[0] == pytest.approx(best - best.mean(), abs=1e-4)
