"""Several processes, one for each device, each of which does every nth block of rows: for the GPUs of one machine."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from reward.checkpoints.folders import warn_embedded
from reward.errors import ConfigError, WorkerError
from reward.registry import MetricSource
from reward.scoring.process_group import ProcessGroup
from reward.scoring.runs import rows_of_part
from reward.scoring.several import Metrics

if TYPE_CHECKING:
    from reward.scoring.job import Job, Progress


def parse_devices(devices: str | Sequence[str] | None) -> list[str]:
    """The devices to score or to serve on, one for each process.

    Args:
        devices: names, as a list or separated by commas, such as `"cpu,cpu"`, `"cuda:0,cuda:1"` or `"0,1"`, which are
            GPUs, too; `"auto"` means all GPUs, or the CPU where there is none. A device that is named twice gets two
            processes. None means no choice: an empty list.

    Raises:
        ConfigError: there is no such device.

    Example:
        >>> parse_devices("cpu,cpu"), parse_devices(None)
        (['cpu', 'cpu'], [])
    """
    if devices is None:
        return []
    if devices == "auto":
        import torch

        return [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    if isinstance(devices, str):
        if devices.isdecimal() and devices != "0":  # as other tools count them
            raise ConfigError(
                f"devices={devices} may be a number of devices or of one: write cuda:{devices}, or a name for each "
                "process, such as 0,1 (GPUs) or cpu,cpu; auto takes all GPUs"
            )
        devices = devices.split(",")
    names = []
    for name in devices:
        name = name.strip()
        names.append(f"cuda:{int(name)}" if name.isdecimal() else name)
    if not names or not all(names):
        raise ConfigError(f"devices must be auto, or names such as cuda:0,cuda:1; got {devices!r}")
    if set(names) != {"cpu"}:  # which needs no torch to be known
        from reward.backbones.pretrained import usable_device

        for name in names:
            usable_device(name)
    return names


def devices_for(metrics: Metrics, devices: str | Sequence[str]) -> list[str]:
    """Devices of the processes; empty when this process does all. A single device becomes an option of the metrics."""
    names = parse_devices(devices)
    if not metrics.is_named:
        raise ConfigError(
            f"devices= (--devices) loads the metric in each process, but {metrics.name!r} is a scorer that is "
            "loaded already, or behind a service: give the name of a metric and source="
        )
    if len(names) > 1 and metrics.needs_corpus:
        raise ConfigError(
            f"metric {metrics.name!r} weighs words by the references of all rows, which one process reads: "
            "leave out devices= (--devices)"
        )
    if metrics.options.get("device") is not None:
        raise ConfigError("give device= (--device) for one process, or devices= (--devices), not both")
    if len(names) == 1:
        metrics.options["device"] = names[0]
        return []
    return names


def cpu_threads() -> int:
    """Threads of this process: those that OMP_NUM_THREADS allows, else a thread for each core it may use."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    if allowed.isdecimal() and int(allowed):
        return int(allowed)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def processes(devices: Sequence[str], job: Job) -> Iterator[Callable[[Sequence[range]], Iterator[Progress]]]:
    """A process for each device, which loads the metrics; gives a function that has them score blocks of rows.

    The processes end with their parent, also when that is killed.

    Args:
        devices: see `parse_devices`.
        job: what they do, see `Job.work`; the metrics are given by name.

    Raises:
        WorkerError: a process died; what it wrote before is saved.
        Exception: whatever loading the metrics, or scoring, raised.
    """
    import dill  # transforms of data sets may be functions that only dill can send

    if any(isinstance(part, MetricSource) and part.knows_drawings_only for part in job.metrics.parts):
        warn_embedded()  # here, once for all processes
    packed, threads = dill.dumps(job), max(1, cpu_threads() // len(devices))
    started: dict[Any, tuple[str, Any]] = {}
    with ProcessGroup() as group:
        for device in devices:
            pipe, theirs = multiprocessing.Pipe()
            started[pipe] = device, group.start(_serve, theirs, packed, device, threads)
            theirs.close()  # so that the pipe ends when the process does
        for pipe, (device, process) in started.items():
            _received(
                pipe,
                process,
                device,
                "while it loaded the metric: perhaps memory was short (name fewer devices). "
                "A script that scores on several devices must do it below "
                'if __name__ == "__main__":, since its processes import the script',
            )
        yield partial(_shared_out, started)


def _shared_out(started: Mapping[Any, tuple[str, Any]], blocks: Sequence[range]) -> Iterator[Progress]:
    """Gives every nth block to a process, and what they do as it is done."""
    queues = {pipe: [*blocks[number :: len(started)]] for number, pipe in enumerate(started)}
    for pipe, queue in queues.items():
        with suppress(OSError):  # it died, which is noticed below
            pipe.send(queue)
    while busy := [pipe for pipe, queue in queues.items() if queue]:
        for pipe in wait(busy):
            device, process = started[pipe]
            first = queues[pipe].pop(0)
            progress: Progress = _received(
                pipe,
                process,
                device,
                f"over rows {first.start + 1} to {first.stop}: perhaps memory was short "
                "(lower batch_size, --batch-size), or an image crashed its decoder. The parts that are done are saved; "
                "run the same again to go on",
            )
            last = rows_of_part(progress.part).stop
            if last < first.stop:  # a block may take several parts
                queues[pipe].insert(0, range(last, first.stop))
            yield progress


def _received(pipe: Any, process: Any, device: str, moment: str) -> Any:
    """What a process sends; raises what it raised, or says when it died."""
    try:
        message = pipe.recv()
    except (EOFError, OSError):
        process.join()
        raise WorkerError(f"the process of device {device!r} died (exit code {process.exitcode}) {moment}") from None
    if isinstance(message, BaseException):
        raise message
    return message


def _serve(pipe: Connection, packed: bytes, device: str, threads: int) -> None:
    """What a process does: it loads the metrics, is given blocks, and tells what it does."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    if torch := sys.modules.get("torch"):  # the caller's script imported it; otherwise it will look at the environment
        torch.set_num_threads(threads)
    import dill

    try:
        job: Job = dill.loads(packed)
        job.metrics = job.metrics.load(device=device)
        pipe.send(None)
        for progress in job.work(pipe.recv()):
            pipe.send(progress)
    except EOFError:  # the first process has ended
        return
    except BaseException as error:  # raised again there
        with suppress(Exception):
            pipe.send(error)
