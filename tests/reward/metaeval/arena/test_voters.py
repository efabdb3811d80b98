"""Votes of people, a judge, a metric, and by scores in the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.arena.battles import Battle, check_battle
from reward.metaeval.arena.voters import by_column, by_judge, by_metric, by_people
from reward.registry import MetricSource

ENTRY = {"img": "1.png", "source1": "x", "source2": "y", "caption1": "A dog runs.", "caption2": "A cat."}
UNKNOWN = np.full(1, np.nan)


def battles(*fields: dict[str, object]) -> list[Battle]:
    return [check_battle({**ENTRY, **each}, "battle") for each in fields]


def test_people_and_their_liking_for_a_place() -> None:
    people = by_people(battles({"winner": "x"}, {"winner": "x"}, {"winner": "y"}, {"winner": "equal"}, {}))
    assert people is not None
    assert people.position is not None
    assert (people.position.first, people.position.second, people.position.ties) == (2, 1, 1)
    assert people.threshold is None
    np.testing.assert_array_equal(people.points, [1, 1, 0, 0.5, np.nan])
    assert by_people(battles({}, {"judge": "Tie."})) is None
    with pytest.raises(
        DataError, match=r"battle of 'x' and 'y' on '1.png': 'winner' must be one of 'x', 'y', 'equal', got 'z'"
    ):
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
    assert judge.errors == 2
    assert "'judge' must be" in judge.problem
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
        *[({"s": bad}, "'s' must hold two numbers") for bad in ([1, 2, 3], 0.5, 0, ["a", "b"])],
        ({"other": [1, 2], "name": "n"}, "no battle has scores 's'.*fields with lists: other"),
        ({"s": [None, None]}, "no battle has scores 's'"),
    ],
)
def test_scores_that_will_not_do(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        by_column(battles(fields), "s", UNKNOWN)


def test_a_metric_scores_the_captions_and_not_those_by_people(tmp_path: Path) -> None:
    read = battles(
        {}, {"source2": "human"}, {"caption2": "A cat sleeps here.", "caption1": " "}, {"caption1": "A cat."}
    )
    voter = by_metric(read, MetricSource("length"), np.array([1, 1, 1, 0.5]), images=tmp_path)
    np.testing.assert_array_equal(voter.points, [1, np.nan, np.nan, 0.5])
    assert voter.name == "length"
    assert voter.errors == 1
    assert "empty" in voter.problem
    with pytest.raises(DataError, match="all battles are of the source 'human'"):
        by_metric(read[1:2], MetricSource("length"), UNKNOWN, images=tmp_path)
