"""The door of the service: token, size and time of a request, and how many there may be at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reward.registry import MetricSource
from reward.service.counts import Counts
from reward.service.guard import Guard
from reward.service.settings import ServiceSettings

TOKEN = "a-token-of-the-tests"


async def accept(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def guard_of(**settings: Any) -> Guard:
    return Guard(accept, ServiceSettings((MetricSource("length"),), **settings), Counts())


async def status_of(
    guard: Guard, *parts: bytes, stays: asyncio.Event | None = None, path: str = "/score", **headers: str
) -> int:
    """The status of a request whose body comes in parts.

    Args:
        stays: the body has no end: the client waits for this after its parts, and then leaves.
    """
    left, statuses = list(parts or [b""]), []

    async def receive() -> Any:
        if not left:
            await stays.wait()  # type: ignore[union-attr]
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or stays is not None}

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await guard({"type": "http", "path": path, "method": "POST", "headers": pairs}, receive, send)
    return int(statuses[0])


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("", 401), ("Bearer wrong", 401), (TOKEN, 401), (f"Bearer {TOKEN}", 200), (f"bearer {TOKEN}", 200)],
)
def test_without_the_token_there_is_only_health(authorization: str, status: int) -> None:
    guard = guard_of(token=TOKEN)
    for path in ("/score", "/info", "/metrics", "/openapi.json", "/docs", "/no-such"):
        assert asyncio.run(status_of(guard, path=path, authorization=authorization)) == status
    assert asyncio.run(status_of(guard, path="/health")) == 200


@pytest.mark.parametrize(
    ("parts", "headers", "status"),
    [
        ([b"x" * 50, b"x" * 50], {"content_length": "100"}, 200),
        ([], {"content_length": "101"}, 413),  # before anything was read
        ([b"x" * 50, b"x" * 51, b"unread"], {}, 413),  # without a length, where it gets too large
    ],
)
def test_a_body_that_is_too_large_is_refused_before_it_is_read(parts: Any, headers: Any, status: int) -> None:
    guard = guard_of(max_body=100)
    assert asyncio.run(status_of(guard, *parts, **headers)) == status
    assert (guard.held_bytes, guard.waiting) == (0, 0)


def test_a_body_must_come_in_time_and_wholly() -> None:
    async def run() -> None:
        stays = asyncio.Event()
        assert await status_of(guard_of(body_timeout=0.05), b"{", stays=stays) == 408
        stays.set()
        assert await status_of(guard_of(), b"{", stays=stays) == 400

    asyncio.run(run())


@pytest.mark.parametrize(("settings", "most_bytes"), [({"max_waiting": 4}, 10_000), ({}, 100)])
def test_what_is_too_much_at_a_time_is_told_to_come_again(settings: Any, most_bytes: int) -> None:
    """Four bodies that are half there fill what is set aside; the next is refused, and finds room later."""

    async def run() -> None:
        guard, stays = guard_of(**settings), asyncio.Event()
        guard.most_bytes = most_bytes
        slow = [asyncio.create_task(status_of(guard, b"x" * 20, b"x" * 5, stays=stays)) for _ in range(4)]
        await asyncio.sleep(0.05)
        assert guard.held_bytes == 100
        assert await status_of(guard, b"x") == 429
        stays.set()
        assert await asyncio.gather(*slow) == [400] * 4
        assert await status_of(guard, b"x") == 200

    asyncio.run(run())
