"""Verdicts of people, a judge, a metric, and scores in the file; battles as arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reward.errors import DataError
from reward.metaeval.arena import Arena, by_column, by_judge, by_metric, by_people, human_points
from reward.metaeval.arena.battles import Battle
from reward.registry import MetricSource

ENTRY = {"img": "1.png", "source1": "x", "source2": "y", "caption1": "A dog runs.", "caption2": "A cat."}
UNKNOWN = np.full(1, np.nan)


def battles(*fields: dict[str, object]) -> list[Battle]:
    return [Battle.from_json({**ENTRY, **each}) for each in fields]


def test_people_and_their_liking_for_a_place() -> None:
    people = by_people(battles({"winner": "x"}, {"winner": "x"}, {"winner": "y"}, {"winner": "equal"}, {}))
    assert people is not None
    assert people.position is not None
    assert (people.position.first, people.position.second, people.position.ties) == (2, 1, 1)
    assert people.threshold is None
    assert by_people(battles({}, {"judge": "Tie."})) is None


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


def test_scores_in_the_file() -> None:
    read = battles({"s": [0.1, 0.9]}, {"s": [0.5, None]}, {}, {"s": [2, 1]})
    voter = by_column(read, "s", np.array([0.0, 1, 1, 0.5]))
    np.testing.assert_array_equal(voter.points, [0.5, np.nan, np.nan, 1])  # people gave one tie
    assert (voter.threshold, voter.errors) == (0.8, 3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"s": [1, 2, 3]}, r"battle 1 on '1.png': 's' must hold two numbers.*got \[1, 2, 3\]"),
        *[({"s": bad}, "must hold two numbers") for bad in (0.5, ["a", "b"], [True, 1])],
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


def test_a_metric_that_looks_needs_the_folder_of_the_images(tmp_path: Path) -> None:
    read = battles({"ref": "A dog is running."}, {"img": "2.png"})
    with pytest.raises(DataError, match="give their folder with --images"):
        by_metric(read, MetricSource("vela"), np.ones(2), images=tmp_path)
    for name in ("1.png", "2.png"):
        Image.new("RGB", (32, 32), (200, 30, 30)).save(tmp_path / name)
    with pytest.raises(DataError, match="metric 'unigram' needs references"):
        by_metric(read[1:], MetricSource("unigram"), UNKNOWN, images=tmp_path)
    voter = by_metric(read, MetricSource("unigram"), np.array([1, np.nan]), images=tmp_path)
    np.testing.assert_array_equal(voter.points, [1, np.nan])  # one battle has no reference
    assert voter.errors == 2


# Battles as arrays


def test_points_of_people_in_the_words_of_the_file() -> None:
    read = battles({"winner": "x"}, {"winner": "equal"}, {"winner": "y"}, {})
    np.testing.assert_array_equal(human_points(read), [1, 0.5, 0, np.nan])
    with pytest.raises(DataError, match=r"battle of 'x' and 'y' on '1.png': 'winner' must be one of the two.*'z'"):
        human_points(battles({"winner": "z"}))


def test_levels_come_in_the_order_of_their_numbers_and_battles_are_of_two() -> None:
    arena = Arena.of_battles(battles(*({"cluster": f"level {number}"} for number in (10, 2, 1)), {}))
    assert arena.level_names() == ["level 1", "level 2", "level 10"]
    assert len(arena.rows(np.array([True, False, False, False]))) == 1
    for rows, message in (([], "there are no battles"), ([("1", "x", "x", "")], "'x' against itself")):
        with pytest.raises(DataError, match=message):
            Arena.of(rows)
