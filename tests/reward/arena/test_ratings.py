"""Ratings on the scale of Elo: intervals that hold what they promise, Elo as a plain loop, and what cannot be rated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t

from examples.arena_coverage import EXACT, TEXTBOOK, simulate
from reward.arena import Arena, bradley_terry_ratings, draw_arena, elo_ratings
from reward.arena.ratings import resampled_elo
from reward.errors import DataError


def two_models(points: list[float], images: list[str] | None = None) -> tuple[Arena, np.ndarray]:
    names = images or [str(number) for number in range(len(points))]
    return Arena.of([(name, "x", "y", "") for name in names]), np.array(points)


def test_intervals_cover_the_truth_at_the_nominal_rate() -> None:
    """80 arenas of 6 models: 0.95, give or take three standard errors of a share of 480, holds by chance 997 times in
    1000. The likelihood's own intervals, which do not know that battles share images, fail here."""
    options = {"models": 6, "battles": 360, "images": 30, "ties": 0.1, "spread": 1.0, "resamples": 2, "seed": 0}
    found, left_out = simulate(80, **options)  # type: ignore[arg-type]
    assert left_out <= 4
    tolerance = 3 * math.sqrt(0.95 * 0.05 / (6 * (80 - left_out)))
    assert found[EXACT].covered.value == pytest.approx(0.95, abs=tolerance)
    assert found[TEXTBOOK].covered.value < 0.95 - tolerance
    assert found[EXACT].ordered > 0.9
    assert found[EXACT].apart_wrongly < 0.01


def test_many_battles_recover_order_and_strengths() -> None:
    truth = np.array([1.5, 0.5, 0.0, -0.5, -1.5])
    arena, points = draw_arena(truth, 20000, images=4000, ties=0.3, seed=3)
    found = bradley_terry_ratings(arena, points)
    assert list(found.ratings) == [f"model {number}" for number in range(1, 6)]
    assert list(elo_ratings(arena, points, resamples=50).ratings) == list(found.ratings)
    for name, rating in found.values.items():
        assert rating == pytest.approx(1000 + truth[int(name[-1]) - 1] * 400 / math.log(10), abs=15)


def test_interval_of_two_models_in_closed_form() -> None:
    arena, points = two_models([1.0] * 30 + [0.0] * 10)
    interval = bradley_terry_ratings(arena, points).ratings["x"]
    share = 30 / 40
    error = 0.5 * math.sqrt(1 / (40 * share * (1 - share)) * 40 / 39)
    reach = t.ppf(0.975, 39) * error * 400 / math.log(10)
    assert interval.value == pytest.approx(1000 + 200 * math.log10(3))
    assert (interval.low, interval.high) == pytest.approx((interval.value - reach, interval.value + reach))


def test_ties_narrow_and_shared_images_widen_the_interval() -> None:
    def width(points: list[float], images: list[str] | None = None) -> float:
        interval = bradley_terry_ratings(*two_models(points, images)).ratings["x"]
        return interval.high - interval.low

    decided = [1.0, 0.0] * 20
    assert width([0.5] * 40) < 1e-6
    assert width([1.0, 0.5, 0.5, 0.0] * 10) < 0.8 * width(decided)
    assert width(sorted(decided), [str(number // 4) for number in range(40)]) > 1.8 * width(decided)


def test_elo_is_what_a_plain_loop_gives() -> None:
    rng = np.random.default_rng(0)
    arena, points = draw_arena(rng.normal(size=4), 60, images=30, ties=0.4, seed=1)
    points[5] = np.nan
    decided = np.flatnonzero(~np.isnan(points))
    draws = np.random.default_rng(9).integers(len(decided), size=(len(decided), 3))
    found = resampled_elo(arena, points, resamples=3, seed=9)
    for column in range(3):
        ratings = [1000.0] * 4
        for battle in decided[draws[:, column]]:
            one, two = arena.pairs[battle]
            expected = 1 / (1 + 10 ** ((ratings[two] - ratings[one]) / 400))
            ratings[one] += 4 * (points[battle] - expected)
            ratings[two] += 4 * ((1 - points[battle]) - (1 - expected))
        assert found[column] == pytest.approx(ratings)
    medians = elo_ratings(arena, points, resamples=3, seed=9).values
    assert medians == pytest.approx(dict(zip(arena.systems, np.median(found, axis=0), strict=True)))


def test_a_model_that_won_everything_is_rated_infinite_and_said_to_be() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("2", "y", "z", ""), ("3", "z", "y", ""), ("4", "x", "z", "")])
    points = np.array([1.0, 1, 1, 1])
    found = bradley_terry_ratings(arena, points)
    assert found.values == {"x": math.inf, "y": 1000, "z": 1000}
    assert math.isnan(found.ratings["x"].low)
    assert found.notes == ["x: infinite, since no lower model took points from them, even along a chain of others"]
    assert found.to_json()["x"] == {"rating": "inf", "low": None, "high": None, "battles": 2, "win_rate": 1.0}
    finite = bradley_terry_ratings(arena, points, prior=1.0)
    assert finite.values["x"] > 1000
    assert finite.notes == []
    assert np.isfinite([finite.ratings["x"].low, finite.ratings["x"].high]).all()


def test_a_prior_does_not_make_a_sweep_look_certain() -> None:
    """Of 30 wins in 30 battles, the sandwich sees no spread: the interval must still hold what 30 battles allow."""
    arena, points = two_models([1.0] * 30)
    found = bradley_terry_ratings(arena, points, prior=1.0).ratings["x"]
    # Wins in 30 battles have 97.5 % of their chance below 30 for a win rate of 0.884: 353 points between the two.
    assert found.low < 1000 + 353 / 2
    assert found.high - found.value == pytest.approx(found.value - found.low)


def test_battles_on_one_image_give_no_intervals() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("1", "y", "z", ""), ("1", "z", "x", "")])
    found = bradley_terry_ratings(arena, np.ones(3))
    assert list(found.values.values()) == pytest.approx([1000, 1000, 1000])
    assert all(math.isnan(each.low) and math.isnan(each.high) for each in found.ratings.values())
    assert found.to_json()["x"]["low"] is None


def test_groups_that_never_met_are_named() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("2", "z", "w", ""), ("3", "x", "v", ""), ("4", "y", "z", "")])
    points = np.array([1, 0, 0.5, np.nan])
    for rate in (bradley_terry_ratings, elo_ratings):
        with pytest.raises(DataError, match=r"these 2 groups of models.*x, y, v \| z, w"):
            rate(arena, points)
    with pytest.raises(DataError, match="none of the 4 battles is decided"):
        bradley_terry_ratings(arena, np.full(4, np.nan))
