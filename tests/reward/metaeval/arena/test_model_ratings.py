"""Ratings on the scale of Elo, their ranges, what cannot be rated, weights of pairs, rankings that are compared."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import minimize

from reward.errors import DataError
from reward.metaeval.arena import Voter
from reward.metaeval.arena.model_ratings import fit_strengths, rank_correlations, rate_models
from reward.metaeval.arena.result import battle_table
from tests.reward.metaeval.arena.made_arenas import draw_arena, table_of


def fit(wins):
    """Strengths of a table of wins: each cell is a battle that counts so often."""
    table = np.array(wins, dtype=float)
    pairs = np.argwhere(~np.eye(len(table), dtype=bool))
    return fit_strengths(pairs, np.ones(len(pairs)), table[tuple(pairs.T)][None], len(table))[0]


def test_extreme_tables_converge():
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
def test_without_a_finite_maximum_ratings_are_infinite_or_none(wins, expected):
    np.testing.assert_allclose(fit(wins), expected, atol=1e-9)


def test_elo_is_what_a_plain_loop_gives():
    battles, points = draw_arena(np.random.default_rng(0).normal(size=4), 60, images=30, ties=0.4, seed=1)
    points[5] = np.nan
    decided = np.flatnonzero(~np.isnan(points))
    draws = np.random.default_rng(9).integers(len(decided), size=(len(decided), 3))
    ratings = np.full((5, 3), 1000.0)
    for turn, draw in np.ndindex(draws.shape):
        battle = decided[draws[turn, draw]]
        one, two = (int(battles[battle][source][-1]) for source in ("source1", "source2"))
        expected = 1 / (1 + 10 ** ((ratings[two, draw] - ratings[one, draw]) / 400))
        ratings[one, draw] += 4 * (points[battle] - expected)
        ratings[two, draw] -= 4 * (points[battle] - expected)
    elo = rate_models(battle_table(battles, [Voter("people", points)]), "people", resamples=3, seed=9)["elo"]
    assert elo["rating"].sort_index().tolist() == pytest.approx(np.median(ratings[1:], axis=1).tolist())


def test_a_model_that_won_everything_has_no_range_and_others_may_have_an_open_one():
    rows = rate_models(table_of("xy yz zy xz yz", people=[1.0] * 5), "people", resamples=200)["bradley-terry"]
    assert rows["win_rate"].to_dict() == {"x": 1, "y": 0.5, "z": 0.25}
    assert (list(rows.index), rows["rating"]["x"]) == (["x", "y", "z"], math.inf)
    assert math.isnan(rows["low"]["x"])
    assert rows["high"]["y"] == math.inf  # in some resamples it won everything


def test_groups_that_never_met_are_named():
    with pytest.raises(DataError, match=r"these 2 groups of models.*x, y, v \| z, w"):
        rate_models(table_of("xy zw xv yz", people=[1, 0, 0.5, np.nan]), "people")
    with pytest.raises(DataError, match="none, since it has decided no battle"):
        rate_models(table_of("xy", people=[np.nan]), "people")


def test_weights_minimise_the_loss_of_caparena():
    """Section 3.2 of the paper: the sum of cross-entropies, each divided by the chance P of its pair."""
    battles, points = draw_arena([1.0, 0.2, -1.0], 90, images=60, ties=0.2, seed=1)
    rare = [n for n, battle in enumerate(battles) if n % 4 == 0 or "model 3" in battle.values()]
    battles, points = [battles[n] for n in rare], points[rare]
    sides = np.array([[int(battle[name][-1]) - 1 for name in ("source1", "source2")] for battle in battles])
    counts = Counter(map(frozenset, sides.tolist()))
    chances = np.array([counts[frozenset(pair)] / len(sides) for pair in sides.tolist()])

    for pair_weights, divisor in ((True, chances), (False, np.ones(len(sides)))):

        def loss(strengths, divisor=divisor):
            chance = 1 / (1 + np.exp(strengths[sides[:, 1]] - strengths[sides[:, 0]]))
            return float((-(points * np.log(chance) + (1 - points) * np.log(1 - chance)) / divisor).sum())

        table = battle_table(battles, [Voter("people", points)], pair_weights=pair_weights)
        rows = rate_models(table, "people", resamples=2)["bradley-terry"].sort_index()
        strengths = (rows["rating"] - 1000) * math.log(10) / 400
        expected = minimize(loss, np.zeros(3), tol=1e-12).x
        assert strengths.tolist() == pytest.approx((expected - expected.mean()).tolist(), abs=1e-4)
        assert rows["battles"].sum() == 2 * len(battles)  # battles are counted, not weighed


def test_rank_correlations_of_ties_infinite_ratings_and_models_that_are_not_placed():
    first = np.array([[1, 2, np.nan, np.inf], [1, 2, 3, 4]])
    second = np.array([[1, 3, 2, np.inf], [-np.inf, 2, 1, 3]])
    assert rank_correlations(first[:1], second[:1])["spearman"].value == 1
    assert rank_correlations(second[:1], first[:1])["spearman"].value == 1
    assert rank_correlations(first[1:], second[1:])["kendall"].value == pytest.approx(2 / 3)
    assert np.isnan(rank_correlations(np.ones((1, 3)), first[1:, :3])["kendall"].value)
