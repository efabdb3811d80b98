"""Seconds of the shortest runs of some commands, beside Python that only imports torch and transformers.

Each command has a row or a few to do, and is measured from start to end; the least of some runs in turns counts.

    python -m tests.benchmarks.bench_start --tree ../before
"""

import argparse
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from reward.scenes import make_dataset
from tests.benchmarks.measuring import ROOT, TREE_HELP, capreward_of, markdown, measure_seconds, python_of
from tests.toys.json_lines import write_lines
from tests.toys.toy_clips import toy_clip

# OUT is an output of its own for each run.
COMMANDS = {
    "--help": "--help",
    "score -m length": "score row.jsonl -m length -o OUT",
    "score -m clipscore=FOLDER": "score row.jsonl -m clipscore=clip -o OUT",
    "bench": "bench -b scenes --limit 8 -m length",
    "caption": "caption row.png --model embedded -n 1 -m length -o OUT",
}
IMPORTS = 'python -c "import torch, transformers"'


def start(tree, command, folder):
    """Runs a command of a checkout in `folder`, with an output that is not there yet."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        words = [f"{fresh}/out.jsonl" if word == "OUT" else word for word in command.split()]
        subprocess.run(**capreward_of(tree, *words), cwd=folder, check=True, capture_output=True)


def main():
    """Prints a row for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each command; the least counts")
    parser.add_argument("--tree", type=Path, action="append", default=[], help=TREE_HELP)
    options = parser.parse_args()
    trees = [ROOT, *options.tree]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        [drawing] = make_dataset(1, seed=1)
        drawing["image"].save(folder / "row.png")
        write_lines(folder / "row.jsonl", [{"image": "row.png", "candidate": drawing["cand"]}])
        toy_clip(folder / "clip")
        bare = python_of(ROOT, "-c", "import torch, transformers")
        runs = {IMPORTS: partial(subprocess.run, **bare, cwd=folder, check=True)}
        for tree in trees:
            for title, command in COMMANDS.items():
                runs[title, tree] = partial(start, tree, command, folder)
        seconds = {way: min(times) for way, times in measure_seconds(runs, options.repeats, "cpu").items()}
    rows = [[IMPORTS, *[f"{seconds[IMPORTS]:.2f}"] * len(trees)]]
    for title in COMMANDS:
        rows.append([f"capreward {title}", *(f"{seconds[title, tree]:.2f}" for tree in trees)])
    print(markdown(["seconds", *(tree.resolve().name for tree in trees)], rows))


if __name__ == "__main__":
    main()
