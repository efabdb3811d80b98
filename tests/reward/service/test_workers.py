"""Requests that a worker takes with it, and the lock of the workers, without the processes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from reward.registry import MetricSource
from reward.service import workers as module
from reward.service.settings import ServiceSettings
from reward.service.worker import Job, JobReply
from reward.service.workers import Workers


def test_what_a_dead_worker_had_asked_for_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its question to the queue lives on for a second, and takes a request that comes after its death was seen."""
    monkeypatch.setattr(module, "_COLLECT", 0.2)
    monkeypatch.setattr(module, "_LOOK", 0.05)
    workers = Workers(ServiceSettings((MetricSource("length"),), timeout=5.0))
    queue: Queue[Any] = Queue()
    workers._server.litapi_request_queues = {module._PATH: queue}
    workers._server.app = SimpleNamespace(response_queue_id=0)

    async def run() -> JobReply:
        workers._died = time.monotonic()
        asking = asyncio.create_task(workers.ask(Job("length")))
        await asyncio.sleep(0.01)
        queue.get_nowait()  # goes to the dead worker
        while queue.empty():
            await asyncio.sleep(0.01)
        _, uid, *_ = queue.get_nowait()
        item = workers._server.response_buffer[uid]
        item.response = (JobReply({"metric": "length"}), "OK")
        item.event.set()
        return await asking

    assert asyncio.run(run()).facts == {"metric": "length"}
    assert queue.empty()


def test_the_lock_stays_new(tmp_path: Path) -> None:
    """Or a service of some weeks would lose it to what tidies /tmp, and no worker could go on."""
    lock = tmp_path / "lock"
    lock.touch()
    os.utime(lock, (0, 0))
    with module._locked(str(lock)):
        assert lock.stat().st_mtime > time.time() - 60
