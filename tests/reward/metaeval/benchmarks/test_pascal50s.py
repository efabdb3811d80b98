"""Pascal-50S: pairs by category, of whose references five are drawn by a seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reward.metaeval.benchmarks import load_benchmark

CATEGORIES = ("HC", "HI", "HM", "MM")


def pair(number: int, references: int) -> dict[str, Any]:
    row = {"image": f"2008_{number}.jpg", "captions": ["A dog.", "A cat."], "label": number % 2}
    return row | {"references": [f"reference {k} of {number}" for k in range(references)]}


def write(folder: Path, *, references: int = 48) -> Path:
    """A pair of each category."""
    pairs = {category: [pair(number, references)] for number, category in enumerate(CATEGORIES)}
    folder.mkdir(exist_ok=True)
    (folder / "pascal_50s.json").write_text(json.dumps(pairs))
    return folder


def items(path: Path, **options: Any) -> list[Any]:
    return list(load_benchmark("pascal-50s", path, **options).rows.itertuples())


def test_pairs_by_category(tmp_path: Path) -> None:
    found = items(write(tmp_path), part="all references")
    assert [(item.category, item.label) for item in found] == list(zip(CATEGORIES, (0, 1, 0, 1), strict=True))
    assert found[2].captions == ("A dog.", "A cat.")
    assert found[2].references == tuple(f"reference {k} of 2" for k in range(48))
    assert found[2].images[0] == tmp_path / "2008_2.jpg"
    (tmp_path / "JPEGImages").mkdir()
    elsewhere = items(tmp_path / "pascal_50s.json", images=tmp_path / "JPEGImages")
    assert elsewhere[1].images[0] == tmp_path / "JPEGImages" / "2008_1.jpg"


def test_five_references_are_drawn_anew_in_each_part_and_the_same_each_time(tmp_path: Path) -> None:
    write(tmp_path)
    draws = [items(tmp_path, part=f"draw {number}") for number in range(1, 6)]
    drawn = [tuple(item.references for item in found) for found in draws]
    assert {len(set(references)) for found in drawn for references in found} == {5}
    assert len(set(drawn)) == 5
    assert drawn[0] == tuple(item.references for item in items(tmp_path))
    numbers = [[int(text.split()[1]) for text in found[0]] for found in drawn]
    assert numbers[0] != [int(text.split()[1]) for text in drawn[0][1]]  # each pair has a draw of its own
    write(tmp_path, references=5)
    assert items(tmp_path)[0].references == tuple(f"reference {k} of 0" for k in range(5))  # taken as they are
