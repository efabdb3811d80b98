"""The processes of a service: one for each device, on ports of its own, which is started again when it dies."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from reward.errors import ServiceError
from reward.scoring.process_group import ProcessGroup
from reward.service.settings import ServiceSettings

logger = logging.getLogger(__name__)

_DRAIN = 30  # seconds that requests under way have when the service is ended
_LOOK = 0.2  # seconds between two looks at the processes
_PAUSE = 1.0  # seconds before a process that died is started again
_PORT_WAIT = 2.0  # seconds that a process which is started again waits for its port
_CANNOT_START = 9  # exit code of a process that would fail again


def serve(settings: ServiceSettings) -> None:
    """Serves until SIGTERM or Ctrl-C, and then finishes the requests under way.

    Raises:
        ServiceError: a port cannot be used, or the metrics cannot be loaded.
    """
    addresses = settings.places()
    # Here, where the reason can be raised. Between this and the start of a process another program may take the port;
    # then the process itself says so and ends the service.
    for _, port in addresses:
        _listening(settings.host, port).close()
    stopping = threading.Event()

    def stop(number: int, frame: Any) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            os._exit(130)  # Ctrl-C pressed again; the others end with this process
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with ProcessGroup(grace=_DRAIN + 5.0) as group:  # they end by themselves within `_DRAIN`
            children = [group.start(_serve_one, settings, device, port) for device, port in addresses]
            while not stopping.wait(_LOOK):
                for number, child in enumerate(children):
                    if child.exitcode == _CANNOT_START:
                        raise ServiceError("the service cannot start; the reason stands above")
                    if child.exitcode is not None and not stopping.wait(_PAUSE):
                        device, port = addresses[number]
                        logger.warning("port %d: the process died and is started again", port)
                        children[number] = group.start(_serve_one, settings, device, port)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve_one(settings: ServiceSettings, device: str, port: int) -> None:
    """What a process does: HTTP in its main thread, and scoring in another."""
    import uvicorn

    from reward.service.app import make_app
    from reward.service.batching import ScoringThread
    from reward.service.guard import impatient_protocol

    start = time.monotonic()

    def say_ready() -> None:
        print(f"ready at {settings.url(port)} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

    def give_up(error: Exception) -> None:
        print(f"error: {device}: {error}", file=sys.stderr, flush=True)
        os._exit(_CANNOT_START)

    try:
        listening = _listening(settings.host, port, _PORT_WAIT)
    except ServiceError as error:
        give_up(error)
    listening.listen()  # a client may come as soon as it is told that the metrics are ready
    config = uvicorn.Config(
        make_app(ScoringThread(settings, device, give_up, say_ready)),
        log_level="error",
        http=impatient_protocol(settings.body_timeout),
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_DRAIN,
    )
    uvicorn.Server(config).run([listening])
    os._exit(0)  # without a word of the scoring thread, which may be at work


def _listening(host: str, port: int, patience: float = 0.0) -> socket.socket:
    """A socket at a port, waited for; a port that another program holds ends the service."""
    end = time.monotonic() + patience
    while True:
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            return bound
        except OSError as error:
            bound.close()
            if time.monotonic() >= end:
                reason = error.strerror
                raise ServiceError(f"port {port} of {host} cannot be used: {reason}; choose another") from None
        time.sleep(0.2)
