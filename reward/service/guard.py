"""The door of the service: token, size and time of a request's body, number of requests; and the counts of requests."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from typing import Any

from reward.service.settings import ServiceSettings
from reward.service.telemetry import Telemetry

__all__ = ["Guard"]

_OPEN = ("/health",)  # for load balancers, which have no token


class _Refusal(Exception):
    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


class Guard:
    """ASGI middleware that hands a request on only after its whole body has come, within the limits.

    Args:
        app: the application.
        settings: token and limits.
        telemetry: what counts requests.
    """

    def __init__(self, app: Any, settings: ServiceSettings, telemetry: Telemetry) -> None:
        self.app, self.settings, self.telemetry = app, settings, telemetry
        self.waiting = 0
        self.most_bytes = max(4 * settings.max_body, 256_000_000)  # of all requests that are here at a time
        self.held_bytes = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        parts: list[bytes] = []  # of the body, counted in `held_bytes`

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.waiting += 1
        self.telemetry.waiting.set(self.waiting)
        try:
            self._check(scope)
            await self._body(receive, parts)
            parts[:] = [b"".join(parts)]
            await self.app(scope, _replayed(parts[0], receive), watched)
        except _Refusal as refusal:
            # What the client still sends would be taken for its next request.
            body = json.dumps({"error": str(refusal)}).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            headers |= {name.replace("_", "-"): value for name, value in refusal.headers.items()}
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            await watched({"type": "http.response.start", "status": refusal.status, "headers": pairs})
            await send({"type": "http.response.body", "body": body})
        finally:
            self.held_bytes -= sum(map(len, parts))
            self.waiting -= 1
            self.telemetry.waiting.set(self.waiting)
            route = getattr(scope.get("route"), "path", "other")  # not the path: clients may make up many
            self.telemetry.requests.labels(route, str(status)).inc()
            self.telemetry.seconds.labels(route).observe(time.perf_counter() - start)

    def _check(self, scope: Any) -> None:
        headers = dict(scope["headers"])
        settings = self.settings
        if settings.token is not None and scope["path"] not in _OPEN:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            right = hmac.compare_digest(given.strip(), settings.token.encode())
            if not right or scheme.lower() != b"bearer":  # RFC 9110: the scheme's case does not matter
                raise _Refusal(
                    401, "send the service's token as 'Authorization: Bearer TOKEN'", www_authenticate="Bearer"
                )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > settings.max_body:
            raise _Refusal(413, self._too_large())
        if self.waiting > settings.max_waiting and scope["path"] not in _OPEN:
            raise _Refusal(429, f"{settings.max_waiting} requests are under way already", retry_after="1")

    async def _body(self, receive: Any, parts: list[bytes]) -> None:
        try:
            await asyncio.wait_for(self._read(receive, parts), self.settings.body_timeout)
        except asyncio.TimeoutError:
            raise _Refusal(408, f"the body did not come within {self.settings.body_timeout:g} s") from None

    async def _read(self, receive: Any, parts: list[bytes]) -> None:
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Refusal(400, "the connection ended within the body")
            part = message.get("body", b"")
            size += len(part)
            if size > self.settings.max_body:
                raise _Refusal(413, self._too_large())
            if self.held_bytes + len(part) > self.most_bytes:  # not once it is whole: hundreds come at a time
                raise _Refusal(429, "the requests under way fill the memory set aside for them", retry_after="1")
            self.held_bytes += len(part)
            parts.append(part)
            if not message.get("more_body"):
                return

    def _too_large(self) -> str:
        return (
            f"the body has more than {self.settings.max_body} bytes; send fewer or smaller images, or raise --max-body"
        )


def _replayed(body: bytes, receive: Any) -> Any:
    """A `receive` that gives a body that was read already, and then what comes next."""
    is_given = False

    async def replay() -> Any:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
