"""Battles as arrays: from files, from caption pairs, by level; and made arenas."""

from __future__ import annotations

import numpy as np
import pytest

from reward.arena import Arena, draw_arena, human_points, label_points
from reward.battles import Battle, human_outcome
from reward.errors import DataError
from reward.metaeval.benchmarks import PreferencePair

ENTRY = {"img": "1.jpg", "source1": "x", "source2": "y", "caption1": "A dog.", "caption2": "A cat."}


def battle(**fields: object) -> Battle:
    return Battle.from_json({**ENTRY, **fields})


def test_points_of_people_in_the_words_of_the_file() -> None:
    battles = [battle(winner="x"), battle(winner="equal"), battle(winner="y"), battle()]
    np.testing.assert_array_equal(human_points(battles), [1, 0.5, 0, np.nan])
    assert human_outcome(battles[0].record, 2) == -1
    with pytest.raises(DataError, match=r"battle of 'x' and 'y' on '1.jpg': 'winner' must be one of the two.*'z'"):
        human_points([battle(winner="z")])


def test_levels_come_in_the_order_of_their_numbers() -> None:
    arena = Arena.of_battles([battle(cluster=f"level {number}") for number in (10, 2, 1)] + [battle()])
    assert arena.level_names() == ["level 1", "level 2", "level 10"]
    assert len(arena.rows(np.array([True, False, False, False]))) == 1


def test_caption_pairs_of_a_benchmark() -> None:
    pairs = [
        PreferencePair(("a", "b"), label, image_id=str(number), category="level 1", systems=("x", "y"))
        for number, label in enumerate((0, 1, None))
    ]
    assert Arena.of_pairs(pairs).images == ("0", "1", "2")
    assert label_points(pairs).tolist() == [1, 0, 0.5]
    with pytest.raises(DataError, match="pair 1 on '' names no systems"):
        Arena.of_pairs([PreferencePair(("a", "b"), 0)])


def test_what_is_no_arena() -> None:
    with pytest.raises(DataError, match="there are no battles"):
        Arena.of([])
    with pytest.raises(DataError, match="'x' against itself"):
        Arena.of([("1", "x", "x", "")])


def test_made_battles_follow_the_model() -> None:
    truth = np.array([0.7, -0.3])
    arena, points = draw_arena(truth, 20000, images=20000, ties=0.5, seed=0)
    first = np.where(arena.pairs[:, 0] == arena.systems.index("model 1"), points, 1 - points)
    assert first.mean() == pytest.approx(1 / (1 + np.exp(-1)), abs=0.01)  # ties take from both as much
    assert (points == 0.5).mean() == pytest.approx(0.5 * 2 * (1 - 1 / (1 + np.exp(-1))), abs=0.01)


def test_made_battles_share_captions_within_an_image() -> None:
    """On one image the captions have an order, so no three of them beat each other in a circle."""
    arena, points = draw_arena([0, 0, 0], 300, images=100, seed=0)
    wins: dict[str, dict[str, int]] = {}
    for image, pair, won in zip(arena.images, arena.pairs, points, strict=True):
        best = arena.systems[pair[0 if won == 1 else 1]]
        wins.setdefault(image, {}).setdefault(best, 0)
        wins[image][best] += 1
    assert all(sorted(row.values()) == [1, 2] for row in wins.values())


def test_frequencies_and_too_many_battles() -> None:
    often = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    arena, _ = draw_arena([0, 0, 0], 100, images=100, frequencies=often, names=["x", "y", "z"])
    assert arena.has("y").all()
    with pytest.raises(ValueError, match="allow 1 to 300 battles, got 301"):
        draw_arena([0, 0, 0], 301, images=100)
