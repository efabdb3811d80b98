"""CapArena's battles as pairs: winners become labels, levels categories, verdicts of judges score columns."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark


def battle(winner="x", **changed):
    row = {"img": "test_01.jpg", "source1": "x", "source2": "y", "caption1": "A dog.", "caption2": "A cat."}
    row |= {"ref": "A dog on grass.", "winner": winner, "cluster": "level 2", "in-400": False}
    return row | changed


def write(folder, *battles, name="caparena_annots_eval.json"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(battles)))
    return path


@pytest.mark.parametrize("name", ["caparena_annots_eval.json", "data/eval/caparena_annots_eval.json"])
def test_winners_become_labels(name, tmp_path):
    path = write(tmp_path, battle(), battle("y", cluster="level 1"), battle("equal"), name=name)
    found = load_benchmark("caparena", tmp_path).items
    assert [item.label for item in found] == [0, 1, None]
    assert [item.category for item in found] == ["level 2", "level 1", "level 2"]
    assert {item.systems for item in found} == {("x", "y")}
    assert {item.captions for item in found} == {("A dog.", "A cat.")}
    assert found[0].references == ("A dog on grass.",)
    assert (found[0].image, found[0].image_id) == (path.parent / "test_01.jpg", "test_01.jpg")
    assert found[0].columns == {}


def test_battles_against_people_are_left_out(tmp_path):
    path = write(tmp_path, battle("human", source1="human"), battle("x", source2="human"), battle("y"))
    assert [item.label for item in load_benchmark("caparena", path).items] == [1]
    lines = [
        {"image": "a", "captions": ["x", "y"], "label": 0, "systems": systems}
        for systems in (["human", "y"], ["x", "y"])
    ]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [item.systems for item in load_benchmark("caparena", tmp_path / "all.jsonl").items] == [("x", "y")]
    with pytest.raises(DataError, match="holds nothing to score"):
        load_benchmark("caparena", write(tmp_path, battle("human", source1="human")))


def test_verdicts_of_a_judge_and_scores_are_columns(tmp_path):
    words = ["Caption 1 is better.", "Caption 2 is better", "Tie.", "They differ.", None]
    battles = [battle(judge=judge, judge_reason="Reason: ...", clip=[0.5, place]) for place, judge in enumerate(words)]
    del battles[4]["judge"]
    found = load_benchmark("caparena", write(tmp_path, *battles))
    assert found.column_names == ("clip", "judge")
    scores = np.array([item.columns["judge"] for item in found.items])
    np.testing.assert_array_equal(scores, [(1, 0), (0, 1), (0.5, 0.5), (np.nan, np.nan), (np.nan, np.nan)])
    assert [item.columns["clip"] for item in found.items] == [(0.5, float(place)) for place in range(5)]


def test_a_battle_without_reference_or_level(tmp_path):
    row = battle(ref=None)
    del row["cluster"]
    (item,) = load_benchmark("caparena", write(tmp_path, row)).items
    assert (item.references, item.category) == ((), "")
