"""The application of a service in this process."""

import asyncio
import json
import time

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

    def __init__(self, *metrics, **settings):
        served = tuple(MetricSource.parse(name) for name in metrics or ("unigram",))
        failed = []
        self.thread = ScoringThread(ServiceSettings(served, **settings), "cpu", failed.append)
        while not self.thread.facts:
            if failed:
                raise failed[0]
            time.sleep(0.01)
        self.app = make_app(self.thread)

    def client(self):
        """A client of `httpx`, for a `with` in a coroutine."""
        httpx = http_library()
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://test")

    def send(self, method, path, **options):
        """The response; `options` are those of a request of httpx."""

        async def run():
            async with self.client() as client:
                return await client.request(method, path, **options)

        return asyncio.run(run())

    def post(self, path, body, status=200):
        """The JSON of a reply, whose status is checked."""
        response = self.send("POST", path, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert response.status_code == status, response.text
        return response.json()
