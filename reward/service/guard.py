"""The door of the service: token, size and time of a request, number of requests; and the counts of requests."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reward.service.counts import Counts
from reward.service.settings import ServiceSettings

# For load balancers and browsers, which send no token: the pages say how to ask, and nothing of what is asked.
_OPEN = ("/health", "/docs", "/openapi.json")


class _Refusal(Exception):
    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


class Guard:
    """ASGI middleware that hands a request on only after its whole body has come, within the limits.

    Args:
        app: the application.
        settings: token and limits.
        counts: what counts requests.
    """

    def __init__(self, app: Any, settings: ServiceSettings, counts: Counts) -> None:
        self.app, self.settings, self.counts = app, settings, counts
        self.waiting = 0
        self.most_bytes = max(4 * settings.max_body, 256_000_000)  # of all requests that are here at a time
        self.held_bytes = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        # Filled by `_read`, which counts it in `held_bytes`, and subtracted at the end, also after a refusal.
        body = bytearray()

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.waiting += 1
        self.counts.waiting.set(self.waiting)
        try:
            self._check(scope)
            await self._read(receive, body)
            await self.app(scope, _replayed(bytes(body), receive), watched)
        except _Refusal as refusal:
            # What the client still sends would be taken for its next request.
            text = json.dumps({"error": str(refusal)}).encode()
            headers = {"content-type": "application/json", "content-length": str(len(text)), "connection": "close"}
            headers |= {name.replace("_", "-"): value for name, value in refusal.headers.items()}
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            await watched({"type": "http.response.start", "status": refusal.status, "headers": pairs})
            await send({"type": "http.response.body", "body": text})
        finally:
            self.held_bytes -= len(body)
            self.waiting -= 1
            self.counts.waiting.set(self.waiting)
            # Not the path of the request: clients may make up many, and each would be a counter of its own.
            route = getattr(scope.get("route"), "path", "other")
            self.counts.requests.labels(route, str(status)).inc()
            self.counts.seconds.labels(route).observe(time.perf_counter() - start)

    def _check(self, scope: Any) -> None:
        """Refuses a request by its head: without the token, too large, or one too many."""
        if scope["path"] in _OPEN:
            return
        headers, settings = dict(scope["headers"]), self.settings
        if settings.token is not None:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            is_right = hmac.compare_digest(token.strip(), settings.token.encode())
            if not is_right or scheme.lower() != b"bearer":  # RFC 9110: the scheme's case does not matter
                reason = "send the service's token as 'Authorization: Bearer TOKEN'"
                raise _Refusal(401, reason, www_authenticate="Bearer")
        length = headers.get(b"content-length", b"0")
        if length.isdigit():
            self._check_size(int(length))
        if self.waiting > settings.max_waiting:
            raise _Refusal(429, f"{settings.max_waiting} requests are under way already", retry_after="1")

    def _check_size(self, size: int) -> None:
        most = self.settings.max_body
        if size > most:
            raise _Refusal(
                413, f"the body has more than {most} bytes; send fewer or smaller images, or raise --max-body"
            )

    async def _read(self, receive: Any, body: bytearray) -> None:
        """Appends to `body` what comes; refuses one that is too large or late, or for which there is no memory."""
        end = time.monotonic() + self.settings.body_timeout
        more = True
        while more:
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()))
            except asyncio.TimeoutError:
                seconds = self.settings.body_timeout
                raise _Refusal(408, f"the body did not come within {seconds:g} s") from None
            if message["type"] == "http.disconnect":
                raise _Refusal(400, "the connection ended within the body")
            part, more = message.get("body", b""), message.get("more_body", False)
            self._check_size(len(body) + len(part))
            if self.held_bytes + len(part) > self.most_bytes:  # not once it is whole: hundreds come at a time
                raise _Refusal(429, "the requests under way fill the memory set aside for them", retry_after="1")
            self.held_bytes += len(part)
            body += part


def _replayed(body: bytes, receive: Any) -> Any:
    """A `receive` that gives a body that was read already, and then what comes next."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        if messages:
            return messages.pop()
        return await receive()

    return replay


def impatient_protocol(seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, but a connection without the whole head of a request after so many seconds is closed."""

    class Impatient(HttpToolsProtocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(seconds, self.close_idle)

        def close_idle(self) -> None:
            if self.cycle is None:  # uvicorn's, of a request whose head has come
                self.transport.close()

    return Impatient
