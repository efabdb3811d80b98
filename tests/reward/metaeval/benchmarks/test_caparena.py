"""CapArena's battles as pairs: winners become labels, levels categories, verdicts of judges score columns."""

from __future__ import annotations

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import PreferencePair, load_benchmark
from tests.reward.metaeval.small_benchmarks import write_files

NAME = "caparena_annots_eval.json"
BATTLE = {"img": "test_01.jpg", "source1": "x", "source2": "y", "caption1": "A dog.", "caption2": "A cat."}
BATTLE |= {"ref": "A dog on grass.", "winner": "x", "cluster": "level 2", "in-400": False}


def items(folder, *changes, name=NAME):
    return load_benchmark("caparena", write_files(folder, {name: [BATTLE | change for change in changes]})).items


@pytest.mark.parametrize("name", [NAME, f"data/eval/{NAME}"])
def test_winners_become_labels(name, tmp_path):
    battles = items(tmp_path, {}, {"winner": "y", "cluster": "level 1"}, {"winner": "equal", "ref": None}, name=name)
    image = (tmp_path / name).parent / "test_01.jpg"
    shared = {"captions": ("A dog.", "A cat."), "image": image, "image_id": "test_01.jpg", "systems": ("x", "y")}
    shared["columns"] = {}
    reference = ("A dog on grass.",)
    assert [vars(battle) for battle in battles] == [
        {"label": 0, "category": "level 2", "references": reference, **shared},
        {"label": 1, "category": "level 1", "references": reference, **shared},
        {"label": None, "category": "level 2", "references": (), **shared},
    ]


def test_battles_against_people_are_left_out(tmp_path):
    human = {"winner": "human", "source1": "human"}
    assert [item.label for item in items(tmp_path, human, {"source2": "human"}, {"winner": "y"})] == [1]
    with pytest.raises(DataError, match="holds nothing to score"):
        items(tmp_path, human)
    lines = [{"image": "a", "captions": ["x", "y"], "label": 0, "systems": [first, "y"]} for first in ("human", "x")]
    (item,) = load_benchmark("caparena", write_files(tmp_path, {"all.jsonl": lines}) / "all.jsonl").items
    assert isinstance(item, PreferencePair)
    assert item.systems == ("x", "y")


def test_verdicts_of_a_judge_and_scores_are_columns(tmp_path):
    words = ["Caption 1 is better.", "Caption 2 is better", "Tie.", "They differ."]
    battles = [{"judge": word, "judge_reason": "Reason: ...", "clip": [0.5, place]} for place, word in enumerate(words)]
    found = items(tmp_path, *battles, {"clip": [0.5, 4]})
    scores = np.array([item.columns["judge"] for item in found])
    np.testing.assert_array_equal(scores, [(1, 0), (0, 1), (0.5, 0.5), (np.nan, np.nan), (np.nan, np.nan)])
    assert [item.columns["clip"] for item in found] == [(0.5, float(place)) for place in range(5)]
    assert {tuple(item.columns) for item in found} == {("clip", "judge")}
