"""Several processes, one for each device, each of which does every nth block of rows: for the GPUs of one machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from reward.checkpoints.folders import warn_embedded
from reward.errors import ConfigError, WorkerError
from reward.registry import MetricSource
from reward.scoring.parts import rows_of

if TYPE_CHECKING:
    from reward.scoring.job import Job, Progress


def parse_devices(devices: str | Sequence[str] | None) -> list[str]:
    """The devices to score on, one for each process.

    Args:
        devices: names, as a list or separated by commas; `"auto"` means all GPUs, or the CPU where there is none.
            A device that is named twice gets two processes. None means no choice: an empty list.

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
        devices = devices.split(",")
    names = [name.strip() for name in devices]
    if not names or not all(names):
        raise ConfigError(f"devices must be auto, or names such as cuda:0,cuda:1; got {devices!r}")
    if set(names) != {"cpu"}:  # which needs no torch to be known
        from reward.backbones.pretrained import usable_device

        for name in names:
            usable_device(name)
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
    try:
        for device in devices:
            pipe, theirs = multiprocessing.Pipe()
            process = start_process(_serve, theirs, packed, device, threads)
            theirs.close()
            started[pipe] = device, process
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
    finally:
        for pipe, (_, process) in started.items():
            process.terminate()
            process.join()
            pipe.close()


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
            last = rows_of(progress.part).stop
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


def start_process(target: Callable[..., None], *arguments: Any) -> Any:
    """Starts a process that ends with this one, however this one ends, and that leaves Ctrl-C to it."""
    spawn = multiprocessing.get_context("spawn")  # a fork cannot use CUDA
    process = spawn.Process(target=_run_in_process, args=(target, *arguments))
    process.start()
    return process


def _run_in_process(target: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, name="watch-parent", daemon=True).start()
    target(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()  # after kill -9 nobody would take what it has done, and the GPU stay taken
    os._exit(1)
