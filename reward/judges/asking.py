"""How a server is asked: in threads, and equal questions once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The call that asked was given up, so whoever else waits for this answer must ask for it."""


class Twins(Generic[T]):
    """Equal questions that are asked at the same time are asked once."""

    def __init__(self) -> None:
        self._pending: dict[str, Future[T]] = {}  # what a thread is asking for

    def once(self, key: str, ask: Callable[[], T]) -> tuple[T, bool]:
        """What `ask` gives, or what it gives another thread with the same key; and whether it was another's.

        Raises:
            Exception: what `ask` raises, in all threads. But where it is Stopped, the next thread asks.
        """
        ours: Future[T] = Future()
        while True:
            # setdefault is atomic: one of the threads finds its own future there.
            pending = self._pending.setdefault(key, ours)
            if pending is ours:
                break
            # A call that was given up, as by Ctrl-C, leaves its question to whoever waits for it.
            with suppress(Stopped):
                return pending.result(), True
        try:
            ours.set_result(ask())
        except BaseException as error:
            ours.set_exception(error)
        del self._pending[key]
        return ours.result(), False


def ask_in_threads(ask: Callable[[T], None], keys: Iterable[T], most: int, stop: threading.Event) -> None:
    """Calls `ask` with each key, in as many threads as there are keys, and `most` at most; `stop` ends it early."""
    queue: SimpleQueue[T] = SimpleQueue()
    for key in keys:
        queue.put(key)

    def work() -> None:
        with suppress(Empty):
            while not stop.is_set():
                ask(queue.get_nowait())

    threads = [start_thread(work) for _ in range(min(most, queue.qsize()))]
    try:
        for thread in threads:
            thread.join()
    finally:
        stop.set()  # Ctrl-C: what is under way is still kept, and nothing else is asked


def start_thread(work: Callable[[], None]) -> threading.Thread:
    """Starts a thread that does not keep the process from ending, as those of an executor would."""
    thread = threading.Thread(target=work, name="judge", daemon=True)
    thread.start()
    return thread
