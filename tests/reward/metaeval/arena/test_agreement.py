"""Who votes, and how far votes agree with people's: by level, in the ranking, and the bias for each model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from reward.errors import DataError
from reward.metaeval.arena import Voter, rate_arena
from reward.metaeval.arena.battles import Battle, check_battle
from reward.metaeval.arena.ratings import rank_correlations
from reward.metaeval.arena.result import ArenaAgreement, battle_table, measure_agreement
from reward.metaeval.arena.voters import by_column, by_judge, by_metric, by_people
from reward.registry import MetricSource
from tests.reward.metaeval.arena.made_arenas import draw_arena

ENTRY = {"img": "1.png", "source1": "x", "source2": "y", "caption1": "A dog runs.", "caption2": "A cat."}
UNKNOWN = np.full(1, np.nan)


def battles(*fields: dict[str, object]) -> list[Battle]:
    return [check_battle({**ENTRY, **each}, "battle") for each in fields]


def test_people_name_a_source_or_equal_and_their_liking_for_a_place_is_counted() -> None:
    people = by_people(battles({"winner": "x"}, {"winner": "x"}, {"winner": "y"}, {"winner": "equal"}, {}))
    assert people is not None
    assert people.position is not None
    assert (people.position.first, people.position.second, people.position.ties) == (2, 1, 1)
    np.testing.assert_array_equal(people.points, [1, 1, 0, 0.5, np.nan])
    assert by_people(battles({}, {"judge": "Tie."})) is None
    with pytest.raises(DataError, match=r"'x' and 'y' on '1.png': 'winner' must be one of 'x', 'y', 'equal', got 'z'"):
        by_people(battles({"winner": "z"}))


def test_a_judge_of_one_order_and_of_both() -> None:
    first, second = "Caption 1 is better.", "Caption 2 is better."
    judge = by_judge(
        battles(
            {"judge": first},
            {"judge": "Tie.", "judge_orders": [first, second]},  # both times the caption shown first
            {"judge": "I like both", "winner": "x"},
            {"judge_error": "the server is down"},
            {},
        )
    )
    assert judge is not None
    np.testing.assert_array_equal(judge.points, [1, 0.5, np.nan, np.nan, np.nan])
    assert judge.position is not None
    assert (judge.position.first, judge.position.second, judge.position.reversed) == (3, 0, 1)
    assert (judge.errors, "'judge' must be" in judge.problem) == (2, True)
    assert by_judge(battles({}, {"judge_error": "down"})) is None
    with pytest.raises(DataError, match="'judge' must be"):
        by_judge(battles({"judge": "yes"}, {"judge": 1}))


def test_scores_in_the_file_give_as_many_ties_as_people_gave() -> None:
    """A person's battle and an undecided one have no say in the threshold; the latter still gets a verdict by it."""
    scores = [[9, 1], [3, 2], [1, 9], [5, 5], [9, None], [2.5, 2]]
    read = battles(*({"s": each, "source1": "human" if each == [5, 5] else "x"} for each in scores), {})
    voter = by_column(read, "s", np.array([1, 0.5, 0, 1, 1, np.nan, 1]))
    np.testing.assert_array_equal(voter.points, [1, 0.5, 0, np.nan, np.nan, 0.5, np.nan])
    assert (voter.threshold, voter.errors) == (1, 3)
    assert by_column(read, "s", np.full(7, np.nan)).threshold == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *[({"s": bad}, "'s' must hold two numbers") for bad in ([1, 2, 3], 0.5, ["0.5", "1"], [True, False])],
        ({"other": [1, 2], "name": "n"}, "no battle has scores 's'.*lists in the first battle: other"),
        ({"s": [None, None]}, "no battle has scores 's'"),
    ],
)
def test_scores_that_will_not_do(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        by_column(battles(fields), "s", UNKNOWN)


def test_a_metric_scores_the_captions_and_not_those_by_people(tmp_path: Path) -> None:
    read = battles({}, {"source2": "human"}, {"caption1": " "}, {"caption1": "A cat."})
    voter = by_metric(read, MetricSource("length"), np.array([1, 1, 1, 0.5]), images=tmp_path)
    np.testing.assert_array_equal(voter.points, [1, np.nan, np.nan, 0.5])
    assert (voter.name, voter.errors, "empty" in voter.problem) == ("length", 1, True)
    with pytest.raises(DataError, match="all battles are of the source 'human'"):
        by_metric(read[1:2], MetricSource("length"), UNKNOWN, images=tmp_path)


# Agreement

FACTS = ("img", "source1", "source2", "cluster")
ROWS = ["1 x y 1", "1 x z 1", "2 y z 2", "2 x human 2", "3 z y 2", "4 y x 2"]
SIX: list[dict[str, Any]] = [dict(zip(FACTS, row.split(), strict=True)) for row in ROWS]
PEOPLE = np.array([1, 0.5, 0, 1, 1, np.nan])


def measure(people: np.ndarray, points: np.ndarray, fought: Any = SIX) -> ArenaAgreement:
    table = battle_table(fought, [Voter("people", people), Voter("m", points)])
    return measure_agreement(table, ["m"], resamples=200)["m"]


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
    fought, people = draw_arena([1, 0.4, 0, -0.4, -1], 120, images=60, seed=1)
    points = np.random.default_rng(2).choice([0, 0.5, 1], size=120)
    result = rate_arena(fought, [Voter("people", people), Voter("m", points)], resamples=50, seed=5)
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
        fought = [{"img": str(image), "source1": "x", "source2": "y"} for image in images]
        interval = measure(np.ones(300), said, fought).levels["overall"]
        widths.append(interval.high - interval.low)
    assert widths[0] == pytest.approx(widths[1] * 5**0.5, rel=0.25)


def test_what_cannot_be_computed_is_said() -> None:
    half = Voter("half", np.array([1, np.nan, np.nan, np.nan, np.nan, np.nan]))
    none = Voter("none", np.array([np.nan, np.nan, np.nan, 1, np.nan, 1]))
    result = rate_arena(SIX, [Voter("people", PEOPLE), half, none], resamples=20)
    assert list(result.agreement) == ["half"]
    notes = "\n".join(result.notes)
    assert "no rating by half of z: none of their battles is decided by it" in notes
    assert "rating by half of x, y: no finite maximum of the likelihood" in notes
    apart = [{"img": "1", "source1": one, "source2": two} for one, two in ("xy", "zw", "yz")]
    assert measure(np.ones(3), np.array([1, 1, np.nan]), apart).ranking == {}  # no common one
