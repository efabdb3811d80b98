"""Many rows through `capreward score`: rows a second, memory, and what a kill at 90 % costs; on Ray, too.

Each setting runs twice: once to its end, and once killed at 90 % and started again.

    python -m tests.benchmarks.bench_rows --rows 1000000 --tree ../before
    python -m tests.benchmarks.bench_rows --rows 200000 --pictures 25000 --tree ../before
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from reward.scenes import make_dataset
from tests.benchmarks.bench_offline import DRAWINGS, drawings
from tests.benchmarks.measuring import ROOT, TREE_HELP, Scoring, family_of, markdown, rows_of_file
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


def kill(process):
    """Kills a process and all that it started."""
    for member in family_of(process):
        with suppress(psutil.Error):
            member.kill()
    process.wait()


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
    seconds, _, _, mebibytes = scoring.run()
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
