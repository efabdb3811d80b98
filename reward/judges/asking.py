"""How a server is asked: in threads, and equal questions once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from reward.judges.chat import QuestionRefused, Unanswered

_LOST_BY_A_SERVER = 3  # questions in a row that are not answered by one that is down
R = TypeVar("R")
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


class Workers:
    """Threads that ask a server, and end when it is down.

    Args:
        most: how many at a time.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._lost_in_a_row = 0
        self._lock = threading.Lock()

    def ask_each(
        self, requests: Sequence[R], ask: Callable[[R, threading.Event], T]
    ) -> tuple[list[T | None], dict[int, QuestionRefused | Unanswered]]:
        """What `ask` gives for each request, None where there is a failure; and {index of a request: the failure}.

        Args:
            requests: whatever `ask` takes.
            ask: its second argument is set when nothing else is to be asked.

        Raises:
            Exception: what `ask` raised, but for QuestionRefused and Unanswered; also Unanswered by several in a row.
        """
        results: list[T | None] = [None] * len(requests)
        failures: dict[int, QuestionRefused | Unanswered] = {}
        problems: list[Exception] = []  # of the server
        stop = threading.Event()
        queue: SimpleQueue[int] = SimpleQueue()
        for index in range(len(requests)):
            queue.put(index)

        # Threads write into the same list and dict, but each only what belongs to its request.
        def ask_one(index: int) -> None:
            try:
                results[index] = ask(requests[index], stop)
            except Stopped:
                return
            except QuestionRefused as error:
                failures[index] = error
            except Unanswered as error:
                failures[index] = error
                with self._lock:
                    self._lost_in_a_row += 1
                # All questions under way fail when a server goes down, so more than these must.
                if self._lost_in_a_row >= max(self.most, _LOST_BY_A_SERVER):
                    problems.append(error)
                    stop.set()
                return
            except Exception as error:  # whatever it is, the others must finish before it is raised
                problems.append(error)
                stop.set()
                return
            self._lost_in_a_row = 0

        def work() -> None:
            with suppress(Empty):
                while not stop.is_set():
                    ask_one(queue.get_nowait())

        threads = [start_thread(work) for _ in range(min(self.most, len(requests)))]
        try:
            for thread in threads:
                thread.join()
        finally:
            stop.set()  # Ctrl-C: what is under way is still kept, and nothing else is asked
        if problems:
            raise problems[0]
        return results, failures


def start_thread(work: Callable[[], None]) -> threading.Thread:
    """Starts a thread that does not keep the process from ending, as those of an executor would."""
    thread = threading.Thread(target=work, name="judge", daemon=True)
    thread.start()
    return thread
