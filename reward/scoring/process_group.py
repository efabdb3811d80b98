"""Processes that end with this one: for the devices that score a file, and for those that serve."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class ProcessGroup:
    """Processes that are ended when the `with` block is left, or when this process ends, in whatever way.

    Args:
        grace: seconds that they get to end by themselves after SIGTERM; then they are killed.
    """

    def __init__(self, grace: float = 5.0) -> None:
        self._grace = grace
        self._processes: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.terminate()
        end = time.monotonic() + self._grace
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
            process.kill()
            process.join()

    def start(self, target: Callable[..., None], *arguments: Any) -> Any:
        """Starts a process, which leaves Ctrl-C to this one."""
        spawn = multiprocessing.get_context("spawn")  # a fork cannot use CUDA
        process = spawn.Process(target=_run, args=(target, *arguments))
        process.start()
        self._processes.append(process)
        return process


def _run(target: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, name="watch-parent", daemon=True).start()
    target(*arguments)


def _end_with_parent() -> None:
    """After kill -9 of the parent nobody would take what this process does, and its GPU would stay taken."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
