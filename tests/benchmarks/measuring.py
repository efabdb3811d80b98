"""What the benchmarks share: times of several ways in turns, runs of `capreward score`, and tables.

`python -m tests.benchmarks.bench_peers` runs one of them, from the root of the clone.
"""

import csv
import functools
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
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
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    return {"args": [sys.executable, *map(str, words)], "env": environment}


def capreward_of(tree, *words):
    """The same for the command `capreward`."""
    return python_of(tree, "-m", "reward.cli.main", *words)


class Scoring:
    """`capreward score` of a checkout in processes of its own.

    Args:
        tree: the checkout.
        words: of the command, without the output.
        output: a file, or of Ray a folder.
    """

    def __init__(self, tree, words, output):
        self.output = output
        # Ray keeps the records of its parts in the output; a file's parts lie beside it.
        self.parts = output if "ray" in words else output.with_name(output.name + ".partial")
        self.command = capreward_of(tree, "score", *words, "-o", output, "--quiet")

    def start(self):
        """Starts it and does not wait."""
        return psutil.Popen(**self.command, cwd=self.output.parent)

    def run(self):
        """Seconds of a run, those until its first part, the rows that were there then, and MiB each second since."""
        start, first, saved, mebibytes = time.perf_counter(), 0.0, 0, []
        process = self.start()
        while process.poll() is None and not saved:
            time.sleep(0.005)
            saved = self.rows()
        first = time.perf_counter() - start
        while process.poll() is None:
            mebibytes.append(memory_of(process))
            with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
                process.wait(1)
        if process.returncode:
            raise SystemExit(f"failed: {self.command['args']}")
        return time.perf_counter() - start, first, saved, mebibytes

    def part_files(self):
        """{path of a part: its rows, None where its name does not say it}."""
        files = {}
        for path in self.parts.rglob("*.json.gz"):
            files[path] = int(path.name.split("-")[1])
        for path in self.parts.glob("part-*"):
            if path.suffix in (".parquet", ".jsonl"):
                files[path] = None
        return files

    def rows(self):
        """How many rows the parts have."""
        rows = 0
        with suppress(OSError):  # a part's folder goes when the part is whole
            for path, count in self.part_files().items():
                rows += rows_of_file(path) if count is None else count
        return rows

    def written_rows(self):
        """How many rows the output has."""
        if self.output.is_dir():
            return self.rows()
        return rows_of_file(self.output)


@functools.cache  # a part is whole as soon as it is there
def rows_of_file(path):
    """The rows of an output, or of a part of Ray's."""
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).metadata.num_rows
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def family_of(process):
    """A process and all that it started."""
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def memory_of(process):
    """MiB that a process and those it started hold, without files that are mapped."""
    mebibytes = 0.0
    for member in family_of(process):
        with suppress(psutil.Error):
            memory = member.memory_info()
            mebibytes += (memory.rss - memory.shared) / 2**20
    return mebibytes


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
