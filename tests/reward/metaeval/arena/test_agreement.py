"""Agreement of votes with people: by level, in the ranking, and the bias for each model; fixed rankings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from reward.metaeval.arena import Voter, rate_arena
from reward.metaeval.arena.agreement import ArenaAgreement, measure_agreement, rank_correlations
from reward.metaeval.arena.result import battle_table
from tests.reward.metaeval.arena.made_arenas import draw_arena

FACTS = ("img", "source1", "source2", "cluster")
ROWS = ["1 x y 1", "1 x z 1", "2 y z 2", "2 x human 2", "3 z y 2", "4 y x 2"]
BATTLES: list[dict[str, Any]] = [dict(zip(FACTS, row.split(), strict=True)) for row in ROWS]
PEOPLE = np.array([1, 0.5, 0, 1, 1, np.nan])


def measure(people: np.ndarray, points: np.ndarray, battles: Any = BATTLES, **how: Any) -> ArenaAgreement:
    table = battle_table(battles, [Voter("people", people), Voter("m", points)])
    return measure_agreement(table, ["m"], **{"resamples": 200, **how})["m"]


def test_levels_ties_bias_and_what_is_left_out() -> None:
    agreement = measure(PEOPLE, np.array([1, 0, 0, 1, np.nan, 1]))
    levels = {name: interval.value for name, interval in agreement.levels.items()}
    assert levels == pytest.approx({"1": 0.5, "2": 1, "overall": 2 / 3})
    assert agreement.battles == {"1": 2, "2": 1, "overall": 3}  # neither the human's nor the undecided ones
    assert agreement.without_verdict == 1
    assert (agreement.human_ties, agreement.ties) == pytest.approx((1 / 3, 0))
    assert {name: bias.value for name, bias in agreement.bias.items()} == pytest.approx({"x": -0.25, "y": 0, "z": 0.25})
    assert agreement.mean_bias == pytest.approx(1 / 6)


def test_rankings_are_those_of_the_ratings() -> None:
    battles, people = draw_arena([1, 0.4, 0, -0.4, -1], 120, images=60, seed=1)
    points = np.random.default_rng(2).choice([0, 0.5, 1], size=120)
    result = rate_arena(battles, [Voter("people", people), Voter("m", points)], resamples=100, seed=5)
    for method in ("elo", "bradley-terry"):
        values = [result.ratings[name][method]["rating"].sort_index() for name in ("people", "m")]
        found = result.agreement["m"].ranking[method]
        assert found["spearman"].value == pytest.approx(spearmanr(*values).statistic)
        assert found["kendall"].value == pytest.approx(kendalltau(*values).statistic)
    assert not np.isnan(result.agreement["m"].ranking["bradley-terry"]["kendall"].low)


def test_rank_correlations_of_ties_infinite_ratings_and_models_that_are_not_placed() -> None:
    first = np.array([[1, 2, np.nan, np.inf], [1, 2, 3, 4]])
    second = np.array([[1, 3, 2, np.inf], [-np.inf, 2, 1, 3]])
    assert rank_correlations(first[:1], second[:1])["spearman"].value == 1
    assert rank_correlations(first[1:], second[1:])["kendall"].value == pytest.approx(2 / 3)
    assert np.isnan(rank_correlations(np.ones((1, 3)), first[1:, :3])["kendall"].value)


def test_battles_on_one_image_count_as_one_for_the_interval() -> None:
    said = np.repeat(np.random.default_rng(0).random(60) < 0.6, 5).astype(float)  # the same five times on each image
    widths = []
    for images in (np.repeat(np.arange(60), 5), np.arange(300)):
        battles = [{"img": str(image), "source1": "x", "source2": "y"} for image in images]
        interval = measure(np.ones(300), said, battles).levels["overall"]
        widths.append(interval.high - interval.low)
    assert widths[0] == pytest.approx(widths[1] * 5**0.5, rel=0.25)


def test_what_cannot_be_computed_is_said() -> None:
    half = Voter("half", np.array([1, np.nan, np.nan, np.nan, np.nan, np.nan]))
    none = Voter("none", np.array([np.nan, np.nan, np.nan, 1, np.nan, 1]))
    result = rate_arena(BATTLES, [Voter("people", PEOPLE), half, none], resamples=20)
    assert list(result.agreement) == ["half"]
    notes = "\n".join(result.notes)
    assert "no rating by half of z: none of their battles is decided by it" in notes
    assert "rating by half of x, y: no finite maximum of the likelihood" in notes
    apart = [{"img": "1", "source1": one, "source2": two} for one, two in ("xy", "zw", "yz")]
    assert measure(np.ones(3), np.array([1, 1, np.nan]), apart).ranking == {}  # no common one
