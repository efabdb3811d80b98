"""Decodes and prepares images in background threads while the chunk before is scored."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

from reward.boxes import BoxedImage
from reward.errors import ImageError
from reward.images import THREADS, KeyedImage, keyed_image, load_image
from reward.metrics.scorer import CaptionScorer
from reward.scoring.columns import RowTask, image_identity
from reward.scoring.several import reads_images

if TYPE_CHECKING:
    from PIL import Image

    from reward.metrics.base import Scorer
    from reward.scoring.several import Several

__all__ = ["ImageReader", "prefetch"]

# A chunk ends early when its decoded images take this many bytes. Up to three chunks are alive at a time:
# one is scored, one waits, one is filled.
IMAGE_BYTES = 256 * 2**20


class ImageReader:
    """Decodes images for `prefetch`, and prepares them for the networks.

    If the scorer keeps embeddings on disk, an image that it knows stays encoded.

    Args:
        root: where relative paths start.
        scorer: the one that will score them, or several.

    Attributes:
        decoded: number of images decoded.
    """

    def __init__(self, root: str | os.PathLike[str], scorer: Scorer | Several) -> None:
        self.root, self.cache = root, getattr(scorer, "caches", {}).get("images")
        readers = [part for part in getattr(scorer, "parts", (scorer,)) if reads_images(part)]
        networks = [part for part in readers if isinstance(part, CaptionScorer) and part.decodes_images]
        self._networks = networks if len(networks) == len(readers) else []  # others take plain images only
        self.decoded = 0
        self._lock = threading.Lock()  # images are decoded in several threads

    def __call__(self, image: Any) -> Image.Image | KeyedImage:
        """The image as a scorer takes it.

        Raises:
            ImageError: it cannot be read.
        """
        if isinstance(image, BoxedImage):
            image = replace(image, root=self.root)
        if self.cache is None and not self._networks:
            self._count()
            return load_image(image, root=self.root)
        keyed = keyed_image(image, self._is_known, root=self.root)
        if isinstance(keyed.image, bytes):
            return keyed
        prepared = {}
        for network in self._networks:
            with suppress(ImageError):  # the network says so itself, of each row
                prepared[id(network)] = network.preprocess(keyed.image)
        # Nobody looks at the pixels again, and those of hundreds of rows would take hundreds of MiB.
        done = 0 < len(prepared) == len(self._networks)
        return replace(keyed, image=None if done else keyed.image, prepared=prepared)

    def _is_known(self, key: str) -> bool:
        known = self.cache is not None and key in self.cache
        if not known:
            self._count()
        return known

    def _count(self) -> None:
        with self._lock:
            self.decoded += 1


def prefetch(
    tasks: Iterator[RowTask], decode: Callable[[Any], Image.Image | KeyedImage], row_limit: Callable[[], int]
) -> Iterator[list[RowTask]]:
    """Chunks of rows with decoded images, in order, made ahead of the consumer.

    Rows of one image that follow each other stay in one chunk (up to twice the limit) and share one image object, so
    that the scorer encodes it once. An image that cannot be decoded becomes the row's problem.

    Args:
        tasks: rows with undecoded images; consumed in another thread.
        decode: opens one image; may raise ImageError.
        row_limit: gives the number of rows of the next chunk.

    Raises:
        Exception: whatever `tasks` or `decode` raised, except ImageError.
    """
    decoded: Queue[list[RowTask] | BaseException | None] = Queue(maxsize=1)
    stop = threading.Event()

    def pass_on(item: list[RowTask] | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                decoded.put(item, timeout=0.1)
                return True
            except Full:
                continue
        return False

    def produce() -> None:
        try:
            with ThreadPoolExecutor(THREADS, thread_name_prefix="decode") as pool:
                for chunk in _chunks(tasks, pool, decode, row_limit):
                    if not pass_on(chunk):
                        return
            pass_on(None)
        except BaseException as error:  # raised again in the consumer's thread
            pass_on(error)

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        while (item := decoded.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()


def _chunks(
    tasks: Iterator[RowTask],
    pool: ThreadPoolExecutor,
    decode: Callable[[Any], Image.Image | KeyedImage],
    row_limit: Callable[[], int],
) -> Iterator[list[RowTask]]:
    chunk: list[tuple[RowTask, str | None]] = []
    images: dict[str, Future[Image.Image | KeyedImage]] = {}
    decoding: deque[Future[Image.Image | KeyedImage]] = deque()
    limit, size = row_limit(), 0
    for task in tasks:
        key = None if task.image is None else image_identity(task.image)
        full = len(chunk) >= limit or size >= IMAGE_BYTES
        if full and (key not in images or len(chunk) >= 2 * limit):
            yield [_decoded(item, images) for item in chunk]
            images = {key: images[key]} if key in images else {}
            chunk, limit, size = [], row_limit(), 0
        if key is not None and key not in images:
            images[key] = pool.submit(decode, task.image)
            decoding.append(images[key])
            while len(decoding) > 2 * THREADS:  # so that the size of the decoded images is known early
                size += _image_bytes(decoding.popleft())
        chunk.append((task, key))
    if chunk:
        yield [_decoded(item, images) for item in chunk]


def _image_bytes(future: Future[Image.Image | KeyedImage]) -> int:
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


def _decoded(item: tuple[RowTask, str | None], images: dict[str, Future[Image.Image | KeyedImage]]) -> RowTask:
    task, key = item
    if key is not None:
        try:
            task.image = images[key].result()
        except ImageError as error:
            task.image_problem, task.image = str(error), None
    return task
