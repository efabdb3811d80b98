"""Job: scores parts of a data file, in whatever process; images are decoded while the rows before are scored."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.data.drawn_images import BoxedImage
from reward.data.images import THREADS, KeyedImage, keyed_image, load_image
from reward.errors import ImageError
from reward.metrics.scorer import CaptionScorer, is_on_gpu
from reward.scoring.columns import ColumnPlan, RowTask
from reward.scoring.results import AddedColumns, reads_images
from reward.scoring.runs import ANSWERS, Part, part_name, put_part
from reward.scoring.several import Metrics
from reward.scoring.sources import Source
from reward.scoring.summary import SummaryBuilder

if TYPE_CHECKING:
    from PIL import Image

FIRST_ROWS = 64  # of the first part, which tells the pace
PART_SECONDS = 60  # that a part takes at most, by the pace of the one before: what a kill can cost
CHUNK_BYTES = 256 * 2**20  # of decoded images
IMAGES_AHEAD = 2 * THREADS  # that are being decoded beside those of a chunk that waits
_MOST_TEXTS = 8192  # that are read ahead: more would be forgotten before they are scored


@dataclass
class Progress:
    """A part that is done and on the disk."""

    part: str  # its name
    failed: int  # how many of its rows have an error
    images: int  # that were decoded for it


@dataclass
class Job:
    """How the rows of a data file are scored; picklable if the metrics are given by name."""

    reader: Source
    plan: ColumnPlan
    metrics: Metrics  # loaded where `work` is called
    root: Path  # where relative image paths start
    folder: Path  # of the parts
    prefix: str
    batch_size: int | None
    part_rows: int  # of a part, at most

    def columns(self) -> AddedColumns:
        """The columns that the output has more than the input."""
        caption = self.plan.caption if self.plan.many else None
        is_ranked = self.plan.group is not None
        return AddedColumns(self.metrics, self.prefix, self.reader.columns, caption=caption, is_ranked=is_ranked)

    def tasks(self, blocks: Iterable[range]) -> Iterator[Iterator[RowTask]]:
        """For each of some ranges of rows, in order, what is to be scored; each must be read before the next."""
        rows: Iterator[Any] = iter(())
        next_row = None  # of the iterator
        for block in blocks:
            if next_row is None or next_row > block.start or (next_row < block.start and self.reader.is_indexed):
                rows = iter(self.reader.rows(self.plan.names, block.start))
            else:  # to read on is cheaper than to begin anew
                next(islice(rows, block.start - next_row, block.start - next_row), None)
            numbered = enumerate(islice(rows, len(block)), start=block.start)
            yield (self.plan.task(row, number, self.root) for number, row in numbered)
            next_row = block.stop

    def names(self, blocks: Iterable[range]) -> Iterator[str]:
        """The names that the parts of some ranges of rows have as the rows are now."""
        return map(part_name, self.tasks(blocks))

    def work(self, blocks: Iterable[range]) -> Iterator[Progress]:
        """Scores some ranges of rows, and writes them to the folder, part by part.

        Raises:
            OutputError: a part cannot be written.
        """
        columns, picture_reader = self.columns(), PictureReader(self.metrics, self.root)
        most = min(FIRST_ROWS, self.part_rows)
        with _answers_kept(self.metrics, self.folder / ANSWERS):
            for chunk, decoded in decoded_chunks(self.tasks(blocks), picture_reader, self.part_rows):
                while chunk:
                    tasks, start = chunk[:most], time.perf_counter()
                    del chunk[:most]
                    summary = SummaryBuilder()
                    built = columns.build(tasks, self.batch_size, summary)
                    part = Part(columns.types, built, vars(summary), [], [])
                    for task in tasks:
                        part.stamps.append(task.stamp)
                        part.groups.append(task.group)
                    name = part_name(tasks)
                    put_part(self.folder, name, part)
                    failed = len(tasks) - built[f"{self.prefix}error"].count(None)
                    # A kill costs the part that is being scored, so the next one is as long as a minute allows.
                    seconds = max(time.perf_counter() - start, 1e-6)
                    most = 1 + int(PART_SECONDS * len(tasks) / seconds)
                    tasks.clear()  # the images take far more memory than all else
                    yield Progress(name, failed, decoded)
                    decoded = 0


@contextmanager
def _answers_kept(metrics: Metrics, path: Path) -> Iterator[None]:
    """Has the judges that are asked keep their answers in a file, unless they keep them elsewhere."""
    # An answer may have cost money: after a kill, no question of the part that was under way is asked again.
    judges: list[Any] = []
    for scorer in metrics.parts:
        for judge in getattr(scorer, "judges", ()):
            if getattr(judge, "cache", path) is None and hasattr(judge, "close"):
                judges.append(judge)
    for judge in judges:
        judge.cache = path
        judge.close()  # it opens the file at the next question
    try:
        yield
    finally:
        for judge in judges:
            judge.cache = None
            judge.close()


class PictureReader:
    """Gives an image as scorers take it: decoded and, for networks alone, prepared; needs no torch.

    Args:
        metrics: loaded.
        root: where relative paths start.
    """

    def __init__(self, metrics: Metrics, root: str | os.PathLike[str]) -> None:
        self.root = os.fspath(root)
        self.scorers: list[CaptionScorer] = []
        self.networks: list[CaptionScorer] = []
        self.caches: list[Any] = []
        readers = 0
        for scorer in metrics.parts:
            is_reader, is_network = reads_images(scorer), isinstance(scorer, CaptionScorer)
            readers += is_reader
            if is_network and type(scorer).read_ahead is not CaptionScorer.read_ahead:
                self.scorers.append(scorer)
            if is_network and is_reader and scorer.decodes_images:
                self.networks.append(scorer)
                if "images" in scorer.caches:
                    self.caches.append(scorer.caches["images"])
        self.is_needed = readers > 0
        # Pixels are prepared if all metrics take them so, and an image that all have in their caches stays encoded.
        if len(self.networks) < readers:
            self.networks = []
        if len(self.caches) < readers:
            self.caches = []
        self.pins = any(map(is_on_gpu, self.networks))

    def __call__(self, image: Any) -> Image.Image | KeyedImage:
        """The image, decoded and prepared.

        Raises:
            ImageError: it cannot be read.
        """
        if isinstance(image, BoxedImage):
            image = replace(image, root=self.root)
        if not self.networks:
            return load_image(image, root=self.root)
        keyed = keyed_image(image, self._is_cached, root=self.root)
        if isinstance(keyed.image, bytes):
            return keyed
        prepared = {}
        for network in self.networks:
            with suppress(ImageError):  # the network says so itself, of each row
                prepared[id(network)] = network.preprocess(keyed.image)
        if len(prepared) < len(self.networks):
            return replace(keyed, prepared=prepared)
        # Nobody looks at the pixels again, and those of hundreds of rows would take hundreds of MiB.
        return replace(keyed, image=None, prepared=prepared)

    def _is_cached(self, key: str) -> bool:
        return bool(self.caches) and all(key in cache for cache in self.caches)

    def read_ahead(self, tasks: Sequence[RowTask]) -> None:
        """Does for rows with decoded images what can be done before they are scored, in another thread."""
        if not self.scorers and not self.pins:
            return
        texts: dict[str, None] = {}
        images: dict[int, KeyedImage] = {}  # rows may share one
        for task in tasks:
            for text in (*task.candidates, *task.references):
                if isinstance(text, str):
                    texts[text] = None
            if isinstance(task.image, KeyedImage):
                images[id(task.image)] = task.image
        if len(texts) <= _MOST_TEXTS:
            for scorer in self.scorers:
                with suppress(Exception):  # said of its row when that is scored
                    scorer.read_ahead(list(texts))
        if not self.pins:
            return
        import torch

        # From pinned memory a GPU fetches pixels by itself.
        for image in images.values():
            for network, pixels in image.prepared.items():
                if hasattr(pixels, "dtype"):
                    image.prepared[network] = torch.as_tensor(pixels).pin_memory()


def decoded_chunks(
    blocks: Iterable[Iterable[RowTask]], picture_reader: PictureReader, rows: int
) -> Iterator[tuple[list[RowTask], int]]:
    """Chunks of rows with decoded images, in order, and how many images were decoded.

    Where images are read, the next chunk is made in a thread.

    A chunk lies in one block. Rows of one image in a chunk share one object, so that it is decoded and encoded once. An
    image that cannot be decoded becomes the row's problem.

    Args:
        blocks: rows with images as the data have them; perhaps consumed in that thread.
        picture_reader: opens one image; may raise ImageError.
        rows: of a chunk, at most. The first has `FIRST_ROWS`, and each twice as many as the one before. One is shorter
            at the end of a block, and where its images take `CHUNK_BYTES`.

    Raises:
        Exception: whatever `blocks` or `picture_reader` raised, except ImageError.
    """
    stop, turn = threading.Event(), threading.Lock()
    # A generator cannot be closed while it runs in the other thread: the rows end instead, and so does the generator.
    chunks = _chunks((takewhile(lambda _: not stop.is_set(), block) for block in blocks), picture_reader, rows)

    if not picture_reader.is_needed:
        yield from chunks  # reading rows ahead keeps Python busy, from which the scorer would have to wait
        return

    def next_chunk() -> tuple[list[RowTask], int] | None:
        with turn:
            return next(chunks, None)

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        try:
            future = pool.submit(next_chunk)
            while (chunk := future.result()) is not None:
                future = pool.submit(next_chunk)
                yield chunk
        finally:
            stop.set()
            with turn:  # the pool does not know a thread whose start was interrupted, and would not wait for it
                chunks.close()


def _chunks(
    blocks: Iterable[Iterable[RowTask]], picture_reader: PictureReader, rows: int
) -> Generator[tuple[list[RowTask], int], None, None]:
    # Large pictures take long: the scorer starts with a few of them. While it has these, twice as many are decoded.
    most = min(FIRST_ROWS, rows)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="decode") as pool:
        # One chunk is full and waits for its last images; the next one has begun, so that no thread is idle meanwhile.
        for block in blocks:
            chunk, full = _Chunk(picture_reader, pool), None
            for task in block:
                if len(chunk.tasks) >= most or chunk.bytes >= CHUNK_BYTES:
                    if full is not None:
                        yield full.decoded()
                    chunk, full = _Chunk(picture_reader, pool), chunk
                    most = min(2 * most, rows)
                chunk.add(task)
                # While the last images of a full chunk are waited for, the threads have some of the next one.
                if full is not None and (len(chunk.images) >= IMAGES_AHEAD or not picture_reader.is_needed):
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

    def __init__(self, picture_reader: PictureReader, pool: ThreadPoolExecutor) -> None:
        self.tasks: list[RowTask] = []
        self.images: dict[str, Future[Any]] = {}
        self.bytes = 0
        self._reader, self._pool = picture_reader, pool
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
        images: dict[str, Any] = {}
        problems: dict[str, str] = {}
        # What is no matter of an image, such as a disk that is gone, is raised here and ends the run.
        for key, future in self.images.items():
            try:
                images[key] = future.result()
            except ImageError as error:
                problems[key] = str(error)
        for task in self.tasks:
            if task.image_key is not None:
                task.image = images.get(task.image_key)
                task.image_problem = problems.get(task.image_key)
        self._reader.read_ahead(self.tasks)
        decoded = len(images)
        for image in images.values():
            if isinstance(getattr(image, "image", None), bytes):
                decoded -= 1
        return self.tasks, decoded


def _size(future: Future[Any]) -> int:
    """Bytes of a decoded image; waits for it."""
    if isinstance(future.exception(), ImageError):
        return 0
    image = future.result()
    size = 0
    if isinstance(image, KeyedImage):
        size = sum(getattr(pixels, "nbytes", 0) for pixels in image.prepared.values())
        image = image.image
    if isinstance(image, bytes):
        size += len(image)
    elif image is not None:
        size += 3 * image.width * image.height
    return size
