"""Ratings on the scale of Elo, their ranges, what cannot be rated, weights of pairs."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from reward.errors import DataError
from reward.metaeval.arena.ratings import fit_strengths, rate_models
from reward.metaeval.arena.result import battle_table
from reward.metaeval.arena.voters import Voter
from tests.reward.metaeval.arena.made_arenas import draw_arena, table_of

WINS = st.sampled_from([0.5, 1, 2, 3.5, 7, 40])
TABLES = st.integers(2, 6).flatmap(lambda n: st.lists(st.lists(WINS, min_size=n, max_size=n), min_size=n, max_size=n))


def fit(wins: Any) -> np.ndarray:
    """Strengths of a table of wins: each cell is a battle that counts so often."""
    table = np.array(wins, dtype=float)
    pairs = np.argwhere(~np.eye(len(table), dtype=bool))
    return fit_strengths(pairs, np.ones(len(pairs)), table[tuple(pairs.T)][None], len(table))[0]


@settings(max_examples=25, deadline=None)
@given(TABLES)
def test_strengths_are_what_a_general_optimiser_finds(table: list[list[float]]) -> None:
    wins = np.array(table) * ~np.eye(len(table), dtype=bool)

    def loss(strengths: np.ndarray) -> float:
        return float((wins * np.log1p(np.exp(strengths[None, :] - strengths[:, None]))).sum())

    other = minimize(loss, np.zeros(len(wins)), method="BFGS", options={"gtol": 1e-8}).x
    assert fit(wins) == pytest.approx(other - other.mean(), abs=1e-4)
    assert fit(wins.T) == pytest.approx(-fit(wins), abs=1e-7)


def test_extreme_tables_converge() -> None:
    wins = np.array([[0, 5000, 1e5], [1, 0, 5000], [1, 1, 0.0]])
    strengths = fit(wins)
    gradient = wins.sum(axis=1) - ((wins + wins.T) / (1 + np.exp(strengths[None] - strengths[:, None]))).sum(axis=1)
    assert np.abs(gradient).max() < 1e-5


@pytest.mark.parametrize(
    ("wins", "expected"),
    [
        ([[0, 1, 1], [0, 0, 1], [0, 0, 0]], [np.inf, np.nan, -np.inf]),  # a ladder: nothing links two both ways
        ([[0, 3, 2], [0, 0, 1], [0, 1, 0]], [np.inf, 0, 0]),  # the first never lost a point
        # the last two met only each other and lost to nobody of the first two, who met only each other
        ([[0, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], [0, 0, np.nan, np.nan]),
        # won all its own battles, but over one that is below the others: no chain of points leads back
        ([[0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]], [0, 0, -np.inf, np.nan]),
    ],
)
def test_without_a_finite_maximum_ratings_are_infinite_or_none(wins: list[list[float]], expected: list[float]) -> None:
    np.testing.assert_allclose(fit(wins), expected, atol=1e-9)


@pytest.mark.slow
def test_ranges_are_those_of_resampled_battles() -> None:
    battles = table_of("xy " * 40, people=[1.0] * 28 + [0.5] * 4 + [0.0] * 8)
    row = rate_models(battles, "people", resamples=1000)["bradley-terry"].loc["x"]
    shares = np.random.default_rng(1).choice(battles["people"], size=(20_000, 40)).mean(axis=1)
    low, high = np.quantile(1000 + 200 * np.log10(shares / (1 - shares)), [0.025, 0.975])
    assert row["rating"] == pytest.approx(1000 + 200 * math.log10(3))
    assert (row["low"], row["high"]) == (pytest.approx(low, abs=12), pytest.approx(high, abs=12))
    assert (row["battles"], row["win_rate"]) == (40, 0.75)


def test_elo_is_what_a_plain_loop_gives() -> None:
    battles, points = draw_arena(np.random.default_rng(0).normal(size=4), 60, images=30, ties=0.4, seed=1)
    points[5] = np.nan
    decided = np.flatnonzero(~np.isnan(points))
    draws = np.random.default_rng(9).integers(len(decided), size=(len(decided), 3))
    found = []
    for column in range(3):
        ratings = dict.fromkeys((f"model {number}" for number in range(1, 5)), 1000.0)
        for battle in decided[draws[:, column]]:
            one, two = battles[battle]["source1"], battles[battle]["source2"]
            change = 4 * (points[battle] - 1 / (1 + 10 ** ((ratings[two] - ratings[one]) / 400)))
            ratings[one] += change
            ratings[two] -= change
        found.append(ratings)
    medians = {name: np.median([ratings[name] for ratings in found]) for name in found[0]}
    table = battle_table(battles, [Voter("people", points)])
    assert rate_models(table, "people", resamples=3, seed=9)["elo"]["rating"].to_dict() == pytest.approx(medians)


def test_a_model_that_won_everything_has_no_range_and_others_may_have_an_open_one() -> None:
    table = table_of("xy yz zy xz yz", people=[1.0, 1, 1, 1, 1])
    rows = rate_models(table, "people", resamples=200)["bradley-terry"]
    assert list(rows.index) == ["x", "y", "z"]
    assert rows["win_rate"].to_dict() == {"x": 1, "y": 0.5, "z": 0.25}
    assert rows["rating"].tolist()[0] == math.inf
    assert math.isnan(rows["low"]["x"])
    assert rows["high"]["y"] == math.inf  # in some resamples it won everything


def test_groups_that_never_met_are_named() -> None:
    with pytest.raises(DataError, match=r"these 2 groups of models.*x, y, v \| z, w"):
        rate_models(table_of("xy zw xv yz", people=[1, 0, 0.5, np.nan]), "people")
    with pytest.raises(DataError, match="none, since it has decided no battle"):
        rate_models(table_of("xy", people=[np.nan]), "people")


def test_weights_minimise_the_loss_of_caparena() -> None:
    """Section 3.2 of the paper: the sum of cross-entropies, each divided by the chance P of its pair."""
    battles, points = draw_arena([1.0, 0.2, -1.0], 90, images=60, ties=0.2, seed=1)
    keep = [n for n, each in enumerate(battles) if n % 4 == 0 or "model 3" in each.values()]
    battles, points = [battles[n] for n in keep], points[keep]
    sides = np.array([[int(each[name][-1]) - 1 for name in ("source1", "source2")] for each in battles])
    met = Counter(map(frozenset, sides.tolist()))
    chances = np.array([met[frozenset(pair)] / len(sides) for pair in sides.tolist()])

    def loss(strengths: np.ndarray) -> float:
        chance = 1 / (1 + np.exp(strengths[sides[:, 1]] - strengths[sides[:, 0]]))
        return float((-(points * np.log(chance) + (1 - points) * np.log(1 - chance)) / chances).sum())

    expected = minimize(loss, np.zeros(3), tol=1e-12).x
    tables = [battle_table(battles, [Voter("people", points)], pair_weights=weights) for weights in (True, False)]
    weighted, plain = (rate_models(table, "people", resamples=2)["bradley-terry"].sort_index() for table in tables)
    strengths = (weighted["rating"] - 1000) * math.log(10) / 400
    assert strengths.tolist() == pytest.approx((expected - expected.mean()).tolist(), abs=1e-4)
    assert not np.allclose(weighted["rating"], plain["rating"], atol=1)
    assert weighted["battles"].tolist() == plain["battles"].tolist()  # battles are counted, not weighed
