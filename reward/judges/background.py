"""An event loop in a thread of its own, so that coroutines can be waited for from anywhere."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["BackgroundLoop"]

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines in a daemon thread, whether or not the caller is in an event loop; stops when it is dropped.

    anyio's blocking portal would not do: leaving it waits for its thread, which a forked process does not have.

    Example:
        >>> async def double(number):
        ...     return 2 * number
        >>> loop = BackgroundLoop()
        >>> loop.run(double(21))
        42
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=[self._loop], name="judge", daemon=True).start()
        self._stop = weakref.finalize(self, _stop, self._loop)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts a coroutine. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Starts a coroutine and waits for it; Ctrl-C cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The same from another event loop, which goes on meanwhile."""
        return await asyncio.wrap_future(self.submit(coroutine))

    def close(self) -> None:
        """Stops the loop; what runs is cancelled."""
        self._stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
