"""Decodes and prepares images while the rows before are scored, in the rows' own order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import takewhile
from typing import Any, TypeVar

from reward.errors import ImageError
from reward.images import THREADS, KeyedImage
from reward.scoring.columns import RowTask
from reward.scoring.pictures import PictureReader
from reward.scoring.workers import preparing, result

FIRST_ROWS = 64  # scored in the first call, so that something is known soon
IMAGE_BYTES = 256 * 2**20
T = TypeVar("T")


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


def decoded_chunks(
    blocks: Iterable[Iterable[RowTask]], reader: PictureReader, most_rows: int, workers: int = 0
) -> Iterator[tuple[list[RowTask], int]]:
    """Chunks of rows with decoded images, in order, made ahead of who takes them; and how many images were decoded.

    A chunk lies in one block. Rows of one image in a chunk share one object, so that it is decoded and encoded once. An
    image that cannot be decoded becomes the row's problem.

    Args:
        blocks: rows with images as the data have them; consumed in another thread.
        reader: opens one image; may raise ImageError.
        most_rows: of a chunk; it has fewer where its decoded images take `IMAGE_BYTES`, and the first one has 64.
        workers: processes that prepare images, if the reader can be given to them; 0 takes threads, as for the first
            chunk, while which the processes start.

    Raises:
        WorkerError: such a process died.
        Exception: whatever `blocks` or `reader` raised, except ImageError.
    """
    stop = threading.Event()
    running = (takewhile(lambda task: not stop.is_set(), block) for block in blocks)
    with closing(_chunks(running, reader, most_rows, workers)) as chunks:
        try:
            yield from ahead(chunks)
        finally:
            stop.set()


def _chunks(
    blocks: Iterable[Iterable[RowTask]], reader: PictureReader, most_rows: int, workers: int
) -> Generator[tuple[list[RowTask], int], None, None]:
    limit, most_opened = min(FIRST_ROWS, most_rows), 2 * max(THREADS, workers)
    packed = reader.packed() if workers else None
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(THREADS, thread_name_prefix="decode"))
        starting: Future[Any] | None = None
        if packed is not None:
            starting = threads.submit(stack.enter_context, preparing(packed, workers))

        def open_here(image: Any) -> Future[Any]:
            return threads.submit(reader, image)

        open_image: Callable[[Any], Future[Any]] = open_here
        for block in blocks:
            chunk, size, opened = list[RowTask](), 0, list[Future[Any]]()
            images: dict[str, Future[Any]] = {}
            for task in block:
                if not reader.is_needed:
                    task.image = task.image_key = None
                key = task.image_key
                if len(chunk) >= limit or size >= IMAGE_BYTES:
                    yield _decoded(chunk, images, reader), _count(opened)
                    chunk, size, opened, limit = [], 0, [], most_rows
                    images = {key: images[key]} if key in images else {}
                    if starting is not None:
                        open_image, starting = _told_apart(open_here, starting.result()), None
                if key is not None and key not in images:
                    images[key] = open_image(task.image)
                    opened.append(images[key])
                    if len(opened) > most_opened:  # waits, so that the size of the decoded images is known early
                        size += _size(opened[-most_opened - 1])
                chunk.append(task)
            if chunk:
                yield _decoded(chunk, images, reader), _count(opened)


def _told_apart(here: Callable[[Any], Any], elsewhere: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Opens encoded images elsewhere; pixels that are decoded already, or open files, stay here."""
    return lambda image: (elsewhere if isinstance(image, (str, bytes, dict)) else here)(image)


def _decoded(chunk: list[RowTask], images: dict[str, Future[Any]], reader: PictureReader) -> list[RowTask]:
    for task in chunk:
        if task.image_key is not None:
            try:
                task.image = result(images[task.image_key])
            except ImageError as error:
                task.image_problem, task.image = str(error), None
    reader.read_ahead(chunk)
    return chunk


def _count(opened: list[Future[Any]]) -> int:
    """How many could be decoded; those that a cache of embeddings knows were not."""
    found = [each.result() for each in opened if each.exception() is None]
    return sum(not (isinstance(image, KeyedImage) and isinstance(image.image, bytes)) for image in found)


def _size(future: Future[Any]) -> int:
    """Bytes of a decoded image; waits for it."""
    try:
        image = result(future)
    except ImageError:
        return 0
    prepared = 0
    if isinstance(image, KeyedImage):
        prepared = sum(getattr(pixels, "nbytes", 0) for pixels in image.prepared.values())
        image = image.image
    if image is None:
        return prepared
    return prepared + (len(image) if isinstance(image, bytes) else 3 * image.width * image.height)
