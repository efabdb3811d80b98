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
        networks = [each for each in readers if isinstance(each, CaptionScorer) and each.decodes_images]
        if len(networks) < len(readers):  # the others take plain images only
            networks = []
        caches = [each.caches["images"] for each in networks if "images" in each.caches]
        return cls(
            os.fspath(root),
            {id(each): each.preprocess for each in networks},
            caches if len(caches) == len(readers) else (),
            bool(readers),
            [each for each in metrics.parts if isinstance(each, CaptionScorer)],
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
        # Nobody looks at the pixels again, and those of hundreds of rows would take hundreds of MiB.
        done = len(prepared) == len(self.prepare)
        return replace(keyed, image=None if done else keyed.image, prepared=prepared)

    def _is_known(self, key: str) -> bool:
        return bool(self.caches) and all(key in cache for cache in self.caches)

    def read_ahead(self, tasks: Sequence[RowTask]) -> None:
        """Does for rows with decoded images what can be done before they are scored, in another thread."""
        samples = [sample for task in tasks for sample in task.samples if isinstance(sample, CaptionSample)]
        texts = dict.fromkeys(text for sample in samples for text in (sample.candidate, *sample.references))
        if len(texts) <= _MOST_TEXTS:  # more would be forgotten before they are scored
            for scorer in self.scorers:
                with suppress(Exception):  # said of its row when that is scored
                    scorer.read_ahead(list(texts))
        if self.pins:
            for image in {id(task.image): task.image for task in tasks if isinstance(task.image, KeyedImage)}.values():
                for name, pixels in image.prepared.items():
                    image.prepared[name] = _pinned(pixels)


def _pinned(pixels: Any) -> Any:
    import torch

    return torch.as_tensor(pixels).pin_memory() if hasattr(pixels, "dtype") else pixels
