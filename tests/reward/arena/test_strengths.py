"""Bradley-Terry strengths: the maximum by another method, many tables at once, and tables without a maximum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from reward.arena.strengths import fit_strengths, information_matrix, win_tables
from reward.arena.table import Arena
from reward.arena.tournament import bradley_terry

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
    found = fit_strengths(wins[None])[0]
    other = minimize(loss, np.zeros(len(wins)), args=(wins,), method="BFGS", options={"gtol": 1e-8}).x
    assert found == pytest.approx(other - other.mean(), abs=1e-4)
    assert found.mean() == pytest.approx(0, abs=1e-9)
    assert fit_strengths(wins.T[None])[0] == pytest.approx(-found, abs=1e-7)


def test_extreme_tables_converge() -> None:
    wins = np.array([[0, 5000, 1e5], [1, 0, 5000], [1, 1, 0.0]])
    found = fit_strengths(wins[None])[0]
    gradient = wins.sum(axis=1) - ((wins + wins.T) / (1 + np.exp(found[None] - found[:, None]))).sum(axis=1)
    assert np.abs(gradient).max() < 1e-5


def test_many_tables_at_once_are_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    wins = rng.integers(0, 4, size=(50, 4, 4)) * ~np.eye(4, dtype=bool)  # some have no finite maximum
    one_by_one = np.concatenate([fit_strengths(table[None].astype(float)) for table in wins])
    assert not np.isfinite(one_by_one).all()
    np.testing.assert_allclose(fit_strengths(wins.astype(float)), one_by_one, atol=1e-7)


def test_with_a_prior_it_is_the_tournament_of_rewards() -> None:
    rng = np.random.default_rng(1)
    results = [
        (int(a), int(b), float(p))
        for a, b, p in zip(*rng.permuted(np.tile(np.arange(5), (2, 1)), axis=1), [1, 0.5, 0, 1, 1], strict=True)
        if a != b
    ]
    wins = np.zeros((5, 5))
    for first, second, won in results:
        wins[first, second] += won
        wins[second, first] += 1 - won
    chances = bradley_terry(5, results)
    there = ~np.isnan(chances)
    expected = np.log(chances[there] / (1 - chances[there]))
    found = fit_strengths(wins[None], prior=1.0)[0][there]
    assert found - found.mean() == pytest.approx(expected - expected.mean(), abs=1e-6)


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


def test_information_is_the_second_derivative() -> None:
    rng = np.random.default_rng(2)
    wins = rng.integers(1, 9, size=(4, 4)) * ~np.eye(4, dtype=bool)
    at, step = rng.normal(size=4), 1e-4
    shifts = step * np.eye(4)
    numeric = np.array(
        [
            [
                (loss(at + a + b, wins) - loss(at + a - b, wins) - loss(at - a + b, wins) + loss(at - a - b, wins))
                / (4 * step**2)
                for b in shifts
            ]
            for a in shifts
        ]
    )
    assert information_matrix(wins + wins.T, at) == pytest.approx(numeric, abs=1e-4)
    assert information_matrix(wins + wins.T, at).sum(axis=1) == pytest.approx(0, abs=1e-9)


def test_win_tables_count_ties_half_and_leave_out_what_is_undecided() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("2", "y", "x", ""), ("3", "z", "x", ""), ("4", "x", "y", "")])
    points = np.array([1, 0.5, 0, np.nan])
    whole, first_thrice = win_tables(arena, points, np.array([[1, 1, 1, 1], [3, 0, 0, 5]]))
    assert whole.tolist() == [[0, 1.5, 1], [0.5, 0, 0], [0, 0, 0]]
    assert first_thrice.tolist() == [[0, 3, 0], [0, 0, 0], [0, 0, 0]]
