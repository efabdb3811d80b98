"""Captions of a folder: what costs one image alone, and what the same call does about it."""

import pytest
from PIL import Image

from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.judges import Usage
from reward.judges.chat import Sampled
from tests.toys.json_lines import read_lines


class Captioner:
    """Writes captions of all images but the first two: a server refuses one, and spells half of an emoji for another.

    Asked again, it writes what it could not.
    """

    name = "model"

    def __init__(self):
        self.usage, self.asked = Usage(), []

    def check(self):
        return self.name

    def sample(self, images, n, sampling, have):
        for row, _ in images:
            faults = {0: "the server refused", 1: [Sampled("A \ud83d star.")] * n}
            good = [Sampled("a" + " red" * length + " star") for length in range(n)]
            yield row, good if row in self.asked else faults.get(row, good)
            self.asked.append(row)


@pytest.mark.parametrize(
    ("settings", "caption", "further"),
    [
        ({"metric": "length", "n": 2, "keep_candidates": True}, "a red star", {"c.jsonl.candidates.jsonl"}),
        ({}, "a star", set()),  # without a metric, one caption an image
    ],
)
def test_an_image_without_a_caption_costs_itself_alone_and_is_tried_again(tmp_path, settings, caption, further):
    for number in range(4):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    images, captioner = read_images(tmp_path), Captioner()

    def captions():
        caption_images(images, captioner, tmp_path / "c.jsonl", **settings)
        return [row["caption"] for row in read_lines(tmp_path / "c.jsonl")]

    assert captions() == [None, None, caption, caption]
    errors = [row.get("error") for row in read_lines(tmp_path / "c.jsonl")]
    assert errors[0] == "the server refused"
    assert "lone surrogate at position 2" in errors[1]
    assert captions() == [caption] * 4
    assert captioner.asked == [0, 1, 2, 3, 0, 1]  # nothing twice but what failed
    assert {path.name for path in tmp_path.glob("c.jsonl.*")} == {"c.jsonl.summary.json", *further}
