"""Worker processes and batches by LitServe; the only file that uses what LitServe does not document.

LitServe 0.2.19 has one process that speaks HTTP, one that holds a queue of requests, and workers that take batches from
it. Here its loop is changed in two ways: a worker waits for a first request instead of asking for one a thousand times
a second, and one worker at a time collects, so that requests for one image, which come one after another, are not
dealt out to several workers. LitServe starts a dead worker again, but what that one had taken would wait for ever:
`Workers.ask` asks again.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty
from typing import Any

import uvicorn
from litserve import LitAPI, LitServer
from litserve.loops.simple_loops import BatchedLoop
from litserve.utils import LitAPIStatus, LoopResponseType, ResponseBufferItem, WorkerSetupStatus

from reward.errors import ConfigError, ServiceError
from reward.service.settings import ServiceSettings
from reward.service.slow_clients import ImpatientProtocol
from reward.service.worker import Job, JobReply, Worker, end_with_parent

__all__ = ["Workers"]

logger = logging.getLogger(__name__)

_PATH = "/jobs"  # LitServe names the queue by it; no client reaches it
_LOOK = 0.5  # seconds between two looks at the workers
_COLLECT = 1.0  # seconds for which a worker waits for a first request
_TRIES = 3  # a request is given up when as many workers died with it


class _Loop(BatchedLoop):
    """Collects the requests of a batch."""

    def __init__(self, lock_file: str) -> None:
        super().__init__()
        self.lock_file = lock_file

    def get_batch_requests(self, lit_api: Any, request_queue: Any, transport: Any) -> tuple[list[Any], list[Any]]:
        batch: list[Any] = []
        with _locked(self.lock_file):
            end = time.monotonic() + _COLLECT
            while len(batch) < lit_api.max_batch_size:
                try:
                    item = request_queue.get(timeout=max(0.0, end - time.monotonic()))
                except Empty:
                    break
                consumer, uid, submitted, job = item
                if time.monotonic() - submitted > lit_api.settings.timeout:
                    continue  # nobody waits for it any more
                if job.is_alone and batch:
                    request_queue.put(item)  # its turn comes
                    break
                self.put_response(transport, consumer, uid, (), LitAPIStatus.START, LoopResponseType.REGULAR)
                if not batch:
                    end = time.monotonic() + lit_api.batch_timeout
                batch.append((consumer, uid, job))
                if job.is_alone:
                    break
        return batch, []


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Holds a lock that the system takes back from a process that dies."""
    with open(path, "rb") as file:
        os.utime(file.fileno())  # what tidies a folder for temporary files leaves new ones alone
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _API(LitAPI):
    """What LitServe starts in a worker process."""

    def __init__(self, settings: ServiceSettings, lock_file: str) -> None:
        super().__init__(
            api_path=_PATH,
            max_batch_size=settings.batch_requests,
            batch_timeout=settings.batch_wait,
            loop=_Loop(lock_file),
        )
        self.settings = settings

    def setup(self, device: Any) -> None:
        end_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the first one stops the rest
        try:
            self.worker = Worker(self.settings, device if isinstance(device, str) else device[0])
        except Exception as error:
            logging.getLogger("litserve").setLevel(logging.CRITICAL)  # it would log a traceback
            print(f"error: a worker cannot start: {error}", file=sys.stderr, flush=True)
            raise

    def predict(self, jobs: Any, **options: Any) -> list[JobReply]:
        return self.worker.run(jobs)


class _Server(LitServer):
    """LitServe with notes of its manager's process, which is left when this one is killed, and of those for HTTP.

    It listens at `host`, which may be any address; LitServe itself knows three.
    """

    manager_pid = 0
    for_http: Collection[Any] = ()
    host = "127.0.0.1"

    def _init_manager(self, num_api_servers: int) -> Any:
        # SIGTERM to the whole process group, as `timeout` sends it, must not end the manager before the others.
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            manager = super()._init_manager(num_api_servers)
        finally:
            signal.signal(signal.SIGTERM, before)
        self.manager_pid = next(p.pid or 0 for p in multiprocessing.active_children() if "SyncManager" in p.name)
        return manager

    def _start_server(self, port: int, number: int, log_level: str, sockets: Any, *rest: Any, **options: Any) -> Any:
        for each in sockets:
            each.close()
        sockets = [uvicorn.Config(self.app, host=self.host, port=port, log_level=log_level).bind_socket()]
        started = super()._start_server(port, number, log_level, sockets, *rest, **options)
        self.for_http = started.values()
        return started


class Workers:
    """The processes that score, and the way to ask them.

    Args:
        settings: of the service.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="capreward-serve-")
        lock_file = Path(self._folder.name, "lock")
        lock_file.touch()
        self._server = _Server(
            _API(settings, str(lock_file)),
            workers_per_device=settings.workers,
            timeout=False,  # ours also counts the time that a request is scored
            restart_workers=True,
            **_devices(settings.devices),
        )
        self._server.host = settings.host
        self._server.monitor_internal = _LOOK
        self._server.uvicorn_graceful_timeout = settings.drain
        self._died = -_COLLECT  # when a worker was last found dead
        self._ready: dict[str, bool] = {}

    @property
    def ready(self) -> int:
        """Number of workers that can score, as of the last look."""
        return sum(self._ready.values())

    async def ask(self, job: Job) -> JobReply:
        """The reply of a worker. If a worker dies meanwhile, another is asked.

        Raises:
            asyncio.TimeoutError: there is no reply in time.
            ServiceError: workers died while they scored this request, the last ones this request alone.
        """
        deadline = time.monotonic() + self.settings.timeout
        deaths = 0
        while deaths < _TRIES:
            reply, was_taken = await self._submit(job, deadline)
            if reply is not None:
                return reply
            deaths += was_taken
            job = replace(job, is_alone=deaths > 0)  # so that it can end no other request
        raise ServiceError(f"{_TRIES} workers died, one after another, while they scored this request")

    async def _submit(self, job: Job, deadline: float) -> tuple[JobReply | None, bool]:
        """The reply, or None if a worker that may have taken the request died; and whether one is known to have."""
        server, uid = self._server, uuid.uuid4().hex
        item = server.response_buffer[uid] = ResponseBufferItem(asyncio.Event())
        submitted = time.monotonic()
        try:
            queue = server.litapi_request_queues[_PATH]
            queue.put((server.app.response_queue_id, uid, submitted, job))
            while not item.event.is_set():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise asyncio.TimeoutError
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(item.event.wait(), min(left, _LOOK))
                    break
                taken_by_dead = item.worker_id is not None and not self._ready.get(f"jobs_{item.worker_id}", True)
                # What a worker that dies had asked the queue for is still handed out to it, and seen by nobody.
                end = self._died + _COLLECT
                lost_unseen = item.worker_id is None and submitted < end < time.monotonic()
                if taken_by_dead or lost_unseen:
                    return None, taken_by_dead
            reply, status = item.response
            if status == LitAPIStatus.ERROR:  # our worker catches its errors, so this is LitServe's own
                raise ServiceError("the request could not be handed to a worker")
            return reply, True
        finally:
            server.response_buffer.pop(uid, None)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """For the application, in the process that speaks HTTP."""
        manager_pid = self._server.manager_pid
        end_with_parent(lambda: os.kill(manager_pid, signal.SIGKILL))
        watching = asyncio.create_task(self._watch_workers())
        async with self._server.lifespan(app):
            yield
        watching.cancel()

    async def _watch_workers(self) -> None:
        while True:
            with suppress(OSError, EOFError):  # the manager ends before this process
                states = await asyncio.to_thread(dict, self._server.workers_setup_status)
                ready = {name: state == WorkerSetupStatus.READY for name, state in states.items()}
                if any(was and not ready.get(name) for name, was in self._ready.items()):
                    self._died = time.monotonic()
                    logger.warning("a worker died and is started again")
                self._ready = ready
            await asyncio.sleep(_LOOK)

    def serve(self, app: Any) -> None:
        """Serves an application until SIGTERM or Ctrl-C, and then finishes the requests under way.

        Raises:
            ServiceError: no worker could be started, or one of the other processes died.
        """
        server, settings = self._server, self.settings
        _check_port(settings.host, settings.port)
        app.response_queue_id = None  # LitServe sets it
        server.app = app
        stopping, failed = threading.Event(), threading.Event()

        def stop() -> None:
            stopping.set()
            event = server._shutdown_event
            if event is None:  # nothing has begun
                os._exit(0)
            with suppress(OSError, EOFError):  # the manager is gone already
                event.set()

        def on_signal(number: int, frame: Any) -> None:
            if stopping.is_set() and number == signal.SIGINT:
                os._exit(130)  # Ctrl-C pressed again; the other processes end with this one
            # In a thread: this one may be waiting for the manager, which answers one question of a thread at a time.
            threading.Thread(target=stop).start()

        def watch_http() -> None:
            while not stopping.wait(_LOOK):
                if not all(process.is_alive() for process in server.for_http):
                    failed.set()
                    stop()

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        threading.Thread(target=watch_http, daemon=True).start()
        try:
            server.run(
                host="::" if ":" in settings.host else "127.0.0.1",  # taken back by `_Server`
                port=settings.port,
                num_api_servers=1,
                generate_client_file=False,
                log_level="critical",
                http=ImpatientProtocol.with_limit(settings.body_timeout),
                access_log=False,
                server_header=False,
                ws="none",
            )
        except RuntimeError:
            for child in multiprocessing.active_children():  # LitServe leaves them
                child.kill()
            raise ServiceError("no worker could be started; the reason stands above") from None
        except (EOFError, ConnectionError):
            raise ServiceError("the process that holds the requests died; start the service again") from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if failed.is_set():
            raise ServiceError("the process that speaks HTTP died; start the service again")


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as uvicorn does
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServiceError(f"port {port} of {host} cannot be used: {error.strerror}; choose another") from None


def _devices(text: str) -> dict[str, Any]:
    if text in ("cpu", "auto"):
        return {"accelerator": text}
    try:
        return {"accelerator": "cuda", "devices": [int(number) for number in text.split(",")]}
    except ValueError:
        raise ConfigError(f"devices must be auto, cpu, or numbers of GPUs such as 0,1, got {text!r}") from None
