"""Processes that decode and scale pictures while this one scores; they load neither torch nor a network."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from reward.errors import WorkerError
from reward.images import KeyedImage

MOST = 16  # processes for one device; more pictures a second no network has taken so far
_read: Callable[[Any], Any] | None = None  # in a process that prepares
_context: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"  # on Windows
)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def preparing(read: bytes, count: int) -> Iterator[Callable[[Any], Future[Any]]]:
    """Starts processes that prepare images; gives a function that has one of them prepare an image.

    They come from a fork server: a fork of this process could not be trusted beside its threads and CUDA, and a spawned
    one would import all that is needed once for each. They are no workers of torch's `DataLoader`, since these load
    torch, which takes 1.3 s and 330 MiB each beside .2 s and 30 MiB, and hand over pixels in shared memory, of which
    containers have 64 MiB. They end with this process, also when that is killed.

    Args:
        read: see `PictureReader.packed`.
        count: how many.
    """
    context: Any = type(_context)()
    context.Process = _Process
    if hasattr(context, "set_forkserver_preload"):
        context.set_forkserver_preload([__name__, "PIL.Image"])
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin, initargs=(read,))
    try:
        for _ in range(count):
            pool.submit(os.getpid)  # starts one
        yield lambda image: _told(lambda: pool.submit(_prepare, image))
    finally:
        pool.shutdown(cancel_futures=True)


def result(image: Future[Any]) -> Any:
    """What has become of an image.

    Raises:
        WorkerError: the process that prepared it died.
        Exception: whatever it raised.
    """
    return _told(image.result)


def _told(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except BrokenProcessPool:
        raise WorkerError(
            "a process that prepared pictures died: perhaps memory was short (choose fewer with --workers, workers=), "
            "or an image crashed its decoder. The parts that are done are saved; run the same again to go on"
        ) from None


class _Process(_context.Process):
    """Does not import the script that starts it, which runs again where no `if __name__ == "__main__"` guards it."""

    def start(self) -> None:
        main: Any = vars(sys.modules["__main__"])
        hidden = {name: main.pop(name) for name in ("__file__", "__spec__") if name in main}
        main["__spec__"] = None
        try:
            super().start()
        finally:
            main.update(hidden)


def _begin(read: bytes) -> None:
    global _read
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=end_with_parent, daemon=True).start()
    _read = pickle.loads(read)


def _prepare(image: Any) -> Any:
    assert _read is not None
    keyed = _read(image)
    if isinstance(keyed, KeyedImage):  # a view of pixels is slow to send
        for name, pixels in keyed.prepared.items():
            if hasattr(pixels, "flags"):
                keyed.prepared[name] = pixels.copy()
    return keyed


def end_with_parent() -> None:
    """Ends this process when the one that started it has ended: nobody would take what it does."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
