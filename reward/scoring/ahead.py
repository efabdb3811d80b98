"""Decodes and prepares images while the rows before are scored, in the rows' own order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from reward.drawn_images import BoxedImage
from reward.errors import ImageError
from reward.images import THREADS, KeyedImage, keyed_image, load_image
from reward.metrics.scorer import CaptionScorer
from reward.scoring.columns import RowTask
from reward.scoring.results import reads_images
from reward.scoring.several import Metrics

if TYPE_CHECKING:
    from PIL import Image

FIRST_ROWS = 64  # scored in the first call, so that something is known soon
IMAGE_BYTES = 256 * 2**20
T = TypeVar("T")


class ImageReader:
    """Decodes images, and prepares them for the networks.

    If the metrics keep embeddings on disk, an image that they all know stays encoded.

    Args:
        root: where relative paths start.
        metrics: loaded, which will score them.
        fetch: see `BatchScorer`.

    Attributes:
        decoded: an entry for each image that was decoded, in several threads.
    """

    def __init__(self, root: str | os.PathLike[str], metrics: Metrics, fetch: Callable[..., Any] | None = None) -> None:
        readers = [scorer for scorer in metrics.parts if reads_images(scorer)]
        networks = [each for each in readers if isinstance(each, CaptionScorer) and each.decodes_images]
        self._networks = networks if len(networks) == len(readers) else []  # others take plain images only
        caches = [each.caches["images"] for each in networks if "images" in each.caches]
        self._caches = caches if len(caches) == len(readers) else []
        self.root, self.fetch, self.is_needed = root, fetch, bool(readers)
        self.decoded: list[str] = []

    def __call__(self, image: Any) -> Image.Image | KeyedImage:
        """The image as a scorer takes it.

        Raises:
            ImageError: it cannot be read.
        """
        if isinstance(image, BoxedImage):
            image = replace(image, root=self.root)
        elif self.fetch is not None:
            image = self.fetch(image, self.root)
        if not self._networks:
            self.decoded.append("")
            return load_image(image, root=self.root)
        keyed = keyed_image(image, self._is_known, root=self.root)
        if isinstance(keyed.image, bytes):
            return keyed
        prepared = {}
        for network in self._networks:
            with suppress(ImageError):  # the network says so itself, of each row
                prepared[id(network)] = network.preprocess(keyed.image)
        # Nobody looks at the pixels again, and those of hundreds of rows would take hundreds of MiB.
        done = len(prepared) == len(self._networks)
        return replace(keyed, image=None if done else keyed.image, prepared=prepared)

    def _is_known(self, key: str) -> bool:
        known = bool(self._caches) and all(key in cache for cache in self._caches)
        self.decoded += [] if known else [key]
        return known


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, of which the next is made in a thread while one is in use; none of them is None.

    Example:
        >>> list(ahead(number**2 for number in range(3)))
        [0, 1, 4]
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        future = pool.submit(next, iterator, None)
        while (item := future.result()) is not None:
            future = pool.submit(next, iterator, None)
            yield item


def decoded_chunks(blocks: Iterable[Iterable[RowTask]], reader: ImageReader, most_rows: int) -> Iterator[list[RowTask]]:
    """Chunks of rows with decoded images, in order, made ahead of who takes them.

    A chunk lies in one block. Rows of one image in a chunk share one object, so that it is decoded and encoded once. An
    image that cannot be decoded becomes the row's problem.

    Args:
        blocks: rows with images as the data have them; consumed in another thread.
        reader: opens one image; may raise ImageError.
        most_rows: of a chunk; it has fewer where its decoded images take `IMAGE_BYTES`, and the first one has 64.

    Raises:
        Exception: whatever `blocks` or `reader` raised, except ImageError.
    """
    stop = threading.Event()
    running = (takewhile(lambda task: not stop.is_set(), block) for block in blocks)
    try:
        yield from ahead(_chunks(running, reader, most_rows))
    finally:
        stop.set()


def _chunks(blocks: Iterable[Iterable[RowTask]], reader: ImageReader, most_rows: int) -> Iterator[list[RowTask]]:
    limit = min(FIRST_ROWS, most_rows)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="decode") as pool:
        for block in blocks:
            chunk, size, opened = list[RowTask](), 0, list[Future[Any]]()
            images: dict[str, Future[Any]] = {}
            for task in block:
                if not reader.is_needed:
                    task.image = task.image_key = None
                key = task.image_key
                if len(chunk) >= limit or size >= IMAGE_BYTES:
                    yield _decoded(chunk, images)
                    chunk, size, opened, limit = [], 0, [], most_rows
                    images = {key: images[key]} if key in images else {}
                if key is not None and key not in images:
                    images[key] = pool.submit(reader, task.image)
                    opened.append(images[key])
                    if len(opened) > 2 * THREADS:  # waits, so that the size of the decoded images is known early
                        size += _size(opened[-2 * THREADS - 1])
                chunk.append(task)
            if chunk:
                yield _decoded(chunk, images)


def _decoded(chunk: list[RowTask], images: dict[str, Future[Any]]) -> list[RowTask]:
    for task in chunk:
        if task.image_key is not None:
            try:
                task.image = images[task.image_key].result()
            except ImageError as error:
                task.image_problem, task.image = str(error), None
    return chunk


def _size(future: Future[Any]) -> int:
    """Bytes of a decoded image; waits for it."""
    if future.exception() is not None:
        return 0
    image: Any = future.result()
    prepared = 0
    if isinstance(image, KeyedImage):
        prepared = sum(getattr(pixels, "nbytes", 0) for pixels in image.prepared.values())
        image = image.image
    if image is None:
        return prepared
    return prepared + (len(image) if isinstance(image, bytes) else 3 * image.width * image.height)
