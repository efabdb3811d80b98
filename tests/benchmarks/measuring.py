"""What the benchmarks share: times of several ways in turns, peak memory, fresh processes, tables.

`python -m tests.benchmarks.bench_grouped` runs one of them, from the root of the clone.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.table import Table

__all__ = ["DEVICE", "in_fresh_process", "make_table", "measure_memory", "measure_seconds"]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def measure_seconds(
    runs: Mapping[str, Callable[[], Any]], repeats: int, device: str = DEVICE
) -> dict[str, list[float]]:
    """Seconds of each way; the ways take turns, so that other work on the machine slows all of them alike."""
    seconds: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(repeats):
        for way, run in runs.items():
            _synchronize(device)
            start = time.perf_counter()
            run()
            _synchronize(device)
            seconds[way].append(time.perf_counter() - start)
    return seconds


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure_memory(run: Callable[[], Any], device: str) -> float:
    """Megabytes that a run adds at its peak. Peak memory never goes down, see `in_fresh_process`."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def in_fresh_process(*cell: object) -> Any:
    """What the benchmark that runs prints as JSON in another process, with the same options and `--cell`."""
    module = sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]
    command = [sys.executable, "-m", module, *sys.argv[1:], "--cell", *map(str, cell)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def make_table(title: str, columns: Sequence[str]) -> Table:
    """A table of numbers; a column without a title holds names."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table
