"""The application of a service in this process."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from reward.http_client import http_library
from reward.registry import MetricSource
from reward.service.app import make_app
from reward.service.batching import ScoringThread
from reward.service.settings import ServiceSettings


class App:
    """A service of some metrics, to which requests are sent one at a time.

    Args:
        metrics: names, or NAME=FOLDER.
        settings: see ServiceSettings.
    """

    def __init__(self, *metrics: str, **settings: Any) -> None:
        served = tuple(MetricSource.parse(name) for name in metrics or ("unigram",))
        failed: list[Exception] = []
        self.thread = ScoringThread(ServiceSettings(served, **settings), "cpu", failed.append)
        while not self.thread.facts:
            if failed:
                raise failed[0]
            time.sleep(0.01)
        self.app = make_app(self.thread)

    def client(self) -> Any:
        """A client of `httpx`, for a `with` in a coroutine."""
        httpx = http_library()
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://test")

    def send(self, method: str, path: str, **options: Any) -> Any:
        """The response; `options` are those of a request of httpx."""

        async def run() -> Any:
            async with self.client() as client:
                return await client.request(method, path, **options)

        return asyncio.run(run())

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        """The JSON of a reply, whose status is checked."""
        response = self.send("POST", path, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert response.status_code == status, response.text
        return response.json()
