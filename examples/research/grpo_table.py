"""One table of several GRPO runs: what each reward, gate or penalty buys.

    python -m examples.research.grpo_table "VELA=runs/grpo_vela" "BEiTScore=runs/grpo_beitscore"

Reads what `examples/grpo_captioner.py` left in each folder and prints a table as Markdown; `--output` writes it as CSV.
Brackets hold intervals over scenes of the mean over training seeds; parentheses hold the worst seed, where there are
several: the one with the lowest F1 and precision, the most flaws and words.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = {
    "F1": ("greedy", "f1", min),
    "precision": ("greedy", "precision", min),
    "flaws": ("greedy", "faults", max),
    "F1, sampled": ("sampled", "f1", min),
    "flaws, sampled": ("sampled", "faults", max),
    "words": ("greedy", "words", max),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER", help="folders with grpo.json")
    parser.add_argument("--output", type=Path, help="CSV file")
    options = parser.parse_args(argv)
    table = read_table(options.runs)
    names = list(next(iter(table.values())))
    print(f"| captions | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for name, row in table.items():
        print(f"| {name} | {' | '.join(row.values())} |")
    if options.output is not None:
        with options.output.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["captions", *names])
            writer.writerows([name, *row.values()] for name, row in table.items())


def read_table(runs: Sequence[str]) -> dict[str, dict[str, str]]:
    """{name of the captions: {column: value [interval] (worst seed)}}, first those of the untrained captioner."""
    table: dict[str, dict[str, str]] = {}
    for run in runs:
        name, _, folder = run.partition("=")
        file = Path(folder, "grpo.json")
        if not folder or not file.is_file():
            raise SystemExit(f"{run!r}: give NAME=FOLDER, a folder in which examples/grpo_captioner.py has finished")
        figures = json.loads(file.read_text(encoding="utf-8"))
        means = figures["means"]
        steps = figures["options"]["steps"]
        trained = next(system for system in means if system.startswith("GRPO with") and system.endswith(", greedy"))
        for label, system in (("untrained", "base"), (f"{name}, {steps} steps", trained.removesuffix(", greedy"))):
            table.setdefault(label, {column: _cell(means, system, *how) for column, how in COLUMNS.items()})
    return table


def _cell(means: dict[str, dict[str, Any]], system: str, way: str, measure: str, worst: Any) -> str:
    mean = means[f"{system}, {way}"][measure]
    form = ".0f" if measure == "words" else ".3f"
    text = f"{mean['value']:{form}} [{mean['low']:{form}}, {mean['high']:{form}}]"
    of_seeds = re.compile(re.escape(f"{system}, {way}, seed ") + r"\d+$")
    seeds = [row[measure]["value"] for key, row in means.items() if of_seeds.match(key)]
    return f"{text} ({worst(seeds):{form}})" if seeds else text


if __name__ == "__main__":
    main()
