"""What the benchmarks share: times of several ways in turns, peak memory, fresh processes, tables.

`python -m tests.benchmarks.bench_grouped` runs one of them, from the root of the clone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.table import Table

__all__ = [
    "bench_parser",
    "in_fresh_process",
    "make_table",
    "measure_cell",
    "measure_memory",
    "measure_seconds",
    "record",
    "synchronize",
    "times_and_memory",
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def bench_parser(doc: str | None, *, counts: str = "the fastest", cells: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The command line that the benchmarks share.

    Args:
        doc: docstring of the benchmark.
        counts: which of the timed runs counts.
        cells: what its cells are numbered by, if each is measured in a process of its own; see `in_fresh_process`.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--repeats", type=int, default=3, help=f"timed runs of each way; {counts} counts")
    parser.add_argument("--device", default=DEVICE)
    if cells:
        parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
        parser.add_argument("--json", action="store_true", help="print the figures as JSON lines instead of tables")
        parser.add_argument("--cell", nargs=1 + len(cells), metavar=("WHAT", *cells), help=argparse.SUPPRESS)
    return parser


def measure_seconds(
    runs: Mapping[str, Callable[[], Any]], repeats: int, device: str = DEVICE
) -> dict[str, list[float]]:
    """Seconds of each way; the ways take turns, so that other work on the machine slows all of them alike."""
    seconds: dict[str, list[float]] = {way: [] for way in runs}
    for _ in range(repeats):
        for way, run in runs.items():
            synchronize(device)
            start = time.perf_counter()
            run()
            synchronize(device)
            seconds[way].append(time.perf_counter() - start)
    return seconds


def synchronize(device: str) -> None:
    """Waits for what a GPU still has to do."""
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


def measure_cell(options: argparse.Namespace, measure: Callable[..., Any]) -> bool:
    """Whether this is a process of `in_fresh_process`; its figure, `measure(options, what, *numbers)`, is printed."""
    if not options.cell:
        return False
    what, *numbers = options.cell
    print(json.dumps(measure(options, what, *map(int, numbers))))
    return True


def times_and_memory(ways: Sequence[str], *cell: int, print_json: bool) -> tuple[dict[str, float], dict[str, str]]:
    """Of a cell: seconds of each way with the largest difference, and milliseconds / megabytes of each way as text."""
    times = in_fresh_process("times", *cell)
    memory = {way: in_fresh_process(way, *cell) for way in ways}
    if print_json:
        print(json.dumps({"cell": cell, "seconds": times, "megabytes": memory}), flush=True)
    return times, {way: f"{1000 * times[way]:.0f} / {memory[way]:.0f}" for way in ways}


def record(ratios: Mapping[str, float], **more: Any) -> None:
    """Hands {what: ratio within this run} to `make bench`, if it runs us; see `tests.benchmarks.record`."""
    path = os.environ.get("CAPREWARD_BENCH")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"ratios": dict(ratios), **more}) + "\n")


def make_table(title: str, columns: Sequence[str]) -> Table:
    """A table of numbers; a column without a title holds names."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table
