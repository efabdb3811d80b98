"""Retrieved negatives: captions of other images, in bands of similarity to the image that they are to mislead."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reward.errors import DataError
from reward.training.corruptions.sampler import Negative, comparable

if TYPE_CHECKING:
    from reward.backbones.clip import ClipTowers
    from reward.data.samples import ImageLike


# Ranges of similarity, from a lower to an upper bound; the upper one is part of `hard` only. Bounds are quantiles of
# the cosine similarity over all pairs of an image and a caption of another one. The paper chose its ranges by
# inspection and does not print them; these are ours. Captions below the median are too easy and are not used.
BANDS = {"easy": (0.5, 0.9), "medium": (0.9, 0.99), "hard": (0.99, 1.0)}
_SAMPLED_PAIRS = 1_000_000  # pairs from which quantiles are read
_AT_A_TIME = 1 << 26  # similarities that are in memory


class Retrieved(Sequence[list[Negative]]):
    """Negatives of N captions, made when looked up."""

    def __init__(self, captions: Sequence[str], rows: npt.NDArray[np.int32]) -> None:
        self._captions = captions
        self._rows = rows  # (N, 3, cap): indices of captions, -1 where there is none

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        """The negatives of one caption; a slice is not taken."""
        negatives = []
        for name, rows in zip(BANDS, self._rows[index], strict=True):
            for row in rows[rows >= 0].tolist():
                negatives.append(Negative(self._captions[row], f"retrieved_{name}"))
        return negatives


def retrieve_negatives(
    captions: Sequence[str],
    image_ids: Sequence[Hashable],
    embeddings: npt.ArrayLike,
    queries: npt.ArrayLike,
    *,
    cap: int = 30,
    seed: int = 0,
) -> Retrieved:
    """Finds for each caption wrong ones among the captions of other images, in three bands of similarity, `BANDS`.

    Captions of the same image are excluded, and so is every caption with the same words as one of them. Equal captions
    are used once. Within a band, up to `cap` captions are drawn at random: the nearest ones alone would be the upper
    edge of the band, and for `hard` those most likely to be true.

    All pairs are compared: time grows with N squared, memory with N times `cap`.

    Args:
        captions: N captions.
        image_ids: for each caption its image: equal for captions of the same image (a content hash, for example).
        embeddings: (N, D) embeddings of the captions, of any length; normalised here.
        queries: (N, D) what is searched with: the embedding of each caption's image.
        cap: largest number of negatives per band.
        seed: decides which captions of a band are drawn.

    Returns:
        N lists of `Negative`, category `"retrieved_easy"`, `"retrieved_medium"` or `"retrieved_hard"`.

    Raises:
        DataError: an embedding is zero or not finite, or all captions are of one image or have the same words.

    Source: BEiTScore, section 3.1 (retrieval-based negatives) and appendix A (up to 30 a level).

    Example:
        >>> vectors = [[1.0, 0.1], [1.0, 0.3], [0.1, 1.0]]
        >>> retrieve_negatives(["a dog", "a puppy", "a car"], [1, 2, 3], vectors, vectors)[0]
        [Negative(text='a puppy', category='retrieved_hard')]
    """
    import pandas as pd

    keys = _normalised(embeddings, "embeddings")
    searched = _normalised(queries, "queries")
    # Images and texts as numbers: equal captions have one text, for which the first row with it stands.
    image = pd.factorize(np.array(image_ids, dtype=object))[0]
    text = pd.factorize(np.array([comparable(caption) for caption in captions], dtype=object))[0]
    first = np.unique(text, return_index=True)[1]  # the row where each text stands first
    if image.max() == 0 or len(first) == 1:
        raise DataError(
            "all captions are of one image or text; negatives are captions of other images with other words"
        )
    texts_of_image = pd.Series(text).groupby(image).unique()
    candidates = keys[first]
    bounds = _bounds(searched, candidates, image, image[first], seed)
    rows = np.full((len(captions), len(BANDS), cap), -1, np.int32)
    # In blocks of rows, of which all similarities fit into memory; draws depend on the row alone, not on its block.
    block = max(1, _AT_A_TIME // len(candidates))
    for start in range(0, len(captions), block):
        for row, similarity in enumerate(searched[start : start + block] @ candidates.T, start):
            similarity[texts_of_image[image[row]]] = -np.inf  # what is said of the image itself is not wrong
            rng = random.Random(f"capreward retrieved {seed} {row}")
            for band, (low, high) in enumerate(bounds):
                texts_of_band = np.flatnonzero((similarity >= low) & (similarity < high))
                drawn = rng.sample(range(len(texts_of_band)), min(cap, len(texts_of_band)))
                rows[row, band, : len(drawn)] = first[texts_of_band[drawn]]
    return Retrieved(captions, rows)


def clip_embeddings(
    towers: ClipTowers, captions: Sequence[str], images: Sequence[ImageLike] = (), *, batch_size: int = 64
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Embeds captions and images with the towers of a CLIP model.

    Args:
        towers: what `reward.backbones.load_clip` gives, on any device.
        captions: N captions; text beyond the model's context is cut off.
        images: M images, such as one per caption.
        batch_size: captions or images at a time.

    Returns:
        Embeddings (N, D) of the captions and (M, D) of the images.
    """
    import torch

    from reward.backbones.clip import stacked_on
    from reward.data.images import load_image

    device = next(towers.parameters()).device
    empty = np.zeros((0, towers.embed_dim), np.float32)
    texts, pictures = [empty], [empty]
    with torch.inference_mode():
        for batch in _batches(captions, batch_size):
            texts.append(towers.encode_text(towers.tokenize(batch)[0].to(device)).float().cpu().numpy())
        for batch in _batches(images, batch_size):
            pixels = stacked_on(device, [towers.preprocess(load_image(image)) for image in batch])
            pictures.append(towers.encode_image(pixels).float().cpu().numpy())
    return np.concatenate(texts), np.concatenate(pictures)


def _bounds(
    queries: npt.NDArray[np.float32],
    candidates: npt.NDArray[np.float32],
    image_of_query: npt.NDArray[np.int64],
    image_of_candidate: npt.NDArray[np.int64],
    seed: int,
) -> list[tuple[float, float]]:
    """The similarities that bound each band; the upper ones are no part of it."""
    rng = np.random.default_rng(seed % (1 << 63))
    sizes = (len(queries), len(candidates))
    if sizes[0] * sizes[1] <= _SAMPLED_PAIRS:
        left, right = np.indices(sizes).reshape(2, -1)
    else:
        left = rng.integers(sizes[0], size=_SAMPLED_PAIRS)
        right = rng.integers(sizes[1], size=_SAMPLED_PAIRS)
    differ = image_of_query[left] != image_of_candidate[right]
    left, right = left[differ], right[differ]
    similarities = []
    for start in range(0, len(left), 65536):  # all pairs at once would be gigabytes
        block = slice(start, start + 65536)
        similarities.append((queries[left[block]] * candidates[right[block]]).sum(axis=1))
    similarity = np.concatenate(similarities)
    bounds = []
    for low, high in BANDS.values():
        lower, upper = np.quantile(similarity, [low, high]) - 1e-6  # rounding
        if high == 1:
            upper = 2.0  # above every similarity: a sample may miss the most similar pair
        bounds.append((float(lower), float(upper)))
    return bounds


def _normalised(vectors: npt.ArrayLike, name: str) -> npt.NDArray[np.float32]:
    vectors = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(bad):
        raise DataError(
            f"{name}[{bad[0]}] is zero or not finite, and so are {len(bad) - 1} others; a similarity needs a direction"
        )
    normalised: npt.NDArray[np.float32] = vectors / lengths
    return normalised


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
