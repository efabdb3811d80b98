"""Scores with a cache on disk are those without, and a second pass computes nothing that is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.metrics.clipscore.scorer import ClipScorer
from reward.scoring import score_dataset
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.small_clip import small_clip


@pytest.fixture(scope="module")
def images() -> list[Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 255, (4, 96, 96, 3), dtype=np.uint8)
    return [Image.fromarray(each) for each in pixels]


def samples(images: list[Image.Image], word: str) -> list[CaptionSample]:
    references = [["a red star"], ["a blue circle on a lawn", "grass"], [], ["a star"] * 2]
    return [
        CaptionSample(f"a {word} star {number} and {place}", image, references[place])
        for place, image in enumerate(images)
        for number in range(3)
    ]


@pytest.mark.parametrize("name", ["vela", "clipscore", "refclipscore", "clipscore_avg"])
def test_scores_are_those_without_a_cache(name: str, images: list[Image.Image], tmp_path: Path) -> None:
    plain = load_scorer(name, device="cpu")
    for word, known in (("red", 0), ("blue", 4)):  # each time another process, and new captions
        scorer: Any = load_scorer(name, device="cpu", cache=tmp_path / "cache", cache_size="5MB")
        table, expected = scorer.score(samples(images, word)), plain.score(samples(images, word))
        assert np.allclose(table.scores, expected.scores, rtol=0, atol=1e-6, equal_nan=True)
        assert table.errors == expected.errors
        section = scorer.caches["images"]
        if name != "refclipscore":  # without references, an image is not read for it
            assert (section.hits, section.misses) == (known, 4 - known)


def test_other_weights_have_other_entries(images: list[Image.Image], tmp_path: Path) -> None:
    folder = small_clip(tmp_path / "clip")
    one, two = (ClipScorer.from_pretrained(str(folder), device="cpu", cache=tmp_path / "cache") for _ in range(2))
    one.score(samples(images, "red"))
    with torch.no_grad():
        next(two.model.clip.visual.parameters()).mul_(1.01)
    two.use_cache(tmp_path / "cache")
    two.score(samples(images, "red"))
    assert (two.caches["images"].hits, two.caches["images"].misses) == (0, 4)
    half = ClipScorer.from_pretrained(str(folder), device="cpu", dtype="bfloat16", cache=tmp_path / "cache")
    half.score(samples(images, "red"))
    assert half.caches["images"].hits == 0


def test_a_second_pass_over_a_data_set_decodes_no_image(images: list[Image.Image], tmp_path: Path) -> None:
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number}.jpg")
    (tmp_path / "broken.jpg").write_bytes((tmp_path / "0.jpg").read_bytes()[:400])
    names = [*(f"{number}.jpg" for number in range(4)), "broken.jpg", "absent.jpg"]
    for word, decoded in (("red", 4), ("blue", 0)):
        rows = [{"image": name, "candidate": f"a {word} star {number}"} for name in names for number in range(2)]
        data, output = write_lines(tmp_path / f"{word}.jsonl", rows), tmp_path / f"{word}.out.jsonl"
        summary = score_dataset(data, "clipscore", output, device="cpu", cache=tmp_path / "cache")
        assert summary.errors == {"image": 4}
        assert summary.images_decoded == decoded
        plain = score_dataset(data, "clipscore", tmp_path / f"{word}.plain.jsonl", device="cpu")
        assert (plain.images_decoded, plain.errors) == (4, {"image": 4})
        kept, without = read_lines(output), read_lines(plain.output)
        assert [row["error"] for row in kept] == [row["error"] for row in without]
        scores = [[row["clipscore"] or 0 for row in table] for table in (kept, without)]
        assert np.allclose(*scores, rtol=0, atol=1e-6)
