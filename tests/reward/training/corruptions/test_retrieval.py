"""Captions of other images in bands of similarity."""

import numpy as np
import pytest
from PIL import Image

from reward.backbones import load_clip
from reward.errors import DataError
from reward.training.corruptions import retrieval
from reward.training.corruptions.retrieval import clip_embeddings, retrieve_negatives
from tests.toys.small_clip import small_clip

COUNT = 200
rng = np.random.default_rng(0)
EMBEDDINGS = rng.normal(size=(COUNT, 16)).astype(np.float32)
IMAGES = EMBEDDINGS + rng.normal(size=(COUNT, 16)).astype(np.float32)
CAPTIONS = [f"caption {row}" for row in range(COUNT)]
IMAGE_IDS = [row // 2 for row in range(COUNT)]  # two captions an image


def cosine(left, right):
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def texts(found, row, band):
    return [negative.text for negative in found[row] if negative.category == f"retrieved_{band}"]


def test_bands_are_what_a_full_sort_gives():
    """Checked against all pairs, compared one by one."""
    found = retrieve_negatives(CAPTIONS, IMAGE_IDS, EMBEDDINGS, IMAGES, cap=COUNT)
    table = {
        (row, other): cosine(IMAGES[row], EMBEDDINGS[other])
        for row in range(COUNT)
        for other in range(COUNT)
        if IMAGE_IDS[row] != IMAGE_IDS[other]
    }
    quantiles = np.quantile(list(table.values()), [0.5, 0.9, 0.99])
    for row in range(0, COUNT, 17):
        everything = [negative.text for negative in found[row]]
        assert len(everything) == len(set(everything))
        others = {f"caption {o}": value for (r, o), value in table.items() if r == row}
        for band, low, high in zip(("easy", "medium", "hard"), quantiles, [*quantiles[1:], 2], strict=True):
            wanted = {name for name, value in others.items() if low + 1e-5 < value < high - 1e-5}
            allowed = {name for name, value in others.items() if low - 1e-5 < value < high + 1e-5}
            assert wanted <= set(texts(found, row, band)) <= allowed


def test_draws_do_not_depend_on_the_blocks_but_on_the_seed(monkeypatch):
    def drawn(seed=0):
        return list(retrieve_negatives(CAPTIONS, IMAGE_IDS, EMBEDDINGS, IMAGES, cap=5, seed=seed))

    assert {len(texts(drawn(), row, band)) for row in range(9) for band in ("easy", "medium")} == {5}
    assert drawn(seed=1) != drawn(seed=2)
    assert drawn(seed=2**80) == drawn(seed=2**80)
    whole = drawn()
    monkeypatch.setattr(retrieval, "_AT_A_TIME", 7 * COUNT)
    assert drawn() == whole


def test_the_same_words_are_never_wrong_and_found_once(monkeypatch):
    captions = ["A dog.", "a  dog.", "A cat.", "A cat.", "A cow."]
    vectors = [[1, 0.0], [1, 0.01], [1, 0.1], [1, 0.1], [1, 0.2]]
    monkeypatch.setattr(retrieval, "BANDS", {"easy": (0, 0.1), "medium": (0.1, 0.2), "hard": (0.2, 1)})
    found = retrieve_negatives(captions, [1, 2, 3, 4, 5], vectors, vectors)
    names = [sorted(negative.text for negative in found[row]) for row in range(3)]
    assert names == [["A cat.", "A cow."], ["A cat.", "A cow."], ["A cow.", "A dog."]]
    alike = [[0.1, 0.7], [0.1, 0.7]]  # a similarity of one is within hard
    assert [negative.category for negative in retrieve_negatives(["a", "b"], [1, 2], alike, alike)[0]] == [
        "retrieved_hard"
    ]


def test_clip_towers_embed_captions_and_images(tmp_path):
    towers = load_clip(small_clip(tmp_path))
    texts, images = (
        ["a star", "a ring", "two dogs"],
        [Image.new("RGB", (8, 8), name) for name in ("red", "green", "blue")],
    )
    captions, pictures = clip_embeddings(towers, texts, images, batch_size=2)
    assert captions.shape == pictures.shape == (3, 8)
    single, none = clip_embeddings(towers, ["two dogs"])
    assert len(none) == 0
    np.testing.assert_allclose(single[0], captions[2], atol=1e-6)
    np.testing.assert_allclose(clip_embeddings(towers, [], images[2:])[1][0], pictures[2], atol=1e-6)
    found = retrieve_negatives(texts, [1, 2, 3], captions, pictures)
    assert any(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a", "b"], [1, 1], [[1.0], [1.0]]), "of one image or text"),
        ((["a", "A"], [1, 2], [[1.0], [1.0]]), "of one image or text"),
        ((["a", "b"], [1, 2], [[1.0], [0.0]]), r"embeddings\[1\] is zero"),
        ((["a", "b"], [1, 2], [[1.0], [float("nan")]]), "not finite"),
    ],
)
def test_bad_data_is_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        retrieve_negatives(*arguments, arguments[2])
