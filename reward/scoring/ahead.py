"""Decodes and prepares images while the rows before are scored, in the rows' own order."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from typing import Any, TypeVar

from reward.data.images import THREADS, KeyedImage
from reward.errors import ImageError
from reward.scoring.columns import RowTask
from reward.scoring.pictures import PictureReader

CHUNK_BYTES = 256 * 2**20  # of decoded images
IMAGES_AHEAD = 2 * THREADS  # that are being decoded beside those of a chunk that waits
T = TypeVar("T")


def ahead(items: Generator[T, None, None], stop: threading.Event | None = None) -> Generator[T, None, None]:
    """The items, of which the next is made in a thread while one is in use; none of them is None.

    Args:
        items: closed at the end, and if the consumer stops or is interrupted.
        stop: set before they are closed, so that an item that is being made can end early.

    Example:
        >>> list(ahead(number**2 for number in range(3)))
        [0, 1, 4]
    """
    turn = threading.Lock()

    def next_item() -> T | None:
        with turn:
            return next(items, None)

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        try:
            future = pool.submit(next_item)
            while (item := future.result()) is not None:
                future = pool.submit(next_item)
                yield item
        finally:
            if stop is not None:
                stop.set()
            with turn:  # the pool does not know a thread whose start was interrupted, and would not wait for it
                items.close()


def decoded_chunks(
    blocks: Iterable[Iterable[RowTask]], reader: PictureReader, rows: int
) -> Generator[tuple[list[RowTask], int], None, None]:
    """Chunks of rows with decoded images, in order, made ahead of who takes them; and how many images were decoded.

    A chunk lies in one block. Rows of one image in a chunk share one object, so that it is decoded and encoded once. An
    image that cannot be decoded becomes the row's problem.

    Args:
        blocks: rows with images as the data have them; consumed in another thread.
        reader: opens one image; may raise ImageError.
        rows: of a chunk, which has fewer at the end of a block, and where its images take `CHUNK_BYTES`.

    Raises:
        Exception: whatever `blocks` or `reader` raised, except ImageError.
    """
    stop = threading.Event()
    running = (takewhile(lambda task: not stop.is_set(), block) for block in blocks)
    return ahead(_chunks(running, reader, rows), stop)


def _chunks(
    blocks: Iterable[Iterable[RowTask]], reader: PictureReader, rows: int
) -> Generator[tuple[list[RowTask], int], None, None]:
    with ThreadPoolExecutor(THREADS, thread_name_prefix="decode") as pool:
        for block in blocks:
            chunk, full = _Chunk(reader, pool), None
            for task in block:
                if len(chunk.tasks) >= rows or chunk.bytes >= CHUNK_BYTES:
                    if full is not None:
                        yield full.decoded()
                    chunk, full = _Chunk(reader, pool), chunk
                chunk.add(task)
                # While the last images of a full chunk are waited for, the threads have some of the next one.
                has_work = len(chunk.images) >= IMAGES_AHEAD or not reader.is_needed
                if full is not None and has_work:
                    yield full.decoded()
                    full = None
            for rest in (full, chunk):
                if rest is not None and rest.tasks:
                    yield rest.decoded()


class _Chunk:
    """Rows that are scored together, whose images are being decoded.

    Attributes:
        tasks: the rows.
        images: {key: image}, decoded in other threads.
        bytes: of those that are decoded for certain: all but the last `IMAGES_AHEAD`.
    """

    def __init__(self, reader: PictureReader, pool: ThreadPoolExecutor) -> None:
        self.tasks: list[RowTask] = []
        self.images: dict[str, Future[Any]] = {}
        self.bytes = 0
        self._reader, self._pool = reader, pool
        self._waiting: list[Future[Any]] = []

    def add(self, task: RowTask) -> None:
        """Adds a row; the first one of an image has it decoded."""
        if not self._reader.is_needed:
            task.image = task.image_key = None
        key = task.image_key
        if key is not None and key not in self.images:
            self.images[key] = self._pool.submit(self._reader, task.image)
            self._waiting.append(self.images[key])
            if len(self._waiting) > IMAGES_AHEAD:
                self.bytes += _size(self._waiting.pop(0))
        if key is not None:
            task.image = None  # else each row of an image keeps a copy of the encoded bytes
        self.tasks.append(task)

    def decoded(self) -> tuple[list[RowTask], int]:
        """The rows with their images, and how many were decoded: those that a cache of embeddings has were not."""
        # What is no matter of an image, such as a disk that is gone, is raised here and ends the run.
        count = 0
        for future in self.images.values():
            if future.exception() is None and not _is_encoded(future.result()):
                count += 1
        for task in self.tasks:
            if task.image_key is not None:
                try:
                    task.image = self.images[task.image_key].result()
                except ImageError as error:
                    task.image_problem, task.image = str(error), None
        self._reader.read_ahead(self.tasks)
        return self.tasks, count


def _is_encoded(image: Any) -> bool:
    return isinstance(image, KeyedImage) and isinstance(image.image, bytes)


def _size(future: Future[Any]) -> int:
    """Bytes of a decoded image; waits for it."""
    if isinstance(future.exception(), ImageError):
        return 0
    image = future.result()
    prepared = 0
    if isinstance(image, KeyedImage):
        prepared = sum(getattr(pixels, "nbytes", 0) for pixels in image.prepared.values())
        image = image.image
    if image is None:
        return prepared
    return prepared + (len(image) if isinstance(image, bytes) else 3 * image.width * image.height)
