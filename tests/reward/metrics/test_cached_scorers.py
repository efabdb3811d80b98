"""Scores with a cache on disk are those without, and a second pass computes nothing that is kept."""

import numpy as np
import pytest
from PIL import Image

from reward import CaptionSample, load_scorer
from reward.scoring import score_dataset
from tests.toys.json_lines import write_lines

PIXELS = np.random.default_rng(0).integers(0, 255, (4, 96, 96, 3), dtype=np.uint8)
REFERENCES = [["a red star"], ["a blue circle on a lawn", "grass"], [], ["a star"] * 2]


def samples(word):
    """Three captions with that word for each of four images."""
    images = [Image.fromarray(each) for each in PIXELS]
    rows = list(zip(images, REFERENCES, strict=True))
    return [CaptionSample(f"a {word} star, {n}", image, known) for image, known in rows for n in range(3)]


@pytest.mark.parametrize("name", ["vela", "refclipscore", "clipscore_avg"])
def test_scores_are_those_without_a_cache(name, tmp_path):
    plain = load_scorer(name, device="cpu")
    for word, known in (("red", 0), ("blue", 4)):  # each time another process, and new captions
        scorer = load_scorer(name, device="cpu", cache=tmp_path / "cache", cache_size="5MB")
        table, expected = scorer.score(samples(word)), plain.score(samples(word))
        assert np.allclose(table.scores, expected.scores, rtol=0, atol=1e-6, equal_nan=True)
        assert table.errors == expected.errors
        if name != "refclipscore":  # which reads no image that has no references
            assert (scorer.caches["images"].hits, scorer.caches["images"].misses) == (known, 4 - known)


def test_a_second_pass_over_a_data_set_decodes_no_image(tmp_path):
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"{number}.jpg")
    (tmp_path / "broken.jpg").write_bytes((tmp_path / "0.jpg").read_bytes()[:400])
    names = [*(f"{number}.jpg" for number in range(4)), "broken.jpg", "absent.jpg"]
    for word, decoded in (("red", 4), ("blue", 0)):
        rows = [{"image": name, "candidate": f"a {word} star {n}"} for name in names for n in range(2)]
        data = write_lines(tmp_path / f"{word}.jsonl", rows)
        output = tmp_path / f"{word}.out.jsonl"
        summary = score_dataset(data, "clipscore", output, device="cpu", cache=tmp_path / "cache")
        assert (summary.errors, summary.images_decoded) == ({"image": 4}, decoded)
