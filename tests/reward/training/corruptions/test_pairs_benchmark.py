"""LongCapVLCP's form: pairs that are built, written, and read back as a benchmark; and the pairs of the scenes."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.data.images import load_image
from reward.errors import OutputError
from reward.judges import ScriptedJudge
from reward.metaeval import load_benchmark
from reward.scenes import CATEGORIES, make_pair_dataset
from reward.training.corruptions.benchmark import PairBuild, make_pairs_benchmark

RED, BLUE = Image.new("RGB", (6, 5), "red"), Image.new("RGB", (6, 5), "blue")
LONG = "There is a dog on the sand beside one boat. " * 10 + "Two men carry a net, and a sign says OPEN."
LATE, EARLY = LONG.replace("Two men", "Six men"), LONG.replace("There is a dog", "There is a cat", 1)


def make(folder: Path, images: Any, answer: str, caption: str = LONG, **options: Any) -> PairBuild:
    judge = ScriptedJudge(lambda question: answer)
    return make_pairs_benchmark([caption] * len(images), images, judge, folder, **options)


def test_tokens_are_counted_as_open_clip_writes_them() -> None:
    from open_clip import SimpleTokenizer

    tokenizer = SimpleTokenizer()
    for correct, incorrect in (("A red star.", "A red stars."), ("One.", "One. Two."), (LONG, LATE)):
        place = first_different_token(correct, incorrect)
        first, second = (tokenizer([text], context_length=200)[0].tolist() for text in (correct, incorrect))
        assert place is not None
        assert (first[:place], first[place] == second[place]) == (second[:place], False)
    assert clip_length(LONG) == tokenizer([LONG], context_length=200)[0].tolist().index(tokenizer.eot_token_id)
    assert (first_different_token(LONG, LATE) or 0) >= CLIP_TOKENS  # a CLIP cannot tell the two captions apart
    assert tokenizer([LONG]).tolist() == tokenizer([LATE]).tolist()


@pytest.mark.parametrize(
    ("caption", "answer", "options", "reason"),
    [
        (LONG, EARLY, {}, "error before token 77"),
        (LONG, EARLY, {"beyond": 5}, "error before token 5"),
        (LONG, "", {}, "no incorrect caption"),
        ("A dog.", "A cat.", {}, "caption ends before token 77"),
        (LONG, EARLY, {"beyond": 4}, None),
        (LONG, EARLY, {"categories": ["scene text"]}, None),
    ],
)
def test_what_is_dropped_is_counted_by_reason(
    caption: str, answer: str, options: dict[str, Any], reason: str | None, tmp_path: Path
) -> None:
    options = {"categories": ["action"], **options}
    built = make(tmp_path / "made", [RED], answer, caption, **options)
    assert built.kept == ({} if reason else dict.fromkeys(options["categories"], 1))
    assert built.dropped == ({reason: 1} if reason else {})
    assert (tmp_path / "made" / "pairs.jsonl").exists() == (reason is None)


def test_written_pairs_are_read_back(tmp_path: Path) -> None:
    jpeg = BytesIO()
    BLUE.save(jpeg, "JPEG")
    BLUE.save(tmp_path / "blue.png")
    images = [RED, RED.copy(), jpeg.getvalue(), tmp_path / "blue.png", {"bytes": jpeg.getvalue(), "path": None}]
    assert make(tmp_path / "pairs", images, LATE, categories=["counting"]).kept == {"counting": 5}
    files = sorted((tmp_path / "pairs" / "images").iterdir())
    assert sorted(file.suffix for file in files) == [".jpeg", ".png", ".png"]  # each image once
    assert jpeg.getvalue() in [file.read_bytes() for file in files]  # as it came
    (tmp_path / "pairs").rename(tmp_path / "moved")
    for source in (tmp_path / "moved", tmp_path / "moved" / "pairs.jsonl"):
        rows = load_benchmark("longcapvlcp", source).rows
        assert rows["captions"].tolist() == [(LONG, LATE)] * 5
        reds = [load_image(image).getpixel((0, 0))[0] > 128 for (image,) in rows["images"]]  # type: ignore[index,operator]
        assert reds == [True, True, False, False, False]
        assert rows["image_id"].nunique() == 3
    line = json.loads((tmp_path / "moved" / "pairs.jsonl").read_text().splitlines()[0])
    assert line["error_token"] == first_different_token(LONG, LATE)
    with pytest.raises(OutputError, match="exists already"):
        make(tmp_path / "moved", [RED], LATE)


@pytest.mark.parametrize("part", ["short", "long"])
def test_scenes_as_pairs(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward.metaeval.benchmarks.scenes.EACH", 1)  # the whole takes long
    found = load_benchmark("scenes-pairs", part=part).rows
    assert found["label"].tolist() == [0] * 7
    assert found["category"].tolist() == [*CATEGORIES]
    assert found["image_id"].nunique() == 7
    expected = make_pair_dataset(1, seed=7, long=part == "long", categories=["action"])[0]
    assert found["captions"][2] == (expected["correct"], expected["incorrect"])
