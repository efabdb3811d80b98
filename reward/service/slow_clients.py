"""Closes connections whose client does not send the head of a request in time; uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["ImpatientProtocol"]


class ImpatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a limit on the time for a request's head; see `with_limit`."""

    seconds = 20.0
    _timer: asyncio.TimerHandle | None = None

    @classmethod
    def with_limit(cls, seconds: float) -> type[ImpatientProtocol]:
        """The class with another limit, since uvicorn makes the objects itself."""
        return type("ImpatientProtocol", (cls,), {"seconds": seconds})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._wait()  # the next request of the connection begins
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
