"""LongCapVLCP's form: pairs that are built, written, and read back as a benchmark; and the pairs of the scenes."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.errors import OutputError
from reward.images import load_image
from reward.metaeval import load_benchmark
from reward.scenes import CATEGORIES, make_pair_dataset
from reward.training.corruptions.benchmark import build_pairs, write_pairs

RED, BLUE = Image.new("RGB", (6, 5), "red"), Image.new("RGB", (6, 5), "blue")
LONG = "There is a dog on the sand beside one boat. " * 10 + "Two men carry a net, and a sign says OPEN."
LATE, EARLY = LONG.replace("Two men", "Six men"), LONG.replace("There is a dog", "There is a cat", 1)


def row(
    category: str = "counting", correct: str = LONG, incorrect: str | None = LATE, image: Any = RED
) -> dict[str, Any]:
    return {"image": image, "correct": correct, "incorrect": incorrect, "category": category}


def test_tokens_are_counted_as_open_clip_writes_them() -> None:
    from open_clip import SimpleTokenizer

    tokenizer = SimpleTokenizer()
    for correct, incorrect in (("A red star.", "A red stars."), ("One.", "One. Two."), (LONG, LATE)):
        place = first_different_token(correct, incorrect)
        first, second = (tokenizer([text], context_length=200)[0].tolist() for text in (correct, incorrect))
        assert place is not None
        assert first[:place] == second[:place]
        assert first[place] != second[place]
    assert clip_length(LONG) == tokenizer([LONG], context_length=200)[0].tolist().index(tokenizer.eot_token_id)
    pair = build_pairs([row()]).pairs[0]  # a CLIP cannot tell the two captions apart
    assert pair["error_token"] >= CLIP_TOKENS
    assert tokenizer([pair["correct"]]).tolist() == tokenizer([pair["incorrect"]]).tolist()


def test_what_is_dropped_is_counted_by_reason() -> None:
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
    anywhere = [row("scene text", incorrect=EARLY), row("action", incorrect=EARLY)]
    assert build_pairs(anywhere).kept == {"scene text": 1}
    assert build_pairs(anywhere, beyond=4).kept == {"scene text": 1, "action": 1}
    assert build_pairs(anywhere, beyond=5).kept == {"scene text": 1}


def test_written_pairs_are_read_back(tmp_path: Path) -> None:
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
        rows = load_benchmark("longcapvlcp", source).rows
        assert rows["captions"].tolist() == [(LONG, LATE)] * 5
        reds = [load_image(image).getpixel((0, 0))[0] > 128 for (image,) in rows["images"]]  # type: ignore[index,operator]
        assert reds == [True, True, False, False, False]
        assert rows["image_id"].nunique() == 3
    line = json.loads((tmp_path / "moved" / path.name).read_text().splitlines()[0])
    assert line["error_token"] == first_different_token(LONG, LATE)
    with pytest.raises(OutputError, match="exists already"):
        write_pairs(built.pairs, tmp_path / "moved")


@pytest.mark.parametrize("part", ["short", "long"])
def test_scenes_as_pairs(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward.metaeval.benchmarks.scenes.EACH", 2)  # the whole takes long
    found = load_benchmark("scenes-pairs", part=part).rows
    for correct, incorrect in found["captions"]:
        if part == "short":
            assert max(clip_length(correct), clip_length(incorrect)) <= 60
        else:
            assert (first_different_token(correct, incorrect) or 0) >= 77
    assert found["label"].tolist() == [0] * 14
    assert found["category"].tolist() == [name for name in CATEGORIES for _ in range(2)]
    assert found["image_id"].nunique() == 14
    expected = make_pair_dataset(1, seed=7, long=part == "long", categories=["action"])[0]
    assert found["captions"][4] == (expected["correct"], expected["incorrect"])
