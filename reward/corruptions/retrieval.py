"""Retrieved negatives: captions of other images, in bands of similarity to the image or caption they are to mislead."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reward.corruptions.sampler import Negative, comparable
from reward.errors import ConfigError, DataError

if TYPE_CHECKING:
    import torch

    from reward.backbones.clip import ClipTowers
    from reward.samples import ImageLike

__all__ = ["BANDS", "Bands", "Retrieved", "clip_embeddings", "retrieve_negatives"]

BANDS = ("easy", "medium", "hard")
Embed: TypeAlias = "Callable[[Sequence[str]], npt.ArrayLike]"

_SAMPLED_PAIRS = 1_000_000  # pairs from which quantiles are read
_EMBED_BATCH = 64
_MULTIPLIERS = (-7046029254386353131, -4417276706812531889, -49064778989728563)  # odd, of 64 bits: a mixing function
_KEY_MASK = (1 << 31) - 1


@dataclass(frozen=True)
class Bands:
    """Ranges of similarity, each from a lower to an upper bound; the upper one is part of `hard` only.

    The paper chose its ranges by inspection and does not print them; the defaults are ours. Captions below the median
    are too easy and are not used, and `hard` is the closest hundredth. If captions of other images are often true of an
    image as well, lower the upper bound of `hard`.

    Args:
        easy, medium, hard: bounds.
        quantiles: bounds are quantiles (0 to 1) of the similarity over all pairs of a query and a caption of another
            image, read from a sample of a million pairs; False: they are cosine similarities (-1 to 1).

    Raises:
        ConfigError: a bound is out of range, or a lower one not below its upper one.

    Example:
        >>> Bands(hard=(0.98, 0.9995)).hard
        (0.98, 0.9995)
    """

    easy: tuple[float, float] = (0.5, 0.9)
    medium: tuple[float, float] = (0.9, 0.99)
    hard: tuple[float, float] = (0.99, 1.0)
    quantiles: bool = True

    def __post_init__(self) -> None:
        lowest = 0.0 if self.quantiles else -1.0
        for name in BANDS:
            low, high = getattr(self, name)
            if not lowest <= low < high <= 1:
                raise ConfigError(
                    f"band {name!r} must be (low, high) with {lowest} <= low < high <= 1, got {low, high}"
                )


class Retrieved(Sequence[list[Negative]]):
    """Negatives of N captions, made when looked up; can be a source of a `NegativeSampler`.

    Attributes:
        bounds: the similarities that bound each band.
        counts: number of negatives by category, `"retrieved_easy"` and so on.
    """

    def __init__(
        self, captions: Sequence[str], rows: npt.NDArray[np.int32], bounds: dict[str, tuple[float, float]]
    ) -> None:
        self._captions = captions
        self._rows = rows  # (N, 3, cap): indices of captions, -1 where there is none
        self.bounds = bounds
        totals = (rows >= 0).sum((0, 2))
        self.counts = {f"retrieved_{name}": int(total) for name, total in zip(BANDS, totals, strict=True)}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return [
            Negative(self._captions[row], f"retrieved_{name}")
            for name, rows in zip(BANDS, self._rows[index].tolist(), strict=True)
            for row in rows
            if row >= 0
        ]


def retrieve_negatives(
    captions: Sequence[str],
    image_ids: Sequence[Hashable],
    embeddings: npt.ArrayLike | Embed,
    queries: npt.ArrayLike | None = None,
    *,
    bands: Bands | None = None,
    cap: int = 30,
    seed: int = 0,
    device: torch.device | str = "cpu",
    block: int = 1024,
) -> Retrieved:
    """Finds for each caption wrong ones among the captions of other images, in three bands of cosine similarity.

    Captions of the same image are excluded, and so is every caption with the same words as one of them. Equal captions
    are used once. Within a band, up to `cap` captions are drawn at random: the nearest ones alone would be the upper
    edge of the band, and for `hard` those most likely to be true.

    All pairs are compared in blocks. Time grows with N squared, memory with N times `cap` plus the block squared.

    Args:
        captions: N captions.
        image_ids: for each caption its image: equal for captions of the same image (a content hash, for example).
        embeddings: (N, D) embeddings of the captions, or a function that gives (B, D) for a list of B captions. Any
            length; normalised here.
        queries: (N, D) what is searched with, usually the embedding of each caption's image; None searches with the
            caption's own embedding.
        bands: the bounds of the bands.
        cap: largest number of negatives per band.
        seed: decides which captions of a band are drawn, whatever the block size.
        device: where similarities are computed.
        block: rows and columns of a block.

    Returns:
        N lists of `Negative`, category `"retrieved_easy"`, `"retrieved_medium"` or `"retrieved_hard"`.

    Raises:
        ConfigError: `cap` or `block` below 1.
        DataError: no captions, all of one image, lengths differ, or embeddings that are not finite, non-zero vectors.

    Source: BEiTScore, section 3.1 (retrieval-based negatives) and appendix A (up to 30 a level).

    Example:
        >>> retrieved = retrieve_negatives(
        ...     ["a dog", "a puppy", "a car"], [1, 2, 3], [[1.0, 0.1], [1.0, 0.3], [0.1, 1.0]],
        ...     bands=Bands(easy=(-1, 0.5), medium=(0.5, 0.9), hard=(0.9, 1), quantiles=False),
        ... )
        >>> [(negative.text, negative.category) for negative in retrieved[0]]
        [('a car', 'retrieved_easy'), ('a puppy', 'retrieved_hard')]
    """
    import torch

    if cap < 1 or block < 1:
        raise ConfigError(f"cap and block must be at least 1, got {cap} and {block}")
    if not len(captions):
        raise DataError("no captions to retrieve negatives from")
    if len(image_ids) != len(captions):
        raise DataError(f"{len(captions)} captions but {len(image_ids)} image_ids; give one per caption")
    keys = np.asarray(_embedded(captions, embeddings) if callable(embeddings) else embeddings, np.float32)
    keys = _normalised(keys, len(captions), "embeddings")
    searched = keys if queries is None else _normalised(np.asarray(queries, np.float32), len(captions), "queries")
    if searched.shape[1] != keys.shape[1]:
        raise DataError(
            f"queries have {searched.shape[1]} dimensions, embeddings {keys.shape[1]}; use one model for both"
        )
    pool = _Pool(captions, image_ids)
    bands = bands or Bands()
    bounds = {name: getattr(bands, name) for name in BANDS}
    if bands.quantiles:
        bounds = _bounds_of_quantiles(bounds, searched, keys, pool, seed)
    candidates = torch.from_numpy(keys[pool.rows]).to(device)
    rows = np.full((len(captions), len(BANDS), cap), -1, np.int32)
    for start in range(0, len(captions), block):
        stop = min(start + block, len(captions))
        places = _search(
            torch.from_numpy(searched[start:stop]).to(device), start, candidates, pool, bounds, cap, seed, block
        )
        rows[start:stop] = np.where(places >= 0, pool.rows[places], -1)
    return Retrieved(captions, rows, bounds)


def clip_embeddings(
    towers: ClipTowers, captions: Sequence[str], images: Sequence[ImageLike] | None = None, *, batch_size: int = 64
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None]:
    """Embeds captions, and images where given, with the towers of a CLIP model.

    Args:
        towers: what `reward.backbones.load_clip` gives, on any device.
        captions: N captions; text beyond the model's context is cut off.
        images: M images, such as one per caption.
        batch_size: captions or images at a time.

    Returns:
        Embeddings (N, D) of the captions and (M, D) of the images, or None without images.

    Raises:
        ImageError: an image cannot be read; the message names it.

    Example:
        >>> from open_clip import SimpleTokenizer
        >>> from reward.backbones.clip import ClipTowers, make_bpe_tokenizer
        >>> from reward.backbones.clip_config import build_clip
        >>> vision = {"image_size": 8, "layers": 1, "width": 64, "patch_size": 8}
        >>> text = {"context_length": 9, "width": 8, "heads": 1, "layers": 1}
        >>> clip = build_clip({"embed_dim": 4, "vision_cfg": vision, "text_cfg": text})  # or load_clip("org/name")
        >>> towers = ClipTowers(clip, make_bpe_tokenizer(SimpleTokenizer(context_length=9)))
        >>> clip_embeddings(towers, ["a star", "a ring"])[0].shape
        (2, 4)
    """
    import torch

    from reward.images import load_image

    device = next(towers.parameters()).device
    texts, pictures = [], []
    with torch.inference_mode():
        for batch in _batches(captions, batch_size):
            texts.append(towers.encode_text(towers.tokenize(batch)[0].to(device)).float().cpu().numpy())
        for batch in _batches(images or (), batch_size):
            pixels = torch.stack([towers.preprocess(load_image(image)) for image in batch]).to(device)
            pictures.append(towers.encode_image(pixels).float().cpu().numpy())
    empty = np.zeros((0, towers.embed_dim), np.float32)
    return np.concatenate([empty, *texts]), None if images is None else np.concatenate([empty, *pictures])


class _Pool:
    """The captions that can be retrieved, one of each text, and the ones that each image rules out.

    Attributes:
        rows: (U,) row of the captions where each text stands first.
        image: (N,) number of the image of each row.
        ruled_out: for each image the places 0..U-1 of its captions' texts.
    """

    def __init__(self, captions: Sequence[str], image_ids: Sequence[Hashable]) -> None:
        numbers: dict[Hashable, int] = {}
        places: dict[str, int] = {}
        rows: list[int] = []
        ruled_out: list[set[int]] = []
        self.image = np.empty(len(captions), np.int64)
        for row, (caption, image) in enumerate(zip(captions, image_ids, strict=True)):
            text = comparable(caption)
            if text not in places:
                places[text] = len(rows)
                rows.append(row)
            number = numbers.setdefault(image, len(numbers))
            if number == len(ruled_out):
                ruled_out.append(set())
            ruled_out[number].add(places[text])
            self.image[row] = number
        if len(numbers) < 2:
            raise DataError("all captions are of one image; negatives are captions of others (see image_ids)")
        if len(rows) < 2:
            raise DataError("all captions have the same words; negatives are captions with others")
        self.rows = np.array(rows)
        self.ruled_out = [np.array(sorted(places)) for places in ruled_out]

    def excluded(self, start: int, stop: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Pairs (row - start, place) that must not be retrieved, for rows from `start` to `stop`."""
        lists = [self.ruled_out[number] for number in self.image[start:stop]]
        return np.repeat(np.arange(stop - start), [len(places) for places in lists]), np.concatenate(lists)


def _search(
    queries: torch.Tensor,
    first: int,
    candidates: torch.Tensor,
    pool: _Pool,
    bounds: dict[str, tuple[float, float]],
    cap: int,
    seed: int,
    block: int,
) -> npt.NDArray[np.int64]:
    """Places (B, 3, cap) of candidates drawn from each band for each query, -1 where a band holds fewer."""
    import torch

    count = len(queries)
    best = torch.full((len(BANDS), count, cap), -1, dtype=torch.int64, device=queries.device)  # keys of those kept
    place = best.clone()
    excluded_rows, excluded_places = (torch.from_numpy(part) for part in pool.excluded(first, first + count))
    numbers = torch.arange(first, first + count, device=queries.device)
    for start in range(0, len(candidates), block):
        part = candidates[start : start + block]
        similarity = queries @ part.T
        within = (excluded_places >= start) & (excluded_places < start + len(part))
        similarity[
            excluded_rows[within].to(queries.device), excluded_places[within].to(queries.device) - start
        ] = -math.inf
        places = torch.arange(start, start + len(part), device=queries.device)
        chance = _random_keys(numbers, places, seed)
        for band, name in enumerate(BANDS):
            low, high = bounds[name]
            inside = similarity >= low
            inside &= similarity <= high + 1e-5 if name == "hard" else similarity < high  # 1e-5: rounding at 1.0
            merged = torch.cat([best[band], torch.where(inside, chance, -1)], 1)
            merged_places = torch.cat([place[band], places.expand(count, -1)], 1)
            best[band], chosen = merged.topk(cap, dim=1)
            place[band] = merged_places.gather(1, chosen)
    drawn: npt.NDArray[np.int64] = torch.where(best >= 0, place, -1).permute(1, 0, 2).cpu().numpy()
    return drawn


def _random_keys(rows: torch.Tensor, columns: torch.Tensor, seed: int) -> torch.Tensor:
    """Random whole numbers >= 0 for pairs of a row and a column, by a hash that does not depend on the blocks."""
    first, second, third = _MULTIPLIERS
    offset = np.array([seed % (1 << 63)], np.int64) * third  # NumPy wraps around as torch does; Python would not
    mixed = (rows * first + int(offset[0]))[:, None] + (columns * second)[None, :]
    mixed ^= mixed >> 31
    mixed *= third
    mixed ^= mixed >> 29
    mixed *= first
    return mixed >> 32 & _KEY_MASK


def _bounds_of_quantiles(
    bands: dict[str, tuple[float, float]],
    queries: npt.NDArray[np.float32],
    keys: npt.NDArray[np.float32],
    pool: _Pool,
    seed: int,
) -> dict[str, tuple[float, float]]:
    rng = np.random.default_rng(seed % (1 << 63))
    rows, places = len(queries), len(pool.rows)
    if rows * places <= _SAMPLED_PAIRS:
        left, right = (part.ravel() for part in np.indices((rows, places)))
    else:
        left, right = rng.integers(rows, size=_SAMPLED_PAIRS), rng.integers(places, size=_SAMPLED_PAIRS)
    others = pool.image[left] != pool.image[pool.rows[right]]
    left, right = left[others], pool.rows[right[others]]
    similarity = np.concatenate(
        [
            np.einsum("nd,nd->n", queries[left[start : start + 65536]], keys[right[start : start + 65536]])
            for start in range(0, len(left), 65536)
        ]
    )
    bounds = {}
    for name, (low, high) in bands.items():
        lower, upper = np.quantile(similarity, [low, high]).tolist()
        # A bound of 0 or 1 means the extremes of all pairs, which a sample misses.
        bounds[name] = (-1.0 - 1e-5 if low == 0 else lower, 1.0 if high == 1 else upper)
    return bounds


def _embedded(captions: Sequence[str], embed: Embed) -> npt.NDArray[np.float32]:
    parts = []
    for batch in _batches(captions, _EMBED_BATCH):
        part = np.asarray(embed(batch), np.float32)
        if part.ndim != 2 or len(part) != len(batch):
            raise DataError(
                f"the embedding function must give ({len(batch)}, D) for {len(batch)} captions, got {part.shape}"
            )
        parts.append(part)
    return np.concatenate(parts)


def _normalised(vectors: npt.NDArray[np.float32], count: int, name: str) -> npt.NDArray[np.float32]:
    if vectors.ndim != 2 or len(vectors) != count:
        raise DataError(f"{name} must have the shape ({count}, D), one row per caption, got {vectors.shape}")
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
