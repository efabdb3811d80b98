"""The door of the service: token, size and time of a request, and how many there may be at a time."""

import asyncio

import pytest

from reward.service.guard import Guard
from tests.reward.service.in_process import App

TOKEN = "a-token-of-the-tests"


async def body(*parts, end):
    """A body in parts, without a length, that comes to its end at an event."""
    for part in parts:
        yield part
    await end.wait()


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("", 401), ("Bearer wrong", 401), (TOKEN, 401), (f"Bearer {TOKEN}", 200), (f"bearer {TOKEN}", 200)],
)
def test_without_the_token_there_are_only_health_and_the_pages_of_a_browser(authorization, status):
    app = App("length", token=TOKEN)
    for path in ("/info", "/metrics"):
        assert app.send("GET", path, headers={"Authorization": authorization}).status_code == status
    assert [app.send("GET", path).status_code for path in ("/health", "/docs", "/openapi.json")] == [200] * 3
    assert app.send("POST", "/score", json={"caption": "A star."}).status_code == 401
    # The page asks for the token, and sends it with what is tried there.
    schemes = app.send("GET", "/openapi.json").json()["components"]["securitySchemes"]
    assert schemes == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}


def test_a_body_must_come_in_time_and_one_that_is_too_large_is_not_read():
    app = App("length", max_body=100, body_timeout=0.2)
    assert app.send("POST", "/score", content=b"x" * 100).status_code == 422  # which is no JSON
    assert app.send("POST", "/score", content=b"x" * 101).status_code == 413
    assert app.send("POST", "/score", content=body(b"x" * 50, b"x" * 51, end=asyncio.Event())).status_code == 413
    assert app.send("POST", "/score", content=body(b"x" * 50, end=asyncio.Event())).status_code == 408


@pytest.mark.parametrize(("settings", "most_bytes"), [({"max_waiting": 4}, 10_000), ({}, 100)])
def test_what_is_too_much_at_a_time_is_told_to_come_again(settings, most_bytes):
    """Four bodies that are half there fill what is set aside; the next is refused, and finds room later."""
    app = App("length", **settings)
    app.send("GET", "/health")  # builds the guard
    guard = app.app.middleware_stack
    while not isinstance(guard, Guard):
        guard = guard.app
    guard.most_bytes = most_bytes

    async def run():
        end = asyncio.Event()
        async with app.client() as client:
            slow = [client.post("/score", content=body(b"x" * 20, b"x" * 5, end=end)) for _ in range(4)]
            waiting = asyncio.gather(*slow)
            await asyncio.sleep(0.05)
            assert (guard.held_bytes, guard.waiting) == (100, 4)
            assert (await client.post("/score", json={"caption": "A star."})).status_code == 429
            end.set()
            assert [reply.status_code for reply in await waiting] == [422] * 4
            assert (await client.post("/score", json={"caption": "A star."})).status_code == 200
        assert (guard.held_bytes, guard.waiting) == (0, 0)

    asyncio.run(run())
