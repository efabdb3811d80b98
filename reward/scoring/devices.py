"""Scores rows in several processes, one for each device: for several GPUs of one machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from reward.checkpoints import warn_embedded
from reward.errors import ConfigError, WorkerError
from reward.metrics.base import MetricSpec, Scorer
from reward.scoring.chunks import Outcome, cache_counts, scored_chunks
from reward.scoring.columns import RowTask, image_identity
from reward.scoring.prefetch import ImageReader
from reward.scoring.runs import ChunkSize
from reward.scoring.several import Scoring, Several, knows_drawings_only, load

__all__ = ["DevicePool", "WorkerSetup", "cpu_threads", "parse_devices", "whole_groups"]

_AHEAD = 2  # chunks that a process has: the one it scores, and the next
_PART = 64  # rows of a chunk whose images are decoded while those before are scored
_CHUNK_BYTES = 64 * 2**20  # of encoded images that are sent to a process at a time


def parse_devices(devices: str | Sequence[str] | None) -> list[str]:
    """The devices to score on, one for each process.

    Args:
        devices: names, as a list or separated by commas; `"auto"` means all GPUs, or the CPU where there is none.
            A device that is named twice gets two processes. None means no choice: an empty list.

    Raises:
        ConfigError: there is no such device.

    Example:
        >>> parse_devices("cpu,cpu"), parse_devices(None)
        (['cpu', 'cpu'], [])
    """
    if devices is None:
        return []
    if devices == "auto":
        import torch

        return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    names = [name.strip() for name in (devices.split(",") if isinstance(devices, str) else devices)]
    if not names or not all(names):
        raise ConfigError(f"devices must be auto, or names such as cuda:0,cuda:1; got {devices!r}")
    if set(names) != {"cpu"}:  # which needs no torch to be known
        from reward.backbones.pretrained import usable_device

        for name in names:
            usable_device(name)
    return names


def cpu_threads() -> int:
    """Threads of this process: those that OMP_NUM_THREADS allows, else a thread for each core it may use."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    if allowed.isdecimal() and int(allowed):
        return int(allowed)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def whole_groups(tasks: Iterator[RowTask], size: ChunkSize) -> Iterator[list[RowTask]]:
    """Chunks of rows. Those of one image that follow each other stay together, up to twice the size of a chunk."""
    chunk: list[RowTask] = []
    key: str | None = None
    image, encoded, limit = None, 0, size.items
    for task in tasks:
        before = key
        key = None if task.image is None else image_identity(task.image)
        is_next = key is None or key != before
        if chunk and (is_next or len(chunk) >= 2 * limit) and (len(chunk) >= limit or encoded >= _CHUNK_BYTES):
            yield chunk
            chunk, encoded, limit = [], 0, size.items
        if is_next:
            image = task.image
            data = image.get("bytes") if isinstance(image, dict) else image
            encoded += len(data) if isinstance(data, bytes) else 0
        task.image = image if key is not None else None  # one object, so that equal bytes are sent once
        chunk.append(task)
    if chunk:
        yield chunk


@dataclass(frozen=True)
class WorkerSetup:
    """How a process scores.

    Args:
        scorer: a metric, or several, by name.
        options: see `reward.registry.load_scorer`; they name the device.
        root: where relative image paths start.
        batch_size: passed to the scorer.
        threads: of the CPU, for torch.
    """

    scorer: Scoring
    options: Mapping[str, Any]
    root: str | os.PathLike[str]
    batch_size: int | None
    threads: int


class _InProcess:
    """State of a worker process: the scorer is loaded by the first task, so that its errors reach the caller."""

    setup: WorkerSetup
    scorer: Scorer | Several | None = None


def _start(setup: WorkerSetup) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(setup.threads))
    if torch := sys.modules.get("torch"):  # the caller's script imported it; otherwise it will look at the environment
        torch.set_num_threads(setup.threads)
    _InProcess.setup = setup
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()  # after kill -9 the queue of tasks would never end, and the GPU stay taken
    os._exit(1)


def _scorer() -> Scorer | Several:
    if _InProcess.scorer is None:
        setup = _InProcess.setup
        _InProcess.scorer = load(setup.scorer, **setup.options)
    return _InProcess.scorer


def _loaded() -> MetricSpec:
    return _scorer().spec


def _score(chunk: list[RowTask]) -> Outcome:
    start, scorer, setup = time.perf_counter(), _scorer(), _InProcess.setup
    before, reader = cache_counts(scorer), ImageReader(setup.root, scorer)
    parts = scored_chunks(iter(chunk), scorer, reader, lambda: _PART, batch_size=setup.batch_size)
    results = [result for _, outcome in parts for result in outcome.results]
    return Outcome(results, time.perf_counter() - start, reader.decoded, cache_counts(scorer, since=before))


@dataclass
class _Worker:
    """A process, and the chunks that it has."""

    name: str
    setup: WorkerSetup
    queue: deque[tuple[list[RowTask], Future[Outcome]]] = field(default_factory=deque)
    died: bool = False  # since it last finished a chunk

    def start(self) -> Future[MetricSpec]:
        """Starts the process, which loads the scorer."""
        spawn = multiprocessing.get_context("spawn")  # a fork cannot use CUDA
        self.pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_start, initargs=(self.setup,))
        others = multiprocessing.active_children()
        loading = self.pool.submit(_loaded)
        self.process = next(child for child in multiprocessing.active_children() if child not in others)
        return loading

    def started(self, loading: Future[MetricSpec]) -> MetricSpec:
        """Waits until the scorer is loaded."""
        try:
            return loading.result()
        except BrokenProcessPool as error:
            raise WorkerError(
                f"the process of device {self.name!r} died{self._exit_code()} while it loaded the metric: perhaps "
                "memory was short (name fewer devices). A script that scores on several devices must do it below "
                'if __name__ == "__main__":, since its processes import the script'
            ) from error

    def submit(self, chunk: list[RowTask]) -> None:
        try:
            future = self.pool.submit(_score, chunk)
        except BrokenProcessPool as error:  # it died meanwhile, which `take` handles
            future = Future()
            future.set_exception(error)
        self.queue.append((chunk, future))

    def take(self) -> tuple[list[RowTask], Outcome] | None:
        """The first chunk and what became of it; None if the process died, and does its chunks again."""
        chunk, future = self.queue[0]
        try:
            outcome = future.result()
        except BrokenProcessPool as error:
            if self.died:
                raise WorkerError(
                    f"the process of device {self.name!r} died twice{self._exit_code()} over rows {chunk[0].row + 1} "
                    f"to {chunk[-1].row + 1}: perhaps memory was short (lower batch_size, --batch-size), or an image "
                    "crashed its decoder. What was scored is saved; run the same again to go on"
                ) from error
            self.died = True
            self.pool.shutdown()
            chunks = [chunk for chunk, _ in self.queue]
            self.queue.clear()
            self.started(self.start())
            for again in chunks:
                self.submit(again)
            return None
        self.queue.popleft()
        self.died = False
        return chunk, outcome

    def end(self, *, at_once: bool) -> None:
        if at_once:
            self.process.terminate()
        self.pool.shutdown(cancel_futures=True)  # waits: a pool that ends with the interpreter may print a traceback

    def _exit_code(self) -> str:
        code = self.process.exitcode
        return "" if code is None else f" (exit code {code})"


class DevicePool:
    """A process for each device, which loads a metric and scores chunks of rows.

    A process that dies is started again and does its chunks again; if it dies over the same rows once more, the run
    stops with the reason. The processes end with their parent, also when that is killed.

    Args:
        devices: see `parse_devices`.
        setup: what they have in common; its threads are divided among them.

    Attributes:
        spec: facts about the metric, as its checkpoint has it.

    Raises:
        WorkerError: a process died while it loaded the metric, or twice over the same rows.
        Exception: whatever loading the metric raised.
    """

    def __init__(self, devices: Sequence[str], setup: WorkerSetup) -> None:
        if knows_drawings_only(setup.scorer):
            warn_embedded()  # here, once for all processes
        threads = max(1, setup.threads // len(devices))
        self._workers = []
        for name in devices:
            options = {**setup.options, "device": name}
            own = WorkerSetup(setup.scorer, options, setup.root, setup.batch_size, threads)
            self._workers.append(_Worker(name, own))

    def __enter__(self) -> DevicePool:
        try:
            loading = [worker.start() for worker in self._workers]
            specs = [worker.started(future) for worker, future in zip(self._workers, loading, strict=True)]
        except BaseException:
            self._end(at_once=True)
            raise
        self.spec: MetricSpec = specs[0]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._end(at_once=kind is not None)

    def _end(self, *, at_once: bool) -> None:
        for worker in self._workers:
            if hasattr(worker, "pool"):
                worker.end(at_once=at_once)

    def score(self, chunks: Iterator[list[RowTask]]) -> Iterator[tuple[list[RowTask], Outcome]]:
        """Each chunk with its outcome, in the order in which they are done."""
        while True:
            for _ in range(_AHEAD):
                for worker in self._workers:
                    if len(worker.queue) < _AHEAD and (chunk := next(chunks, None)) is not None:
                        worker.submit(chunk)
            busy = {worker.queue[0][1]: worker for worker in self._workers if worker.queue}
            if not busy:
                return
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                done = busy[future].take()
                if done is not None:
                    yield done
