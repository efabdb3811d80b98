"""Captions of other images in bands of similarity."""

import numpy as np
import pytest

from reward.errors import DataError
from reward.training.corruptions import retrieved
from reward.training.corruptions.retrieved import retrieve_negatives
from reward.training.corruptions.sampler import Negative

COUNT = 200
rng = np.random.default_rng(0)
EMBEDDINGS = rng.normal(size=(COUNT, 16)).astype(np.float32)
IMAGES = EMBEDDINGS + rng.normal(size=(COUNT, 16)).astype(np.float32)
CAPTIONS = [f"caption {row}" for row in range(COUNT)]
IMAGE_IDS = np.arange(COUNT) // 2  # two captions an image


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def texts(negatives, band):
    return {negative.text for negative in negatives if negative.category == f"retrieved_{band}"}


def test_bands_are_quantiles_of_the_similarity_to_captions_of_other_images():
    found = retrieve_negatives(CAPTIONS, IMAGE_IDS, EMBEDDINGS, IMAGES, cap=COUNT)
    table = unit(IMAGES) @ unit(EMBEDDINGS).T
    others = IMAGE_IDS[:, None] != IMAGE_IDS
    bounds = [*np.quantile(table[others], [0.5, 0.9, 0.99]), 2.0]
    for row in range(0, COUNT, 17):
        assert len(found[row]) == len({negative.text for negative in found[row]})
        for place, band in enumerate(("easy", "medium", "hard")):
            low, high = bounds[place : place + 2]
            surely = others[row] & (table[row] > low + 1e-5) & (table[row] < high - 1e-5)
            perhaps = others[row] & (table[row] > low - 1e-5) & (table[row] < high + 1e-5)
            wanted, allowed = ({CAPTIONS[other] for other in np.flatnonzero(each)} for each in (surely, perhaps))
            assert wanted <= texts(found[row], band) <= allowed


def test_draws_do_not_depend_on_the_blocks_but_on_the_seed(monkeypatch):
    def drawn(seed):
        return list(retrieve_negatives(CAPTIONS, IMAGE_IDS, EMBEDDINGS, IMAGES, cap=5, seed=seed))

    whole = drawn(2**80)
    assert {len(texts(whole[row], band)) for row in range(9) for band in ("easy", "medium")} == {5}
    assert drawn(1) != whole
    monkeypatch.setattr(retrieved, "_AT_A_TIME", 7 * COUNT)
    assert drawn(2**80) == whole


def test_the_same_words_are_never_wrong_and_found_once(monkeypatch):
    captions = ["A dog.", "a  dog.", "A cat.", "A cat.", "A cow."]
    vectors = [[1, 0.0], [1, 0.01], [1, 0.1], [1, 0.1], [1, 0.2]]
    monkeypatch.setattr(retrieved, "BANDS", {"easy": (0, 0.1), "medium": (0.1, 0.2), "hard": (0.2, 1)})
    found = retrieve_negatives(captions, [1, 2, 3, 4, 5], vectors, vectors)
    names = [sorted(negative.text for negative in found[row]) for row in range(3)]
    assert names == [["A cat.", "A cow."], ["A cat.", "A cow."], ["A cow.", "A dog."]]
    alike = [[0.1, 0.7], [0.1, 0.7]]  # a similarity of one is within hard
    assert retrieve_negatives(["a", "b"], [1, 2], alike, alike)[0] == [Negative("b", "retrieved_hard")]


@pytest.mark.parametrize(
    ("captions", "image_ids", "vectors", "message"),
    [
        (["a", "A"], [1, 2], [[1.0], [1.0]], "of one image or text"),
        (["a", "b"], [1, 2], [[1.0], [0.0]], r"embeddings\[1\] is zero or not finite"),
    ],
)
def test_bad_data_is_refused(captions, image_ids, vectors, message):
    with pytest.raises(DataError, match=message):
        retrieve_negatives(captions, image_ids, vectors, vectors)
