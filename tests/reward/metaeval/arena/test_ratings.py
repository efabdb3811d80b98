"""Ratings on the scale of Elo, intervals that hold what they promise, what cannot be rated; who should meet next."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import t

from reward.errors import DataError
from reward.metaeval.arena import Arena, bradley_terry_ratings, elo_ratings, next_battles
from reward.metaeval.arena.battles import Battle
from reward.metaeval.arena.ratings import resampled_elo
from reward.metaeval.arena.selection import interval_gains
from tests.reward.metaeval.arena.made_arenas import draw_arena


def two_models(points: list[float], images: list[str] | None = None) -> tuple[Arena, np.ndarray]:
    names = images or [str(number) for number in range(len(points))]
    return Arena.of([(name, "x", "y", "") for name in names]), np.array(points)


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
    fitted = resampled_elo(arena, points, resamples=3, seed=9)
    for column in range(3):
        ratings = [1000.0] * 4
        for battle in decided[draws[:, column]]:
            one, two = arena.pairs[battle]
            expected = 1 / (1 + 10 ** ((ratings[two] - ratings[one]) / 400))
            ratings[one] += 4 * (points[battle] - expected)
            ratings[two] += 4 * ((1 - points[battle]) - (1 - expected))
        assert fitted[column] == pytest.approx(ratings)
    medians = elo_ratings(arena, points, resamples=3, seed=9).values
    assert medians == pytest.approx(dict(zip(arena.systems, np.median(fitted, axis=0), strict=True)))


def test_a_model_that_won_everything_is_rated_infinite_and_said_to_be() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("2", "y", "z", ""), ("3", "z", "y", ""), ("4", "x", "z", "")])
    points = np.array([1.0, 1, 1, 1])
    fitted = bradley_terry_ratings(arena, points)
    assert fitted.values == {"x": math.inf, "y": 1000, "z": 1000}
    assert math.isnan(fitted.ratings["x"].low)
    assert fitted.notes == ["x: infinite, since no lower model took points from them, even along a chain of others"]
    assert fitted.to_json()["x"] == {"rating": "inf", "low": None, "high": None, "battles": 2, "win_rate": 1.0}


def test_battles_on_one_image_give_no_intervals() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("1", "y", "z", ""), ("1", "z", "x", "")])
    fitted = bradley_terry_ratings(arena, np.ones(3))
    assert list(fitted.values.values()) == pytest.approx([1000, 1000, 1000])
    assert all(math.isnan(each.low) and math.isnan(each.high) for each in fitted.ratings.values())
    assert fitted.to_json()["x"]["low"] is None


def test_groups_that_never_met_are_named() -> None:
    arena = Arena.of([("1", "x", "y", ""), ("2", "z", "w", ""), ("3", "x", "v", ""), ("4", "y", "z", "")])
    points = np.array([1, 0, 0.5, np.nan])
    for rate in (bradley_terry_ratings, elo_ratings):
        with pytest.raises(DataError, match=r"these 2 groups of models.*x, y, v \| z, w"):
            rate(arena, points)
    with pytest.raises(DataError, match="none of the 4 battles is decided"):
        bradley_terry_ratings(arena, np.full(4, np.nan))


# Who should meet next


def test_of_two_models_the_gain_is_the_papers() -> None:
    """With S = 1 / (p (1 - p)): sqrt(S / n) - sqrt(S / (n + 1)), up to the prior of one battle each."""
    for strengths in ([0.0, 0.0], [1.5, -1.5]):
        chance = 1 / (1 + np.exp(strengths[1] - strengths[0]))
        variance = 1 / (chance * (1 - chance))
        games = 5000
        expected = np.sqrt(variance / games) - np.sqrt(variance / (games + 1))
        gains = interval_gains(np.array([[0, games], [games, 0]], dtype=float), np.array(strengths))
        assert gains[0, 1] == pytest.approx(expected, rel=0.01)
        assert gains[1, 0] == pytest.approx(gains[0, 1])
        assert gains[0, 0] == 0


def test_battles_with_others_tell_about_a_pair_too() -> None:
    games = np.array([[0, 0, 50, 0], [0, 0, 50, 0], [50, 50, 0, 0], [0, 0, 0, 0.0]])
    gains = interval_gains(games, np.zeros(4))
    assert gains[0, 1] < gains[0, 3]  # neither pair has met, but of the last model nothing is known


def battle(image: str, one: str, two: str) -> Battle:
    captions = {"caption1": f"{one} on {image}", "caption2": f"{two} on {image}"}
    return Battle.from_json({"img": image, "source1": one, "source2": two, **captions, "ref": f"seen {image}"})


def test_near_and_little_known_models_meet_more_often() -> None:
    battles, points = [battle("0", "new", "a")], [0.5]
    for one, two, wins in (("a", "b", 15), ("a", "c", 29), ("b", "c", 29)):
        battles += [battle(str(n), one, two) for n in range(30)]
        points += [1.0] * wins + [0.0] * (30 - wins)
    proposed = next_battles(battles, np.array(points), 400, seed=0)
    drawn = [(entry["source1"], entry["source2"]) for entry in proposed]
    met = Counter(frozenset(pair) for pair in drawn)
    assert sum(number for pair, number in met.items() if "new" in pair) > 200
    assert proposed == next_battles(battles, np.array(points), 400, seed=0)
    firsts = Counter(one for one, two in drawn if "new" in (one, two))
    assert 0.35 < firsts["new"] / sum(firsts.values()) < 0.65
    with pytest.raises(DataError, match="must be at least 1, got 0"):
        next_battles(battles, np.array(points), 0)


def test_proposed_battles_have_both_captions_and_are_new() -> None:
    battles = [battle("1", "x", "y"), battle("1", "y", "z"), battle("2", "x", "y"), battle("2", "z", "x")]
    proposed = next_battles(battles, np.array([1, 0, 0.5, 1]), 8, seed=0)
    assert len(proposed) == 8
    complete = [entry for entry in proposed if "img" in entry]
    # x and z have not met on image 1, y and z not on image 2, though all three have captions of both
    assert {(entry["img"], *sorted((entry["source1"], entry["source2"]))) for entry in complete} == {
        ("1", "x", "z"),
        ("2", "y", "z"),
    }
    assert len(complete) == 2
    for entry in complete:
        for place in (1, 2):
            assert entry[f"caption{place}"] == f"{entry[f'source{place}']} on {entry['img']}"
        assert entry["ref"] == f"seen {entry['img']}"
        Battle.from_json(entry)  # a battles file can hold it
    assert all(set(entry) == {"source1", "source2"} for entry in proposed if "img" not in entry)
