"""FLEUR's options: two readings of the second decimal, and images padded to squares."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from PIL import Image

from reward import CaptionSample
from reward.errors import ConfigError
from reward.judges import Answer, LocalJudge
from reward.metrics.fleur.scorer import FleurScorer
from tests.rating_judges import strict_llava
from tests.reward.metrics.fleur.test_scorer import PICTURE, certain, scores
from tests.toy_judges import RecordingJudge


@pytest.mark.parametrize(
    ("text", "always", "written"),
    [("0.8", 0.745, 0.7), ("0.80", 0.745, 0.7), ("0.85", 0.745, 0.745), ("0.853", 0.745, 0.745), ("1.0", 1.0, 1.0)],
)
def test_both_readings_of_the_second_decimal(text: str, always: float, written: float) -> None:
    logs = [{token: 0.0} for token in (*text, "</s>")]
    if text[0] == "0":
        logs[2] = {"8": math.log(0.8), "3": math.log(0.2)}
        logs[3] = {"5": math.log(0.9), "</s>": math.log(0.1)}
    answer = Answer(text, (*text, "</s>"), tuple(logs))
    for reading, smoothed in (("always", always), ("written", written)):
        assert scores(answer, second_decimal=reading) == pytest.approx([smoothed, float(text)])
    assert scores(answer)[0] == pytest.approx(always)
    with pytest.raises(ConfigError, match="second_decimal must be 'always' or 'written', got 'never'"):
        scores(answer, second_decimal="never")


def test_one_decimal_has_a_score_where_the_server_leaves_out_the_end(caplog: pytest.LogCaptureFixture) -> None:
    logs = ({"0": 0.0}, {".": 0.0}, {"8": math.log(0.9), "7": math.log(0.1)})
    answer = Answer("0.8", tuple("0.8"), logs)
    assert scores(answer, second_decimal="written") == pytest.approx([0.79, 0.8])
    assert caplog.text == ""
    assert scores(answer) == pytest.approx([0.79, 0.8])
    assert "1 answers with one decimal are smoothed over that decimal alone" in caplog.text


@pytest.mark.parametrize("size", [(16, 8), (8, 16), (9, 9)])
def test_images_are_padded_to_squares_where_that_is_asked_for(size: tuple[int, int], tmp_path: Path) -> None:
    image = Image.new("RGB", size, "red")
    samples = [CaptionSample("One.", image), CaptionSample("Two.", image)]
    judge = RecordingJudge(certain("0.50"))
    scorer = FleurScorer(judge, pad_images=True)
    scorer.score(samples)
    padded = judge.asked[0].image
    assert isinstance(padded, Image.Image)
    assert padded.size == (max(size),) * 2
    assert padded is judge.asked[1].image, "captions of one image share it"
    middle = (max(size) // 2,) * 2
    assert padded.getpixel(middle) == (255, 0, 0)
    corner = (122, 116, 104) if size[0] != size[1] else (255, 0, 0)
    assert padded.getpixel((0, 0)) == padded.getpixel((max(size) - 1,) * 2) == corner
    FleurScorer(judge).score(samples[:1])
    assert judge.asked[-1].image is image
    scorer.save_pretrained(tmp_path)
    again = FleurScorer.from_pretrained(tmp_path, judge=judge)
    assert again.pad_images
    assert again.fingerprint != FleurScorer(judge).fingerprint


def test_padding_leaves_a_broken_image_to_the_judge(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    samples = [CaptionSample("A.", tmp_path / "broken.png"), CaptionSample("A.", PICTURE)]
    scorer = FleurScorer(LocalJudge(*strict_llava("0")), pad_images=True)
    table = scorer.score(samples)
    assert list(table.errors) == [0]
    assert "broken.png" in table.errors[0]
