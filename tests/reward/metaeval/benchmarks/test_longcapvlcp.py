"""Pairs in LongCapVLCP's form as a benchmark, and the pairs of the scenes, which have the same form."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from reward.errors import DataError
from reward.images import load_image
from reward.metaeval import evaluate
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.pair_data import build_pairs, clip_length, first_different_token, read_pairs, write_pairs
from reward.scenes import CATEGORIES, make_pair_dataset


def write_pictures(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        Image.new("RGB", (4, 3), name).save(folder / f"{name}.png")
    return folder


def pair(**changed):
    row = {"image": "red.png", "correct": "Two dogs.", "incorrect": "Three dogs.", "category": "counting"}
    return row | changed


def write_lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_pairs_with_image_files(tmp_path):
    write_pictures(tmp_path, "red", "blue")
    path = write_lines(tmp_path / "pairs.jsonl", pair(), pair(image="blue.png", category="action"))
    for data in (path, tmp_path):
        found = load_benchmark("longcapvlcp", data)
        assert [item.category for item in found.items] == ["counting", "action"]
        assert found.items[0].captions == ("Two dogs.", "Three dogs.")
        assert {item.label for item in found.items} == {0}
        assert [load_image(item.image).getpixel((0, 0)) for item in found.items] == [(255, 0, 0), (0, 0, 255)]


def test_images_elsewhere(tmp_path):
    write_pictures(tmp_path / "pictures", "red")
    path = write_lines(tmp_path / "pairs.jsonl", pair())
    (item,) = load_benchmark("longcapvlcp", path, images=tmp_path / "pictures").items
    assert load_image(item.image).size == (4, 3)
    with pytest.raises(DataError, match=r"row 0: there is no image file .*red.png"):
        load_benchmark("longcapvlcp", path)


def test_what_the_builder_of_pairs_writes_is_read(tmp_path):
    pictures = [Image.new("RGB", (4, 3), colour) for colour in ("red", "blue")]
    rows = [{"image": picture, "caption": "Two dogs.", "category": "counting"} for picture in pictures]
    made = build_pairs(rows, lambda caption, *_: caption.replace("Two", "Three"), beyond=0).pairs
    write_pairs(made, tmp_path / "written")
    made.save_to_disk(str(tmp_path / "saved"))
    for folder in ("written", "saved"):
        found = load_benchmark("longcapvlcp", tmp_path / folder)
        assert {item.captions for item in found.items} == {("Two dogs.", "Three dogs.")}
        assert len({item.image_id for item in found.items}) == 2
        assert [load_image(item.image).tobytes() for item in found.items] == [
            load_image(picture).tobytes() for picture in made["image"]
        ]


def test_images_are_not_held_decoded(tmp_path):
    write_pictures(tmp_path, "red")
    (item,) = load_benchmark("longcapvlcp", write_lines(tmp_path / "pairs.jsonl", pair())).items
    assert item.image == str(tmp_path / "red.png")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"correct": None}, "row 0: correct must be a text"),
        ({"incorrect": "Two dogs."}, "correct and incorrect caption are the same"),
        ({"category": ""}, "row 0: category must be a text"),
        ({"image": "green.png"}, "there is no image file"),
    ],
)
def test_bad_pairs_are_refused(changed, message, tmp_path):
    write_pictures(tmp_path, "red")
    with pytest.raises(DataError, match=message):
        load_benchmark("longcapvlcp", write_lines(tmp_path / "pairs.jsonl", pair(**changed)))


def test_a_missing_column_is_named(tmp_path):
    path = write_lines(tmp_path / "pairs.jsonl", {"image": "red.png", "correct": "x", "category": "y"})
    with pytest.raises(DataError, match="lacks the column 'incorrect'"):
        load_benchmark("longcapvlcp", path)


def test_images_of_a_data_set_in_memory_start_where_told(tmp_path):
    write_pictures(tmp_path, "red")
    path = write_lines(tmp_path / "pairs.csv")
    path.write_text("image,correct,incorrect,category\nred.png,Two dogs.,Three dogs.,counting\n")
    assert read_pairs(path, images=tmp_path)[0]["image"].size == (4, 3)


@pytest.mark.parametrize("part", ["short", "long"])
def test_scenes_as_pairs(part, monkeypatch):
    monkeypatch.setattr("reward.metaeval.benchmarks.scenes_pairs.SIZE", 2)  # the whole takes long
    found = load_benchmark("scenes-pairs", part=part)
    assert found.spec.checked == "own"
    for item in found.items:
        correct, incorrect = item.captions
        assert item.label == 0
        if part == "short":
            assert max(clip_length(correct), clip_length(incorrect)) <= 60
        else:
            assert first_different_token(correct, incorrect) >= 77
    assert [item.category for item in found.items] == [name for name in CATEGORIES for _ in range(2)]
    assert len({item.image_id for item in found.items}) == 14
    expected = make_pair_dataset(1, seed=7, long=part == "long", categories=["action"])[0]
    assert found.items[4].captions == (expected["correct"], expected["incorrect"])


def test_scenes_take_no_path(tmp_path):
    with pytest.raises(DataError, match="the scenes are made on the spot"):
        load_benchmark("scenes-pairs", tmp_path)


def test_equal_scores_are_wrong_as_in_the_paper(tmp_path):
    """Its table 6 gives a CLIP that sees neither error an accuracy of 0 and an AUC of 50."""
    captions = {"image": "a.png", "captions": ["A star.", "A disc."], "label": 0, "category": "noun/adjective"}
    write_lines(tmp_path / "pairs.jsonl", captions, captions)
    found = evaluate(load_benchmark("longcapvlcp", tmp_path / "pairs.jsonl"), np.full((2, 2), 0.7), resamples=10)
    assert found.estimates[found.headline].value == 0
    assert found.details[found.headline]["auc"] == 0.5
