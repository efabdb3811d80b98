"""Ray beside one process: equal scores, rates, and the overhead of a row.

`python -m tests.benchmarks.bench_ray equal` or `overhead`; without a word, both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.benchmarks.measuring import record

PARTS = 20  # that the rows are split into
WORDS = ("a", "the", "red", "blue", "small", "large", "star", "ring", "box", "man", "dog", "holds", "above", "on")


def parse() -> argparse.Namespace:
    """Command line of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], "equal", "overhead"])
    parser.add_argument("--rows", type=int, default=20_000, help="of equal")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--many", type=int, default=1_000_000, help="rows of overhead")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_data(folder: Path, options: argparse.Namespace) -> None:
    """Rows of random captions of small images: two files, and one of all rows."""
    draw, noise = random.Random(options.seed), np.random.default_rng(options.seed)
    for number in range(options.images):
        Image.fromarray(noise.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    rows = [
        {
            "id": row,
            "image": f"{row * options.images // options.rows}.png",
            "candidate": " ".join(draw.choices(WORDS, k=8)),
        }
        for row in range(options.rows)
    ]
    table, half = pa.Table.from_pylist(rows), options.rows // 2
    pq.write_table(table, folder / "all.parquet")
    (folder / "in").mkdir()
    for number in range(2):
        pq.write_table(table.slice(number * half, half), folder / f"{number}.parquet")
        size = options.rows // PARTS
        pq.write_table(table.slice(number * half, half), folder / "in" / f"{number}.parquet", row_group_size=size)


def command(folder: Path, data: str, output: str, *more: str) -> list[str]:
    """Scores with VELA; Ray with --engine among `more`."""
    words = ["score", str(folder / data), "-m", "vela", "-o", str(folder / output)]
    return [sys.executable, "-m", "reward.cli.main", *words, "--image-root", str(folder), "--quiet", *more]


def run(*commands: Sequence[str]) -> float:
    """Seconds of processes that run side by side."""
    start = time.perf_counter()
    processes = [subprocess.Popen(each) for each in commands]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("a process failed")
    return time.perf_counter() - start


def scores(path: Path) -> np.ndarray:
    """(id, aspects, reward) of all rows, by id."""
    table = pq.read_table(path).sort_by("id")
    names = [name for name in table.column_names if name not in ("image", "candidate", "truncated", "error")]
    return np.array([table.column(name).to_numpy() for name in names])


def equal(folder: Path, options: argparse.Namespace) -> None:
    """Scores and times of one process, two, and Ray with two workers."""
    ray = ("--engine", "ray", "--workers", "2", "--part-rows", str(options.rows // PARTS))
    seconds = {
        "one process": run(command(folder, "all.parquet", "one.parquet")),
        "two processes": run(*(command(folder, f"{n}.parquet", f"two{n}.parquet") for n in range(2))),
        "Ray, two workers": run(command(folder, "in", "equal", *ray)),
    }
    for way, each in seconds.items():
        print(f"{way:18} {each:7.1f} s, {seconds['one process'] / each:.2f} times one process")
    record({f"one process / {way}": seconds["one process"] / each for way, each in seconds.items()})
    one, other = scores(folder / "one.parquet"), scores(folder / "equal")
    print(f"{other.shape[1]} rows; largest difference of a score: {np.abs(one - other).max():.1e}")


def descendants(process: int) -> dict[int, str]:
    """{id: command} of the processes that a process started, directly or not."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                names[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, size = {process}, 0
    while len(found) > size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return {each: names.get(each, "") for each in found - {process}}


def overhead(folder: Path, options: argparse.Namespace) -> None:
    """Many rows with a metric that costs nothing: time a row, peak memory of all processes, and a resume."""
    path, size = folder / "many.parquet", 50_000
    with pq.ParquetWriter(path, pa.schema({"id": pa.int64(), "caption": pa.string()})) as writer:
        for first in range(0, options.many, size):
            ids = list(range(first, min(first + size, options.many)))
            writer.write_table(pa.table({"id": ids, "caption": [f"caption number {each} of many" for each in ids]}))
    for way in (["--engine", "ray", "--workers", "2"], ["--engine", "ray"], []):
        output = str(folder / ("many" if way else "many-here.parquet"))
        line = [sys.executable, "-m", "reward.cli.main", "score", str(path), "-m", "length", "-o", output, "-q", *way]
        start, peak = time.perf_counter(), 0
        driver = subprocess.Popen(line)

        def largest(driver: subprocess.Popen[bytes] = driver) -> int:
            kilobytes = [0]
            for each in (driver.pid, *(pid for pid, name in descendants(driver.pid).items() if "PartScorer" in name)):
                try:
                    status = Path(f"/proc/{each}/status").read_text()
                except OSError:
                    continue
                kilobytes += [int(part.split()[1]) for part in status.splitlines() if part.startswith("VmRSS")]
            return max(kilobytes)

        while driver.poll() is None:
            peak = max(peak, largest())
            threading.Event().wait(0.2)
        seconds = time.perf_counter() - start
        each = 1e6 * seconds / options.many
        print(f"{' '.join(way) or 'here'}: {seconds:.1f} s, {each:.1f} µs a row, largest process {peak / 1024:.0f} MiB")


def main() -> None:
    """Runs what is asked for in a temporary folder."""
    options = parse()
    os.environ.setdefault("RAY_worker_niceness", "0")  # else Ray's workers wait for all other work on a busy machine
    what = options.what or ["equal", "overhead"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if what != ["overhead"]:
            make_data(folder, options)
        for each in what:
            print(f"== {each}", flush=True)
            {"equal": equal, "overhead": overhead}[each](folder, options)
    print(json.dumps({"user_seconds": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, 1)}))


if __name__ == "__main__":
    main()
