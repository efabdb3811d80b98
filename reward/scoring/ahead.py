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

FIRST_ROWS = 64  # scored in the first call; then half as many more each, so that who scores need not wait
IMAGE_BYTES = 256 * 2**20
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

    def following() -> T | None:
        with turn:
            return next(items, None)

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        try:
            future = pool.submit(following)
            while (item := future.result()) is not None:
                future = pool.submit(following)
                yield item
        finally:
            if stop is not None:
                stop.set()
            with turn:  # the pool does not know a thread whose start was interrupted, and would not wait for it
                items.close()


def decoded_chunks(
    blocks: Iterable[Iterable[RowTask]], reader: PictureReader, most_rows: int
) -> Generator[tuple[list[RowTask], int], None, None]:
    """Chunks of rows with decoded images, in order, made ahead of who takes them; and how many images were decoded.

    A chunk lies in one block. Rows of one image in a chunk share one object, so that it is decoded and encoded once. An
    image that cannot be decoded becomes the row's problem.

    Args:
        blocks: rows with images as the data have them; consumed in another thread.
        reader: opens one image; may raise ImageError.
        most_rows: of a chunk; it has fewer where its decoded images take `IMAGE_BYTES`, and the first one has
            64, the next 96, and so on.

    Raises:
        Exception: whatever `blocks` or `reader` raised, except ImageError.
    """
    stop = threading.Event()
    running = (takewhile(lambda task: not stop.is_set(), block) for block in blocks)
    return ahead(_chunks(running, reader, most_rows), stop)


def _chunks(
    blocks: Iterable[Iterable[RowTask]], reader: PictureReader, most_rows: int
) -> Generator[tuple[list[RowTask], int], None, None]:
    limit, most_opened = min(FIRST_ROWS, most_rows), 2 * THREADS
    with ThreadPoolExecutor(THREADS, thread_name_prefix="decode") as threads:
        for block in blocks:
            chunk, size, opened = list[RowTask](), 0, list[Future[Any]]()
            images: dict[str, Future[Any]] = {}
            whole = list[tuple[list[RowTask], dict[str, Future[Any]], list[Future[Any]]]]()
            for task in block:
                if not reader.is_needed:
                    task.image = task.image_key = None
                key = task.image_key
                # the threads have images of the next chunk while the last ones of this are waited for
                if whole and (len(opened) >= most_opened or len(chunk) >= min(limit, FIRST_ROWS)):
                    yield _decoded(*whole.pop(), reader)
                if len(chunk) >= limit or size >= IMAGE_BYTES:
                    whole.append((chunk, images, opened))
                    chunk, size, opened, limit = [], 0, [], min(limit + limit // 2, most_rows)
                    images = {key: images[key]} if key in images else {}
                if key is not None and key not in images:
                    images[key] = threads.submit(reader, task.image)
                    opened.append(images[key])
                    if len(opened) > most_opened:  # waits, so that the size of the decoded images is known early
                        size += _size(opened[-most_opened - 1])
                if key is not None:
                    task.image = None  # else each row of an image keeps a copy of the encoded bytes
                chunk.append(task)
            for each in (*whole, (chunk, images, opened)):
                if each[0]:
                    yield _decoded(*each, reader)


def _decoded(
    chunk: list[RowTask], images: dict[str, Future[Any]], opened: list[Future[Any]], reader: PictureReader
) -> tuple[list[RowTask], int]:
    for task in chunk:
        if task.image_key is not None:
            try:
                task.image = images[task.image_key].result()
            except ImageError as error:
                task.image_problem, task.image = str(error), None
    reader.read_ahead(chunk)
    return chunk, _count(opened)


def _count(opened: list[Future[Any]]) -> int:
    """How many could be decoded; those that a cache of embeddings knows were not."""
    found = [each.result() for each in opened if each.exception() is None]
    return sum(not (isinstance(image, KeyedImage) and isinstance(image.image, bytes)) for image in found)


def _size(future: Future[Any]) -> int:
    """Bytes of a decoded image; waits for it."""
    try:
        image = future.result()
    except ImageError:
        return 0
    prepared = 0
    if isinstance(image, KeyedImage):
        prepared = sum(getattr(pixels, "nbytes", 0) for pixels in image.prepared.values())
        image = image.image
    if image is None:
        return prepared
    return prepared + (len(image) if isinstance(image, bytes) else 3 * image.width * image.height)
