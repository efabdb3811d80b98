"""LongCapVLCP's form: pairs that are built, written, read back and scored; and the pairs of the scenes."""

from __future__ import annotations

import json
from io import BytesIO

import pytest
from PIL import Image

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length
from reward.errors import DataError, OutputError
from reward.images import load_image
from reward.metaeval import build_pairs, first_different_token, load_benchmark, write_pairs
from reward.scenes import CATEGORIES, make_pair_dataset
from tests.reward.metaeval.small_benchmarks import write_lines

RED, BLUE = Image.new("RGB", (6, 5), "red"), Image.new("RGB", (6, 5), "blue")
LONG = "There is a dog on the sand beside one boat. " * 10 + "Two men carry a net, and a sign says OPEN."


LATE, EARLY = LONG.replace("Two men", "Six men"), LONG.replace("There is a dog", "There is a cat", 1)


def row(category="counting", correct=LONG, incorrect=LATE, image=RED):
    return {"image": image, "correct": correct, "incorrect": incorrect, "category": category}


def test_tokens_are_counted_as_open_clip_writes_them():
    from open_clip import SimpleTokenizer

    tokenizer = SimpleTokenizer()
    for correct, incorrect in (("A red star.", "A red stars."), ("One.", "One. Two."), (LONG, LATE)):
        place = first_different_token(correct, incorrect)
        first, second = (tokenizer([text], context_length=200)[0].tolist() for text in (correct, incorrect))
        assert first[:place] == second[:place]
        assert first[place] != second[place]
    assert clip_length(LONG) == tokenizer([LONG], context_length=200)[0].tolist().index(tokenizer.eot_token_id)
    # where one of them ends is where they differ
    assert first_different_token("A red star.", "A red star") == first_different_token("A red star", "A red star.") == 4
    built = build_pairs([row()])  # a CLIP cannot tell the two captions apart
    pair = built.pairs[0]
    assert pair["error_token"] >= CLIP_TOKENS
    assert tokenizer([pair["correct"]]).tolist() == tokenizer([pair["incorrect"]]).tolist()
    assert (pair["category"], pair["image"].getpixel((0, 0))) == ("counting", (255, 0, 0))
    assert (built.kept, built.dropped) == ({"counting": 1}, {})


def test_what_is_dropped_is_counted_by_reason():
    rows = [row(incorrect=EARLY), row(incorrect=None), row(incorrect=" "), row(incorrect=LONG.upper())]
    rows += [row(correct="A dog."), row(image="nowhere.png"), row(image=None)]
    built = build_pairs(rows)
    assert len(built.pairs) == 0
    assert built.dropped == {
        "error before token 77": 1,
        "no incorrect caption": 2,
        "caption left unchanged": 1,  # for the tokenizer, which ignores case
        "caption ends before token 77": 1,
        "image cannot be read": 2,
    }


def test_errors_of_scene_text_may_lie_anywhere_and_the_threshold_is_a_parameter():
    rows = [row("scene text", incorrect=EARLY), row("action", incorrect=EARLY)]
    rows.append(row("scene text", "A dog there.", "A cat there."))
    assert build_pairs(rows).kept == {"scene text": 2}
    assert build_pairs(rows, exempt=()).kept == {}
    assert build_pairs(rows, beyond=4).kept == {"scene text": 2, "action": 1}
    assert build_pairs(rows, beyond=5).kept == {"scene text": 2}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"image": RED, "correct": LONG}, "row 1 has no field 'category'; it has: image, correct"),
        (row(correct=" "), "row 1: correct must be a text that is not blank, got ' '"),
        (row(category=3), "row 1: category must be text, got 3"),
    ],
)
def test_rows_that_are_no_captions_are_refused(bad, message):
    with pytest.raises(DataError, match=message):
        build_pairs([row(), bad])


def test_written_pairs_are_read_back(tmp_path):
    jpeg = BytesIO()
    BLUE.save(jpeg, "JPEG")
    BLUE.save(tmp_path / "blue.png")
    images = [RED, RED.copy(), jpeg.getvalue(), tmp_path / "blue.png", {"bytes": jpeg.getvalue(), "path": None}]
    built = build_pairs([row(image=image) for image in images])
    path = write_pairs(built.pairs, tmp_path / "pairs")
    files = sorted((tmp_path / "pairs" / "images").iterdir())
    assert sorted(file.suffix for file in files) == [".jpeg", ".png", ".png"]  # each image once
    assert jpeg.getvalue() in [file.read_bytes() for file in files]  # as it came
    (tmp_path / "pairs").rename(tmp_path / "moved")
    for source in (tmp_path / "moved", tmp_path / "moved" / path.name):
        items = load_benchmark("longcapvlcp", source).items
        assert [item.captions for item in items] == [(LONG, LATE)] * 5
        assert [load_image(item.image).getpixel((0, 0))[0] > 128 for item in items] == [True, True, False, False, False]
        assert len({item.image_id for item in items}) == 3
    line = json.loads((tmp_path / "moved" / path.name).read_text().splitlines()[0])
    assert line["error_token"] == first_different_token(LONG, LATE)
    with pytest.raises(OutputError, match="exists already"):
        write_pairs(built.pairs, tmp_path / "moved")


GOOD = row("action", image="red.png")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "does not exist"),
        ([{"image": "red.png", "correct": "A dog."}], "mine.jsonl, line 1 has no field 'incorrect'; it has: image, "),
        ([GOOD, "{broken"], "line 2 is not valid JSON"),
        ([GOOD, GOOD | {"incorrect": None}], "mine.jsonl, line 2: incorrect must be text, got None"),
        ([GOOD, GOOD | {"category": ""}], "mine.jsonl, line 2: category must be a text that is not blank, got ''"),
        ([GOOD, GOOD | {"incorrect": LONG}], "mine.jsonl, line 2: correct and incorrect caption are the same"),
        ([GOOD, GOOD | {"image": "lost.png"}], "mine.jsonl, line 2: there is no image file .*lost.png"),
        ([GOOD, GOOD | {"image": 7}], "mine.jsonl, line 2: image must be text, got 7"),
    ],
)
def test_files_that_hold_no_pairs_are_refused(tmp_path, lines, message):
    RED.save(tmp_path / "red.png")
    if lines is not None:
        write_lines(tmp_path / "mine.jsonl", *lines)
    with pytest.raises(DataError, match=message):
        load_benchmark("longcapvlcp", tmp_path / "mine.jsonl")


def test_pairs_as_a_benchmark(tmp_path):
    (tmp_path / "pictures").mkdir()
    for name, image in (("red", RED), ("blue", BLUE)):
        image.save(tmp_path / "pictures" / f"{name}.png")
    rows = [{"image": f"{name}.png", "correct": "Two dogs.", "incorrect": "Three dogs.", "category": "counting"}
            for name in ("red", "blue")]  # fmt: skip
    path = write_lines(tmp_path / "pairs.jsonl", *rows)
    for data in (path, tmp_path):
        items = load_benchmark("longcapvlcp", data, images=tmp_path / "pictures").items
        assert {(item.captions, item.label, item.category) for item in items} == {
            (("Two dogs.", "Three dogs."), 0, "counting")
        }
        assert items[0].image == str(tmp_path / "pictures" / "red.png")  # not held decoded
        assert [load_image(item.image).getpixel((0, 0)) for item in items] == [(255, 0, 0), (0, 0, 255)]
    with pytest.raises(DataError, match=r"line 1: there is no image file .*red.png"):
        load_benchmark("longcapvlcp", path)


@pytest.mark.parametrize("part", ["short", "long"])
def test_scenes_as_pairs(part, monkeypatch):
    monkeypatch.setattr("reward.metaeval.benchmarks.scenes.PAIRS", 2)  # the whole takes long
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
    with pytest.raises(DataError, match="the scenes are made on the spot"):
        load_benchmark("scenes-pairs", ".")
