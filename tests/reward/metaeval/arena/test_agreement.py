"""Agreement of verdicts with people: by level, in the ranking, and the bias for each model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from reward.errors import DataError
from reward.metaeval.arena import Arena, elo_ratings, measure_agreement, rate_arena, score_points
from reward.metaeval.arena.agreement import ArenaAgreement, rank_correlations
from reward.metaeval.arena.voters import Voter
from tests.reward.metaeval.arena.made_arenas import draw_arena

ROWS = [
    ("1", "x", "y", "level 1"),
    ("1", "x", "z", "level 1"),
    ("2", "y", "z", "level 2"),
    ("2", "x", "human", "level 2"),
    ("3", "z", "y", "level 2"),
    ("4", "y", "x", "level 2"),
]
PEOPLE = np.array([1, 0.5, 0, 1, 1, np.nan])


def measure(points: np.ndarray, arena: Arena | None = None, people: np.ndarray = PEOPLE) -> ArenaAgreement:
    return measure_agreement(arena or Arena.of(ROWS), people, {"m": points}, resamples=200)["m"]


def test_levels_ties_and_what_is_left_out() -> None:
    agreement = measure(np.array([1, 0, 0, 1, np.nan, 1]))
    levels = {name: interval.value for name, interval in agreement.levels.items()}
    assert levels == pytest.approx({"level 1": 0.5, "level 2": 1, "overall": 2 / 3})
    assert agreement.battles == {"level 1": 2, "level 2": 1, "overall": 3}  # neither the human's nor the undecided ones
    assert agreement.without_verdict == 1
    assert (agreement.human_ties, agreement.ties) == pytest.approx((1 / 3, 0))
    assert {name: bias.value for name, bias in agreement.bias.items()} == pytest.approx({"x": -0.25, "y": 0, "z": 0.25})
    assert agreement.mean_bias == pytest.approx(1 / 6)


def test_rankings_are_those_of_the_ratings() -> None:
    arena, people = draw_arena([1, 0.4, 0, -0.4, -1], 120, images=60, seed=1)
    points = np.random.default_rng(2).choice([0, 0.5, 1], size=120)
    agreement = measure_agreement(arena, people, {"m": points}, resamples=100, seed=5)["m"]
    result = rate_arena(arena, [Voter("people", people), Voter("m", points)], resamples=100, seed=5)
    for method in ("elo", "bradley-terry"):
        values = [[result.ratings[name][method].values[system] for system in arena.systems] for name in ("people", "m")]
        assert agreement.ranking[method]["spearman"].value == pytest.approx(spearmanr(*values).statistic)
        assert agreement.ranking[method]["kendall"].value == pytest.approx(kendalltau(*values).statistic)
    assert result.ratings["m"]["elo"].values == elo_ratings(arena, points, resamples=100, seed=5).values


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 7).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2)))
def test_rank_correlations_equal_scipy_with_ties(rows: tuple[list[int], list[int]]) -> None:
    first, second = (np.array([row, row[::-1]], dtype=float) for row in rows)
    correlations = rank_correlations(first, second)
    constant = len(set(rows[0])) == 1 or len(set(rows[1])) == 1
    expected = [np.nan if constant else float(test(*rows).statistic) for test in (spearmanr, kendalltau)]
    assert [correlations["spearman"][0], correlations["kendall"][0]] == pytest.approx(expected, nan_ok=True)
    assert correlations["kendall"][1] == pytest.approx(correlations["kendall"][0], nan_ok=True)


def test_infinite_ratings_have_the_outermost_ranks_and_unplaced_models_none() -> None:
    first = np.array([[1, 2, np.nan, np.inf], [1, 2, 3, 4]])
    correlations = rank_correlations(first, np.array([[1, 3, 2, np.inf], [-np.inf, 2, 1, 3]]))
    assert correlations["spearman"][0] == 1
    assert correlations["kendall"][1] == pytest.approx(2 / 3)


def test_battles_on_one_image_count_as_one_for_the_interval() -> None:
    rng = np.random.default_rng(0)
    said = np.repeat(rng.random(60) < 0.6, 5).astype(float)  # the same five times on each image
    people = np.ones(300)
    widths = []
    for images in (np.repeat(np.arange(60), 5), np.arange(300)):
        arena = Arena.of([(str(image), "x", "y", "") for image in images])
        interval = measure(said, arena, people).levels["overall"]
        widths.append(interval.high - interval.low)
    assert widths[0] == pytest.approx(widths[1] * 5**0.5, rel=0.25)


def test_the_threshold_is_of_the_battles_that_count() -> None:
    """The human's battle and the undecided one have no say in it; the latter still gets a verdict by it."""
    scores = np.array([[9, 1], [3, 2], [1, 9], [5, 5], [9, 2], [2.5, 2]])
    points, threshold = score_points(Arena.of(ROWS), PEOPLE, scores)
    assert threshold == 1
    np.testing.assert_array_equal(points, [1, 0.5, 0, np.nan, 1, 0.5])
    assert score_points(Arena.of(ROWS), np.full(6, np.nan), scores)[1] == 0


def test_what_cannot_be_computed_is_said() -> None:
    half = Voter("half", np.array([1, np.nan, np.nan, np.nan, np.nan, np.nan]))
    none = Voter("none", np.array([np.nan, np.nan, np.nan, 1, np.nan, 1]))
    with pytest.raises(DataError, match="no battle that both people and m have decided"):
        measure(none.points)
    assert measure(half.points).ranking != {}
    arena = Arena.of([("1", "x", "y", ""), ("2", "z", "w", ""), ("3", "y", "z", "")])
    assert measure(np.array([1, 1, np.nan]), arena, np.ones(3)).ranking == {}  # no common one
    result = rate_arena(Arena.of(ROWS), [Voter("people", PEOPLE), half, none], resamples=20)
    assert list(result.agreement) == ["half"]
    notes = "\n".join(result.notes)
    assert "no rating by half of z: none of their battles is decided by it" in notes
    assert "no agreement of none" in notes
    with pytest.raises(DataError, match="two voters are named m"):
        rate_arena(Arena.of(ROWS), [Voter("m", PEOPLE), Voter("m", PEOPLE)])
