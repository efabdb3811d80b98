"""MMHE: five criteria, and triplets whose best text is paired with each of the others."""

from __future__ import annotations

from pathlib import Path

from reward.metaeval.benchmarks import PreferencePair, RatedCaption, load_benchmark
from reward.metaeval.benchmarks.mmhe import CRITERIA
from tests.reward.metaeval.small_benchmarks import write_lines

TRIPLET = {"image": "a.jpg", "candidates": ["One.", "Two.", "Three."], "best": 1, "category": "VQA"}


def test_criteria(tmp_path: Path) -> None:
    row = {"image": "a.jpg", "candidate": "One.", "ratings": {name: [1, 2, 5] for name in CRITERIA}, "category": "IC"}
    benchmark = load_benchmark("mmhe", write_lines(tmp_path / "a.jsonl", row))
    (item,) = benchmark.items
    assert isinstance(item, RatedCaption)
    assert (benchmark.aspects, item.category, item.ratings["clarity"]) == (CRITERIA, "IC", (1, 2, 5))


def test_best_of_three_becomes_pairs(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", TRIPLET, {**TRIPLET, "best": [0, 2, 2], "category": None})
    found = [item for item in load_benchmark("mmhe-pairs", path).items if isinstance(item, PreferencePair)]
    better = [(item.captions[item.label or 0], item.captions[1 - (item.label or 0)]) for item in found]
    assert better == [
        ("Two.", "One."),
        ("Two.", "Three."),
        *(("One.", "Two."), ("One.", "Three.")),
        *[("Three.", "One."), ("Three.", "Two.")] * 2,
    ]
    assert {item.label for item in found} == {0, 1}  # the better one is not always in the same place
    assert (found[0].category, found[2].category) == ("VQA", "")
    assert (found[0].image, found[0].image_id) == (tmp_path / "a.jpg", "a.jpg")
