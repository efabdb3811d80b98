"""`compare`: two captioners on the same images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reward.errors import DataError
from reward.metaeval.benchmarks.own_ratings import load_captions
from reward.metaeval.two_captioners import compare_captioners
from reward.registry import MetricSource
from tests.reward.cli.conftest import Run

LENGTHS = [3, 1, 4, 1, 5]
LENGTH = [MetricSource("length")]


def written(path: Path, lengths: list[int | None], images: list[str], reward: bool = False) -> Path:
    path.parent.mkdir(exist_ok=True)
    rows = [
        {"image": image, "caption": None if length is None else " ".join(["star"] * length)}
        | ({"reward": length} if reward else {})
        for image, length in zip(images, lengths, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


IMAGES = [f"photos/{number}.png" for number in range(5)]
OTHERS = {
    "the same paths, another order": (IMAGES[::-1], [2, 2, 2, 2, 2]),
    "another folder": ([f"elsewhere/{number}.png" for number in range(5)], [2, 2, 2, 2, 2]),
    "names without ending, one more": ([str(number) for number in range(6)], [2, 2, 2, 2, 2, 9]),
    "two captions an image": (IMAGES * 2, [1] * 5 + [3] * 5),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("reward", [False, True])
def test_images_are_matched_and_compared_in_pairs(tmp_path: Path, other: str, reward: bool) -> None:
    images, lengths = OTHERS[other]
    first = load_captions(written(tmp_path / "a.jsonl", LENGTHS, IMAGES, reward))
    second = load_captions(written(tmp_path / "b.jsonl", lengths, images, reward))
    (found,) = compare_captioners([first, second], [] if reward else LENGTH, resamples=50)
    assert found.scores.tolist() == [LENGTHS, [2] * 5]
    assert found.difference.value == pytest.approx(np.mean(LENGTHS) - 2)
    assert found.difference.low < found.difference.value < found.difference.high
    assert found.win_rate.value == 3 / 5
    assert "5 images are in both" in found.note


def test_what_has_no_score_is_left_out_and_said(tmp_path: Path) -> None:
    first = load_captions(written(tmp_path / "a.jsonl", [*LENGTHS[:4], None], IMAGES))
    second = load_captions(written(tmp_path / "b.jsonl", [2, 2, 1], IMAGES[2:]))
    (found,) = compare_captioners([first, second], LENGTH)
    assert found.scores.tolist() == [[4, 1], [2, 2]]
    assert "3 images are in both, by path; 2 of them have scores of both; 1 captions have none" in found.note
    with pytest.raises(DataError, match="no column reward: give --metric"):
        list(compare_captioners([first, second]))
    strangers = load_captions(written(tmp_path / "c.jsonl", [2, 2], ["x.png", "y.png"]))
    with pytest.raises(DataError, match="0 images are in both"):
        list(compare_captioners([first, strangers], LENGTH))


def test_the_command_prints_a_table_and_writes_one_page(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for image in IMAGES:
        Image.new("RGB", (8, 8), "red").save(tmp_path / image)
    one, other = written(tmp_path / "a.jsonl", LENGTHS, IMAGES), written(tmp_path / "b.jsonl", [2] * 5, IMAGES)
    out, _ = run("compare", f"old={one}", f"new={other}", "-m", "length", "-o", tmp_path / "page" / "index.html")
    assert "old - new" in out
    assert "60.0" in out
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count("data:image/jpeg;base64,") == 5
    assert page.index("old is better") < page.index("old (5.000): star") < page.index("new is better")
    assert "compare takes two files, got 1" in run("compare", one, code=2)[1]
