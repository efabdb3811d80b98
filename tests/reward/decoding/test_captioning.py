"""Captions of a folder: what goes on after Ctrl-C, and what costs one image alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.decoding.captioners import Sampling, Written
from reward.decoding.captioning import CaptioningSummary, caption_images
from reward.decoding.photos import ImageRow, read_images
from reward.judges import Usage
from reward.judges.chat import Sampled
from reward.metrics.words.scorer import LengthScorer
from reward.scoring.runs import ScoringInterrupted
from tests.toys.json_lines import read_lines


class Captioner:
    """Writes captions of all images but the first, for which it must be up."""

    name = "model"

    def __init__(self) -> None:
        self.usage, self.is_up, self.asked, self.half = Usage(), False, 0, False

    def check(self) -> str:
        return self.name

    def sample(self, images: Iterable[tuple[int, Path]], n: int, sampling: Sampling, have: Any) -> Written:
        for row, _ in images:
            self.asked += n
            if row == 0 and not self.is_up:
                yield row, "the server refused"
            elif row == 1 and self.half:
                yield row, [Sampled("A \ud83d star.")] * n
            else:
                yield row, [Sampled("a" + " red" * length + " star") for length in range(n)]


def four_images(folder: Path) -> list[ImageRow]:
    (folder / "images").mkdir()
    for number in range(4):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / "images" / f"{number}.png")
    return read_images(folder / "images")


def test_a_caption_that_no_file_can_hold_costs_its_image_alone(tmp_path: Path) -> None:
    """A server's JSON may spell half of an emoji."""
    captioner = Captioner()
    captioner.is_up = captioner.half = True
    summary = caption_images(four_images(tmp_path), captioner, tmp_path / "c.jsonl", metric="length", n=2)  # type: ignore[arg-type]
    assert (summary.captioned, summary.to_try_again) == (3, 1)
    assert "lone surrogate at position 2" in next(iter(summary.problems))
    assert [row["caption"] for row in read_lines(tmp_path / "c.jsonl")] == ["a red star", None, *["a red star"] * 2]


@pytest.mark.parametrize(("answers", "metric"), [(True, "length"), (False, "unigram")])
def test_ctrl_c_while_captions_are_scored(
    answers: bool, metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run goes on, also where the server answers at last, or another metric chooses."""
    rows = [ImageRow(row.path, ("A star.",)) for row in four_images(tmp_path)]
    captioner = Captioner()

    def run(metric: str) -> CaptioningSummary:
        return caption_images(rows, captioner, tmp_path / "c.jsonl", metric=metric, n=2, part_rows=1)  # type: ignore[arg-type]

    score, calls = LengthScorer.score, 0

    def stopped(self: LengthScorer, samples: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return score(self, samples, **options)

    monkeypatch.setattr(LengthScorer, "score", stopped)
    with pytest.raises(ScoringInterrupted):
        run("length")
    captioner.is_up = answers
    summary = run(metric)
    assert (summary.captioned, summary.to_try_again) == ((4, 0) if answers else (3, 1))
    assert captioner.asked == 8 + 2  # nothing twice but what was refused
    left = {"c.jsonl.summary.json"} if answers else {"c.jsonl.summary.json", "c.jsonl.partial"}
    assert {path.name for path in tmp_path.glob("c.jsonl.*")} == left
