"""What the benchmarks share: times of several ways in turns, and tables.

`python -m tests.benchmarks.bench_peers` runs one of them, from the root of the clone.
"""

import csv
import os
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROOT = Path(__file__).resolve().parents[2]
TREE_HELP = "another checkout, measured in turns with this one"


def measure_seconds(runs, repeats, device=DEVICE):
    """Seconds of each way; the ways take turns, so that other work on the machine slows all of them alike."""
    seconds = {way: [] for way in runs}
    for _ in range(repeats):
        for way, run in runs.items():
            synchronize(device)
            start = time.perf_counter()
            run()
            synchronize(device)
            seconds[way].append(time.perf_counter() - start)
    return seconds


def synchronize(device):
    """Waits for what a GPU still has to do."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def python_of(tree, *words):
    """Arguments of `subprocess` for Python with the code of a checkout.

    The working folder must not be another checkout, since `python -m` looks there first.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
    return {"args": [sys.executable, *map(str, words)], "env": environment}


def capreward_of(tree, *words):
    """The same for the command `capreward`."""
    return python_of(tree, "-m", "reward.cli.main", *words)


def markdown(columns, rows):
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def show(title, columns, rows, file):
    """Prints rows as they come, and then as a table, which is also written to a CSV file if one is named."""
    table = make_table(title, columns)
    for row in rows:
        print(*row, sep=" | ", flush=True)
        table.add_row(*map(str, row))
    Console(width=130).print(table)
    if file is not None:
        write_csv(file, table)


def write_csv(file, table):
    """Writes what a table shows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        rows = zip(*(column.cells for column in table.columns), strict=True)
        csv.writer(stream, lineterminator="\n").writerows([[column.header for column in table.columns], *rows])


def make_table(title, columns):
    """A table of numbers."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table
