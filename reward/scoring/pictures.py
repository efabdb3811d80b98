"""PictureReader: reads an image of the data, decodes it, and prepares it for networks; needs no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reward.data.drawn_images import BoxedImage
from reward.data.images import KeyedImage, keyed_image, load_image
from reward.data.samples import CaptionSample
from reward.errors import ImageError
from reward.metrics.scorer import CaptionScorer, is_on_gpu
from reward.scoring.results import reads_images

if TYPE_CHECKING:
    from PIL import Image

    from reward.checkpoints.caches import TensorCache
    from reward.scoring.columns import RowTask
    from reward.scoring.several import Metrics


_MOST_TEXTS = 8192  # that are read ahead


@dataclass(frozen=True)
class PictureReader:
    """Gives an image as scorers take it.

    Args:
        root: where relative paths start.
        prepare: {id of a scorer: its `preprocess`}.
        caches: of embeddings; an image that all of them know stays encoded.
        is_needed: whether a scorer reads images at all.
        scorers: those that can read captions before they score them.
        pins: whether prepared pixels go to pinned memory, from which a GPU fetches them by itself.
    """

    root: str
    prepare: Mapping[int, Callable[[Image.Image], Any]]
    caches: Sequence[TensorCache] = ()
    is_needed: bool = True
    scorers: Sequence[CaptionScorer] = ()
    pins: bool = False

    @classmethod
    def of(cls, metrics: Metrics, root: str | os.PathLike[str]) -> PictureReader:
        """For metrics that are loaded."""
        readers = [scorer for scorer in metrics.parts if reads_images(scorer)]
        networks = []
        caches = []
        for scorer in readers:
            if isinstance(scorer, CaptionScorer) and scorer.decodes_images:
                networks.append(scorer)
                if "images" in scorer.caches:
                    caches.append(scorer.caches["images"])
        if len(networks) < len(readers):  # the others take plain images only
            networks = []
        if len(caches) < len(readers):  # the others need the image itself
            caches = []
        return cls(
            os.fspath(root),
            {id(network): network.preprocess for network in networks},
            caches,
            bool(readers),
            [scorer for scorer in metrics.parts if isinstance(scorer, CaptionScorer)],
            any(map(is_on_gpu, networks)),
        )

    def __call__(self, image: Any) -> Image.Image | KeyedImage:
        """The image, decoded and prepared.

        Raises:
            ImageError: it cannot be read.
        """
        if isinstance(image, BoxedImage):
            image = replace(image, root=self.root)
        if not self.prepare:
            return load_image(image, root=self.root)
        keyed = keyed_image(image, self._is_known, root=self.root)
        if isinstance(keyed.image, bytes):
            return keyed
        prepared = {}
        for scorer, prepare in self.prepare.items():
            with suppress(ImageError):  # the network says so itself, of each row
                prepared[scorer] = prepare(keyed.image)
        if len(prepared) < len(self.prepare):
            return replace(keyed, prepared=prepared)
        # Nobody looks at the pixels again, and those of hundreds of rows would take hundreds of MiB.
        return replace(keyed, image=None, prepared=prepared)

    def _is_known(self, key: str) -> bool:
        return bool(self.caches) and all(key in cache for cache in self.caches)

    def read_ahead(self, tasks: Sequence[RowTask]) -> None:
        """Does for rows with decoded images what can be done before they are scored, in another thread."""
        texts: dict[str, None] = {}
        images: dict[int, KeyedImage] = {}  # rows may share one
        for task in tasks:
            for sample in task.samples:
                if isinstance(sample, CaptionSample):
                    texts |= dict.fromkeys((sample.candidate, *sample.references))
            if isinstance(task.image, KeyedImage):
                images[id(task.image)] = task.image
        if len(texts) <= _MOST_TEXTS:  # more would be forgotten before they are scored
            for scorer in self.scorers:
                with suppress(Exception):  # said of its row when that is scored
                    scorer.read_ahead(list(texts))
        if self.pins:
            for image in images.values():
                for scorer_id, pixels in image.prepared.items():
                    image.prepared[scorer_id] = _pinned(pixels)


def _pinned(pixels: Any) -> Any:
    import torch

    if not hasattr(pixels, "dtype"):
        return pixels
    return torch.as_tensor(pixels).pin_memory()
