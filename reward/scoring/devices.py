"""Several processes, one for each device, each of which does every nth block of rows: for the GPUs of one machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from reward.checkpoints import warn_embedded
from reward.errors import ConfigError, WorkerError
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
    """A process for each device, which loads the metrics and scores blocks of rows.

    A process that dies is started again and goes on with its blocks; if it dies over the same rows once more, the run
    stops with the reason. The processes end with their parent, also when that is killed.

    Args:
        devices: see `parse_devices`.
        job: what they do; the metrics are given by name.

    Raises:
        WorkerError: a process died while it loaded the metrics, or twice over the same rows.
        Exception: whatever loading the metrics, or a part, raised.
    """

    def __init__(self, devices: Sequence[str], job: Job) -> None:
        self._workers = [_Worker(device, job, max(1, cpu_threads() // len(devices))) for device in devices]

    def __enter__(self) -> DevicePool:
        if self._workers[0].job.metrics.knows_drawings_only:
            warn_embedded()  # here, once for all processes
        try:
            for worker in self._workers:
                worker.start()
            for worker in self._workers:
                worker.wait_until_loaded()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.end()

    def work(self, blocks: Sequence[range]) -> Iterator[Progress]:
        """What the processes do of some blocks, as it is done; see `Job.work`."""
        for place, worker in enumerate(self._workers):
            worker.give([*blocks[place :: len(self._workers)]])
        while busy := {worker.pipe: worker for worker in self._workers if worker.left}:
            for pipe in wait(list(busy)):
                yield from busy[pipe].take()  # type: ignore[index]


class _Worker:
    """A process, and the blocks that it has still to do."""

    def __init__(self, device: str, job: Job, threads: int) -> None:
        self.device, self.job, self._threads = device, job, threads
        self.left: list[range] = []
        self._died_over: range | None = None
        self.process: Any = None
        self.pipe: Connection

    def start(self) -> None:
        import dill  # transforms of data sets may be functions that only dill can send

        spawn = multiprocessing.get_context("spawn")  # a fork cannot use CUDA
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(
            target=_serve, args=(theirs, dill.dumps(self.job), self.device, self._threads), daemon=True
        )
        self.process.start()
        theirs.close()

    def wait_until_loaded(self) -> None:
        try:
            self._received()
        except EOFError:
            raise WorkerError(
                f"the process of device {self.device!r} died{self._exit_code()} while it loaded the metric: perhaps "
                "memory was short (name fewer devices). A script that scores on several devices must do it below "
                'if __name__ == "__main__":, since its processes import the script'
            ) from None

    def give(self, blocks: list[range]) -> None:
        """Has it do some blocks."""
        self.left = blocks
        with suppress(OSError):  # it died, which `take` will find
            self.pipe.send(blocks)

    def take(self) -> Iterator[Progress]:
        """What it tells; if it died, it is started again."""
        first = self.left[0]
        try:
            progress: Progress = self._received()
        except EOFError:
            code = self._exit_code()
            if first == self._died_over:
                raise WorkerError(
                    f"the process of device {self.device!r} died twice{code} over rows {first.start + 1} to "
                    f"{first.stop}: perhaps memory was short (lower batch_size, --batch-size), or an image crashed its "
                    "decoder. The parts that are done are saved; run the same again to go on"
                ) from None
            self._died_over = first
            self.start()
            self.wait_until_loaded()
            self.give(self.left)
            return
        rest = range(rows_of(progress.part).stop, first.stop)  # a block may take several parts
        self.left = [*([rest] if rest else []), *self.left[1:]]
        yield progress

    def end(self) -> None:
        if self.process is not None:
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
        self.process.join()
        return f" (exit code {self.process.exitcode})"


def _serve(pipe: Connection, packed: bytes, device: str, threads: int) -> None:
    """What a process does: it loads the metrics, is given blocks, and tells what it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
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


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()  # after kill -9 nobody would take what it has done, and the GPU stay taken
    os._exit(1)
