"""Many rows through `capreward score`: rows a second, memory, and what a kill at 90 % costs; on Ray, too.

Each setting runs twice: once to its end, and once killed at 90 % and started again.

    python -m tests.benchmarks.bench_rows --rows 1000000 --tree ../before
    python -m tests.benchmarks.bench_rows --rows 200000 --pictures 25000 --tree ../before
"""

import argparse
import functools
import json
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from reward.scenes import make_dataset
from tests.benchmarks.bench_offline import DRAWINGS, drawings
from tests.benchmarks.measuring import ROOT, TREE_HELP, capreward_of, markdown
from tests.toys.toy_clips import toy_clip

RUN = ("engine", "metric", "tree", "rows", "seconds", "rows/s")
MEMORY = ("MiB first", "MiB last", "MiB most")  # medians of the first and last tenth of the time, and the most
COLUMNS = (*RUN, *MEMORY, "MiB of parts", "seconds to start again", "rows lost")
FILES = 20  # of the same rows, for Ray: a file is a task
SMALL = (64, 48)  # pixels of a picture
RAY = ("--engine", "ray", "--workers", "2")


def write_texts(file, rows):
    """JSON Lines of captions, each with two references."""
    texts = [text for row in make_dataset(DRAWINGS, seed=1) for text in (row["cand"], *row["refs"])]
    draw = random.Random(0)
    with file.open("w", encoding="utf-8") as lines:
        for number in range(rows):
            caption, *references = draw.sample(texts, 3)
            row = {"id": number, "candidate": f"{caption} {number}", "references": references}
            lines.write(json.dumps(row) + "\n")


def write_pictures(file, rows, pictures):
    """JSON Lines of captions, and the pictures beside them; the captions of a picture follow each other."""
    drawn = drawings(SMALL)
    for number in range(pictures):
        jpeg = drawn[number % DRAWINGS]["image"]["bytes"]
        # The number makes the file one of its own; no decoder reads what follows the picture.
        (file.parent / f"{number}.jpg").write_bytes(jpeg + number.to_bytes(4, "big"))
    with file.open("w", encoding="utf-8") as lines:
        for number in range(rows):
            picture = number * pictures // rows
            candidate = f"{drawn[number % DRAWINGS]['cand']} {number}"
            lines.write(json.dumps({"id": number, "image": f"{picture}.jpg", "candidate": candidate}) + "\n")


def split(file, rows):
    """The same rows in several files beside it."""
    most = -(-rows // FILES)
    with file.open(encoding="utf-8") as lines:
        for number in range(FILES):
            with file.with_name(f"split-{number:02}.jsonl").open("w", encoding="utf-8") as piece:
                for _ in range(most):
                    piece.write(lines.readline())


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
    """MiB that a process and those it started hold; what they share counts in each."""
    mebibytes = 0.0
    for member in family_of(process):
        with suppress(psutil.Error):
            mebibytes += member.memory_info().rss / 2**20
    return mebibytes


def kill(process):
    """Kills a process and all that it started."""
    for member in family_of(process):
        with suppress(psutil.Error):
            member.kill()
    process.wait()


def run_to_the_end(scoring):
    """Seconds of a run, and the memory of each second since its first part was there."""
    start, mebibytes = time.perf_counter(), []
    process = scoring.start()
    while process.poll() is None:
        if mebibytes or scoring.part_files():
            mebibytes.append(memory_of(process))
        with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            process.wait(1)
    if process.returncode:
        raise SystemExit(f"failed: {scoring.command['args']}")
    return time.perf_counter() - start, mebibytes


def run_with_a_kill(scoring, rows):
    """MiB of the parts at a kill at 90 %, seconds of the next start until rows move, and rows that are lost."""
    process = scoring.start()
    while scoring.rows() < 0.9 * rows and process.poll() is None:
        time.sleep(0.1)
    kill(process)
    before = set(scoring.part_files())
    size = sum(path.stat().st_size for path in scoring.parts.rglob("*") if path.is_file()) / 2**20
    start = time.perf_counter()
    process = scoring.start()
    while not set(scoring.part_files()) - before and process.poll() is None:
        time.sleep(0.02)
    seconds = time.perf_counter() - start
    if process.wait():
        raise SystemExit(f"failed: {scoring.command['args']}")
    return size, seconds, rows - scoring.written_rows()


def measure(scoring, rows):
    """The cells of a row of the table, from the number of rows on."""
    seconds, mebibytes = run_to_the_end(scoring)
    mebibytes = mebibytes or [0.0]  # a run of a second
    tenth = max(1, len(mebibytes) // 10)
    held = statistics.median(mebibytes[:tenth]), statistics.median(mebibytes[-tenth:]), max(mebibytes)
    remove(scoring.output)
    size, again, lost = run_with_a_kill(scoring, rows)
    remove(scoring.output)
    cells = [rows, f"{seconds:.1f}", f"{rows / seconds:.0f}", *(f"{value:.0f}" for value in held)]
    return [*cells, f"{size:.1f}", f"{again:.1f}", lost]


def remove(output):
    """Removes an output with what lies beside it; the next has the same name."""
    rows_of_file.cache_clear()
    for path in output.parent.glob(f"{output.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def main():
    """Prints a row for each engine, metric and checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--pictures", type=int, default=0, help="score as many pictures by a tiny CLIP, else texts")
    parser.add_argument("--engines", nargs="+", choices=["file", "ray"], default=["file", "ray"])
    parser.add_argument("--tree", type=Path, action="append", default=[], help=TREE_HELP)
    options = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as name:
        data, metrics = Path(name) / "data" / "rows.jsonl", ["length", "unigram"]
        data.parent.mkdir()
        if options.pictures:
            write_pictures(data, options.rows, options.pictures)
            metrics = [f"clipscore={toy_clip(Path(name) / 'clip')}"]
        else:
            write_texts(data, options.rows)
        split(data, options.rows)
        inputs = {"file": (data, "out.jsonl", ()), "ray": (data.with_name("split-*.jsonl"), "out", RAY)}
        for engine in options.engines:
            source, output, more = inputs[engine]
            for metric in metrics:
                for tree in [ROOT, *options.tree]:
                    scoring = Scoring(tree, (source, "-m", metric, *more), Path(name) / output)
                    cells = [engine, metric.partition("=")[0], tree.resolve().name, *measure(scoring, options.rows)]
                    print(*cells, sep=" | ", flush=True)
                    table.append(cells)
    print(markdown(COLUMNS, table))


if __name__ == "__main__":
    main()
