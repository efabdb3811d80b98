"""Several processes, one for each device, each of which does every nth part: for several GPUs of one machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from reward.checkpoints import warn_embedded
from reward.errors import ConfigError, WorkerError

if TYPE_CHECKING:
    from reward.scoring.job import Job, Progress

__all__ = ["DevicePool", "cpu_threads", "parse_devices"]


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
    names = [name.strip() for name in (devices.split(",") if isinstance(devices, str) else devices)]
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
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class DevicePool:
    """A process for each device, which loads the metrics and scores parts.

    A process that dies is started again and goes on with its parts; if it dies over the same part once more, the run
    stops with the reason. The processes end with their parent, also when that is killed.

    Args:
        devices: see `parse_devices`.
        job: what they do; the metrics are given by name.

    Attributes:
        facts: see `Job.facts`.

    Raises:
        WorkerError: a process died while it loaded the metrics, or twice over the same rows.
        Exception: whatever loading the metrics, or a part, raised.
    """

    def __init__(self, devices: Sequence[str], job: Job) -> None:
        threads = max(1, cpu_threads() // len(devices))
        self._workers = [_Worker(device, job, threads) for device in devices]

    def __enter__(self) -> DevicePool:
        if self._workers[0].job.scorer.given.knows_drawings_only:
            warn_embedded()  # here, once for all processes
        try:
            for worker in self._workers:
                worker.start()
            facts = [worker.loaded() for worker in self._workers]
            self.facts: dict[str, Any] = facts[0]
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _end(self) -> None:
        for worker in self._workers:
            worker.end()

    def work(self, numbers: Iterable[int]) -> Iterator[Progress]:
        """What the processes do of some parts, as it is done; see `Job.work`."""
        wanted = list(numbers)
        for place, worker in enumerate(self._workers):
            worker.give(wanted[place :: len(self._workers)])
        while busy := {worker.pipe: worker for worker in self._workers if worker.left}:
            for pipe in wait(list(busy)):
                yield from busy[pipe].take()  # type: ignore[index]


class _Worker:
    """A process, and the parts that it has still to do."""

    def __init__(self, device: str, job: Job, threads: int) -> None:
        self.device, self.job, self._threads = device, job, threads
        self.left: list[int] = []
        self._died_over: int | None = None
        self.pipe: Connection

    def start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork cannot use CUDA
        self.pipe, theirs = spawn.Pipe()
        arguments = (theirs, _packed(self.job), self.device, self._threads)
        self.process = spawn.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def loaded(self) -> Any:
        """Waits until the metrics are loaded; gives the facts about them."""
        try:
            return self._received()
        except EOFError:
            self.process.join()
            raise WorkerError(
                f"the process of device {self.device!r} died{self._exit_code()} while it loaded the metric: perhaps "
                "memory was short (name fewer devices). A script that scores on several devices must do it below "
                'if __name__ == "__main__":, since its processes import the script'
            ) from None

    def give(self, numbers: list[int]) -> None:
        """Has it do some parts."""
        self.left = numbers
        with suppress(OSError):  # it died, which `take` will find
            self.pipe.send(numbers)

    def take(self) -> Iterator[Progress]:
        """What it tells; if it died, it is started again."""
        try:
            progress: Progress = self._received()
        except EOFError:
            self.process.join()
            number = self.left[0]
            if number == self._died_over:
                first = number * self.job.part_rows
                raise WorkerError(
                    f"the process of device {self.device!r} died twice{self._exit_code()} over rows {first + 1} "
                    f"to {first + self.job.rows_of(number)}: perhaps memory was short (lower batch_size, "
                    "--batch-size), or an image crashed its decoder. The parts that are done are saved; run the same "
                    "again to go on"
                ) from None
            self._died_over = number
            self.start()
            self.loaded()
            self.give(self.left)
            return
        if progress.part is not None:
            self.left.remove(progress.part)
        yield progress

    def end(self) -> None:
        if hasattr(self, "process"):
            self.process.terminate()
            self.process.join()
            self.pipe.close()

    def _received(self) -> Any:
        try:
            message = self.pipe.recv()
        except OSError as error:
            raise EOFError from error
        if isinstance(message, BaseException):
            raise message
        return message

    def _exit_code(self) -> str:
        code = self.process.exitcode
        return "" if code is None else f" (exit code {code})"


def _packed(job: Job) -> bytes:
    """The job as bytes; transforms of data sets may be functions that only dill can send."""
    import dill

    data: bytes = dill.dumps(job)
    return data


def _serve(pipe: Connection, packed: bytes, device: str, threads: int) -> None:
    """What a process does: it loads the metrics, is given parts, and tells what it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    if torch := sys.modules.get("torch"):  # the caller's script imported it; otherwise it will look at the environment
        torch.set_num_threads(threads)
    import dill

    try:
        job: Job = dill.loads(packed)
        job.scorer.options = {**job.scorer.options, "device": device}
        pipe.send(job.facts())
        for progress in job.work(pipe.recv()):
            pipe.send(progress)
    except EOFError:  # the first process has ended
        return
    except BaseException as error:  # raised again there
        with suppress(Exception):
            pipe.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()  # after kill -9 nobody would take what it has done, and the GPU stay taken
    os._exit(1)
