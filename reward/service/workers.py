"""Workers and batches by LitServe: the only file that uses names of LitServe that it does not document.

LitServe 0.2.19 keeps one queue of requests in a process of its own; every worker takes batches from it. A worker that
dies is started again, but what it had taken waits for ever: `Workers.ask` asks again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from litserve import LitAPI, LitServer
from litserve.server import RegularRequestHandler

from reward.service.settings import ServiceSettings
from reward.service.worker import Job, JobReply, Worker, end_with_parent

__all__ = ["Workers"]


class ScoringAPI(LitAPI):
    """A worker process of LitServe."""

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__(
            max_batch_size=settings.batch_requests,
            batch_timeout=settings.batch_wait if settings.batch_requests > 1 else 0.0,
        )
        self.settings = settings

    def setup(self, device: Any) -> None:
        end_with_parent()
        self.worker = Worker(self.settings, str(device))

    def predict(self, jobs: Any, **options: Any) -> Any:
        return self.worker.run(jobs) if isinstance(jobs, list) else self.worker.run([jobs])[0]


class Workers:
    """The processes that score, and the way to ask them."""

    def __init__(self, settings: ServiceSettings) -> None:
        api = ScoringAPI(settings)
        if settings.devices == "cpu":
            devices: dict[str, Any] = {"accelerator": "cpu"}
        elif settings.devices == "auto":
            devices = {"accelerator": "auto"}
        else:
            devices = {"accelerator": "cuda", "devices": [int(number) for number in settings.devices.split(",")]}
        self.settings = settings
        self.server = LitServer(
            api, workers_per_device=settings.workers, timeout=False, restart_workers=True, **devices
        )
        self._handler = RegularRequestHandler(api, self.server)

    async def ask(self, job: Job) -> JobReply:
        return await asyncio.wait_for(self._handler.handle_request(job, Job), self.settings.timeout)  # type: ignore[no-any-return]

    def serve(self, app: Any) -> None:
        app.response_queue_id = None
        self.server.app = app
        self.server.run(
            host=self.settings.host,
            port=self.settings.port,
            num_api_servers=1,
            generate_client_file=False,
            log_level="warning",
        )
