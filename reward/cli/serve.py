"""`capreward serve`: metrics behind HTTP."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reward.cli import options, terminal

TOKEN = "CAPREWARD_TOKEN"


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Where a service is, and its limits: the fields of `ServiceSettings`, which checks them."""

    host: Annotated[
        str, typer.Option(help="127.0.0.1, localhost and ::1 are this machine only; 0.0.0.0 and :: are all networks.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", "-p")] = 8123
    image_root: Annotated[
        Path | None, typer.Option(help="Folder of the images that clients may name by path; default: no paths.")
    ] = None
    devices: Annotated[
        str,
        typer.Option(
            help="auto (all GPUs, else the CPU), or a list such as 0,1 or cpu,cpu: a process each, on ports from "
            "--port on."
        ),
    ] = "auto"
    dtype: options.Dtype = None
    batch_size: Annotated[int | None, typer.Option(help="Most captions of a forward pass.")] = None
    batch_wait: Annotated[float, typer.Option(help="Milliseconds that a request waits for others to join.")] = 5.0
    timeout: Annotated[float, typer.Option(help="Seconds until a request without an answer is given up.")] = 60.0
    body_timeout: Annotated[float, typer.Option(help="Seconds that a client has to send a request.")] = 20.0
    max_body: Annotated[int, typer.Option(help="Most bytes of a request.")] = 32_000_000
    max_pixels: Annotated[int, typer.Option(help="Most pixels of an image.")] = 25_000_000


@options.describe(synonyms={"--api-key --token": "CAPREWARD_TOKEN=TOKEN before the command"})
def serve(metrics: options.MetricOptions, service: ServiceOptions) -> None:
    """Serve metrics over HTTP, for trainers on other cards, on other machines and in other frameworks.

    ```
    capreward serve --metric vela
    ```

    In a training script: `RemoteReward("http://127.0.0.1:8123", "vela")`. From anywhere:

    ```
    curl http://127.0.0.1:8123/score --json @- <<END
    {"image": "$(base64 < dog.jpg | tr -d '\\n')", "caption": "A dog runs."}
    END
    ```

    The paths are /score, /info, /health, /metrics (Prometheus) and /docs.

    The environment variable CAPREWARD_TOKEN holds a token that clients must know; without it, only this machine
    is served.
    """
    from reward.checkpoints.folders import warn_embedded
    from reward.optional import require
    from reward.service.settings import ServiceSettings

    values = vars(service) | {"batch_wait": service.batch_wait / 1000}
    settings = ServiceSettings(metrics=tuple(metrics.sources()), token=os.environ.get(TOKEN) or None, **values)
    # Here, once, and not in each of the processes, which would be started again and again.
    require("uvicorn", extra="serve", purpose="capreward serve")
    from reward.service.processes import serve as serve_all

    names = ", ".join(metric.name for metric in settings.metrics)
    addresses = ",".join(settings.url(port) for _, port in settings.places())
    terminal.console(stderr=True).print(f"starting {names} at {addresses} (Ctrl-C stops)")
    if any(metric.knows_drawings_only for metric in settings.metrics):
        warn_embedded()  # here, once for all processes
    serve_all(settings)
