"""Composite from its sheets: the first three captions count, and the first is no reference of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import RatedCaption, load_benchmark

# As from Mechanical Turk: other columns in front, and two rows of sums at the end.
EIGHT = """\
HITId;Input.image_url;Input.text1;Input.text2;Input.text3;Answer.Q1Answer;Answer.Q2Answer;Answer.Q3Answer
h;http://x.org/a/1_a.jpg;A dog  runs;one;"two; three";5;2;1
;;;;;5;2;1
;;;;;;;
"""
OTHER = """\
HITId;Input.image_url;Input.text1;Input.text2;Input.text3;Input.text4;Answer.Q1Answer;Answer.Q2Answer;Answer.Q3Answer
h;http://x.org/{name};A dog;one;two;three;5;2;1
"""
IMAGES = ("flickr8k/1_a.jpg", "flickr30k/2.jpg", "coco/COCO_val2014_000000000003.jpg")


@pytest.fixture
def sheets(tmp_path: Path) -> Path:
    (tmp_path / "8k_correctness.csv").write_text(EIGHT, encoding="utf-8-sig")
    (tmp_path / "30k_correctness.csv").write_text(OTHER.format(name="2.jpg"))
    (tmp_path / "coco_correctness.csv").write_text(OTHER.format(name="COCO_val2014_000000000003.jpg"))
    return tmp_path


def items(path: Path, **options: Path) -> list[RatedCaption]:
    found = load_benchmark("composite", path, **options).items  # type: ignore[arg-type]
    return [item for item in found if isinstance(item, RatedCaption)]


def test_sheets(sheets: Path) -> None:
    found = items(sheets)
    texts = (("A dog runs", "one", "two; three"), *[("A dog", "one", "two")] * 2)
    assert [(item.candidate, item.ratings["overall"], item.image_id, item.category) for item in found] == [
        (text, (rating,), image, image.partition("/")[0])
        for image, own in zip(IMAGES, texts, strict=True)
        for text, rating in zip(own, (5, 2, 1), strict=True)
    ]
    assert not any(item.references for item in found)


def test_references_of_the_corpora_without_the_candidate(sheets: Path) -> None:
    (sheets / "Flickr8k.token.txt").write_text("1_a.jpg#0\tA dog runs .\n1_a.jpg#1\tThe dog  is out .\n\n")
    (sheets / "results_20130124.token").write_text("2.jpg#0\tOther\x85caption.\n9.jpg#0\tMore.\n")
    notes = [{"image_id": 3, "id": 1, "caption": "A Dog."}, {"image_id": 3, "id": 2, "caption": "Two dogs."}]
    (sheets / "captions_val2014.json").write_text(json.dumps({"annotations": notes}))
    found = items(sheets)
    expected = ("The dog is out .",), ("Other caption.",), ("Two dogs.",)
    assert [item.references for item in found] == [texts for texts in expected for _ in range(3)]
    (sheets / "captions_val2014.json").write_text(json.dumps({"annotations": [{"caption": "A."}]}))
    with pytest.raises(DataError, match=r"captions_val2014.json, annotation 1 has no field 'image_id'"):
        items(sheets)


def test_images_in_one_folder_or_in_those_of_the_archives(sheets: Path, tmp_path: Path) -> None:
    (sheets / "Flicker8k_Dataset").mkdir()
    (sheets / "Flicker8k_Dataset" / "1_a.jpg").write_bytes(b"")
    found = [item.image for item in items(sheets)]
    assert (found[0], found[3]) == (sheets / "Flicker8k_Dataset" / "1_a.jpg", sheets / "2.jpg")
    (tmp_path / "all").mkdir()
    assert items(sheets, images=tmp_path / "all")[0].image == tmp_path / "all" / "1_a.jpg"


def test_bad_sheets(sheets: Path) -> None:
    path = sheets / "8k_correctness.csv"
    path.write_text(EIGHT.replace(";5;2;1\n;;", ";5;6;1\n;;"))
    with pytest.raises(DataError, match=r"row 1: Answer.Q2Answer must be a number from 1 to 5, got '6'"):
        items(sheets)
    path.write_text(EIGHT.replace("Answer.Q3Answer", "Answer"))
    with pytest.raises(DataError, match=r"must have the columns Input.image_url, Input.text1 to Input.text3 and"):
        items(sheets)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"cannot read .*8k_correctness.csv"):
        items(sheets)
    path.unlink()
    with pytest.raises(DataError, match=r"lacks 8k_correctness.csv\. Composite needs"):
        items(sheets)


def test_table_of_polos(tmp_path: Path) -> None:
    path = tmp_path / "en_test_composite_da2.csv"
    path.write_text("imgid,mt,refs,score\na.jpg,A dog.,\"['A cat.']\",0.5\na.jpg,A bird.,\"['A cat.']\",1\n")
    (tmp_path / "images").mkdir()
    for data in (tmp_path, path):
        found = items(data)
        assert [(item.candidate, item.ratings["overall"]) for item in found] == [("A dog.", (0.5,)), ("A bird.", (1,))]
        assert found[0].image == tmp_path / "images" / "a.jpg"
