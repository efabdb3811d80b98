"""Who should meet next: the rule, what it saves, and battles on images that are left."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from examples.arena_selection import CHOSEN, RANDOM, simulate
from reward.arena import Arena, next_battles, next_pairs
from reward.arena.selection import interval_gains
from reward.battles import Battle
from reward.errors import DataError


def test_of_two_models_the_gain_is_the_papers() -> None:
    """With S = 1 / (p (1 - p)): sqrt(S / n) - sqrt(S / (n + 1)), up to the prior of one battle each."""
    for strengths in ([0.0, 0.0], [1.5, -1.5]):
        chance = 1 / (1 + np.exp(strengths[1] - strengths[0]))
        variance = 1 / (chance * (1 - chance))
        games = 5000
        expected = np.sqrt(variance / games) - np.sqrt(variance / (games + 1))
        found = interval_gains(np.array([[0, games], [games, 0]], dtype=float), np.array(strengths))
        assert found[0, 1] == pytest.approx(expected, rel=0.01)
        assert found[1, 0] == pytest.approx(found[0, 1])
        assert found[0, 0] == 0


def test_battles_with_others_tell_about_a_pair_too() -> None:
    games = np.array([[0, 0, 50, 0], [0, 0, 50, 0], [50, 50, 0, 0], [0, 0, 0, 0.0]])
    gains = interval_gains(games, np.zeros(4))
    assert gains[0, 1] < gains[0, 3]  # neither pair has met, but of the last model nothing is known


def test_near_and_little_known_models_meet_more_often() -> None:
    rows, points = [], []
    for one, two, wins in (("a", "b", 15), ("a", "c", 29), ("b", "c", 29)):
        rows += [(str(len(rows) + n), one, two, "") for n in range(30)]
        points += [1.0] * wins + [0.0] * (30 - wins)
    drawn = next_pairs(Arena.of(rows), np.array(points), 400, systems=["a", "b", "c", "new"], seed=0)
    met = Counter(frozenset(pair) for pair in drawn)
    assert sum(number for pair, number in met.items() if "new" in pair) > 200
    assert drawn == next_pairs(Arena.of(rows), np.array(points), 400, systems=["a", "b", "c", "new"], seed=0)
    firsts = Counter(one for one, two in drawn if "new" in (one, two))
    assert 0.35 < firsts["new"] / sum(firsts.values()) < 0.65


def test_chosen_pairs_need_fewer_battles_than_random_ones() -> None:
    found = simulate(8, models=12, spread=1.5, checkpoints=[300], batch=30, seed=0)
    chosen, random = (found[name][:, 0] for name in (CHOSEN, RANDOM))
    assert (chosen[:, 0] < random[:, 0]).mean() > 0.8  # width of the ratings
    saved = 1 - (chosen[:, 1].mean() / random[:, 1].mean()) ** 2  # of the differences of neighbours
    assert 0.05 < saved < 0.4


def test_proposed_battles_have_both_captions_and_are_new() -> None:
    def battle(image: str, one: str, two: str) -> Battle:
        captions = {"caption1": f"{one} on {image}", "caption2": f"{two} on {image}"}
        return Battle.from_json({"img": image, "source1": one, "source2": two, **captions, "ref": f"seen {image}"})

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


def test_too_few_models_or_battles() -> None:
    arena = Arena.of([("1", "x", "y", "")])
    with pytest.raises(DataError, match="two models or more are needed for a battle, got 1: x"):
        next_pairs(arena, np.ones(1), 1, systems=["x"])
    with pytest.raises(DataError, match="must be at least 1, got 0"):
        next_pairs(arena, np.ones(1), 0)
