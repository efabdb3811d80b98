"""Pascal-50S from MATLAB files and from JSON: votes become labels, five references are drawn by a seed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.io import savemat

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark

CAPTIONS = [("A dog runs. ", "A cat."), ("Two men.", "A man sits."), (" A bus.", "A car."), ("a man", "the man")]
VOTES = (48, 0, 10, 24)  # for the first caption of each pair


def cell(text):
    found = np.empty((1, 1), dtype=object)
    found[0, 0] = text
    return found


def structs(rows):
    fields = [(f"field{number}", object) for number in range(len(rows[0]))]
    found = np.empty((1, len(rows)), dtype=fields)
    for place, row in enumerate(rows):
        found[0, place] = row
    return found


def write_mat(folder, *, captions=CAPTIONS, votes=VOTES, categories=(1, 2, 3, 4), swap=(), number=48, **changed):
    """The two files as published: structs of texts, and structs of cells with texts and a vote of 1 or -1."""
    pairs = [(f"2008_{place}.jpg", *pair) for place, pair in enumerate(captions)]
    triplets = []
    for place, (first, second) in enumerate(captions):
        for row in range(number):
            shown, vote = (first, second), 1 if row < votes[place] else -1
            if place in swap:
                shown, vote = (second, first), -vote
            triplets.append((cell(f"reference {row} of {place}"), cell(shown[0]), cell(shown[1]), vote))
    savemat(folder / "pair_pascal.mat", {"new_input": structs(pairs), "category": [categories]} | changed)
    savemat(folder / "consensus_pascal.mat", {"triplets": structs(triplets)})
    return folder


def test_votes_become_labels(tmp_path):
    found = load_benchmark("pascal-50s", write_mat(tmp_path), part="all references")
    assert [item.category for item in found.items] == ["HC", "HI", "HM", "MM"]
    assert [item.label for item in found.items[:3]] == [0, 1, 1]
    assert found.items[0].captions == ("A dog runs.", "A cat.")
    assert found.items[0].image == tmp_path / "2008_0.jpg"
    assert found.items[2].references == tuple(f"reference {row} of 2" for row in range(48))
    assert len(found.samples()) == 8
    swapped = load_benchmark("pascal-50s", write_mat(tmp_path, swap=(0, 2)))  # the captions in the votes
    assert [item.label for item in swapped.items[:3]] == [0, 1, 1]


def test_five_references_are_drawn_anew_in_each_part_and_the_same_each_time(tmp_path):
    write_mat(tmp_path)
    draws = [load_benchmark("pascal-50s", tmp_path, part=f"draw {number}").items for number in range(1, 6)]
    drawn = [tuple(item.references for item in items) for items in draws]
    assert {len(set(references)) for items in drawn for references in items} == {5}
    assert len(set(drawn)) == 5
    assert drawn[0] == tuple(item.references for item in load_benchmark("pascal-50s", tmp_path).items)
    numbers = [[int(text.split()[1]) for text in items[0]] for items in drawn]
    assert numbers[0] != [int(text.split()[1]) for text in drawn[0][1]]  # each pair has a draw of its own


def test_ties_among_people_are_broken_by_chance_and_the_same_each_time(tmp_path):
    many = [(f"caption {number}", "the other") for number in range(16)]
    write_mat(tmp_path, captions=many, votes=[24] * 16, categories=[4] * 16)
    labels = [item.label for item in load_benchmark("pascal-50s", tmp_path).items]
    assert 2 < sum(labels) < 14
    assert labels == [item.label for item in load_benchmark("pascal-50s", tmp_path).items]
    assert labels != [item.label for item in load_benchmark("pascal-50s", tmp_path, part="draw 2").items]


def test_files_in_the_folder_of_the_study_and_images_elsewhere(tmp_path):
    (tmp_path / "pyCIDErConsensus").mkdir()
    (tmp_path / "JPEGImages").mkdir()
    write_mat(tmp_path / "pyCIDErConsensus")
    found = load_benchmark("pascal-50s", tmp_path, images=tmp_path / "JPEGImages")
    assert found.items[1].image == tmp_path / "JPEGImages" / "2008_1.jpg"


def test_json_by_category(tmp_path):
    row = {"image": "VOC/a.jpg", "captions": ["x", "y"], "label": 1, "references": [f"r{k}" for k in range(5)]}
    (tmp_path / "pascal_50s.json").write_text(json.dumps({"HI": [row, row], "MM": [row]}))
    found = load_benchmark("pascal-50s", tmp_path)
    assert [item.category for item in found.items] == ["HI", "HI", "MM"]
    assert found.items[0].references == ("r0", "r1", "r2", "r3", "r4")  # five are taken as they are
    assert found.items[0].image == tmp_path / "VOC/a.jpg"
    (tmp_path / "pascal_50s.json").write_text(json.dumps({"HI": [row | {"references": [str(k) for k in range(9)]}]}))
    assert len(load_benchmark("pascal-50s", tmp_path).items[0].references) == 5


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: write_mat(folder, number=47), "there must be a category and 48 votes a pair"),
        (lambda folder: write_mat(folder, categories=(1, 2, 3)), "4 pairs and 3 categories"),
        (lambda folder: write_mat(folder, categories=(1, 2, 3, 5)), "pair 4: category must be 1, 2, 3 or 4, got 5"),
        (lambda folder: write_mat(folder, new_input=structs([("a.jpg", "b")] * 4)), "pair 1 must have 3 fields, got 2"),
        (
            lambda folder: write_mat(folder, new_input=structs([("a.jpg", "b", 7)] * 4)),
            "pair 1 must hold str, str, str",
        ),
        (lambda folder: write_mat(folder, new_input=structs([("a.jpg", "b", "c")] * 4)), "not those of pair 1"),
        (lambda folder: savemat(write_mat(folder) / "pair_pascal.mat", {"category": [1]}), "no variable 'new_input'"),
        (lambda folder: (write_mat(folder) / "pair_pascal.mat").write_bytes(b"MATLAB"), "cannot be read as a MATLAB"),
        (
            lambda folder: (write_mat(folder) / "consensus_pascal.mat").unlink(),
            "holds no consensus_pascal.mat or pyCIDErConsensus/consensus_pascal.mat",
        ),
    ],
)
def test_bad_mat_files_are_refused_by_place(write, message, tmp_path):
    write(tmp_path)
    with pytest.raises(DataError, match=message):
        load_benchmark("pascal-50s", tmp_path)
