"""What only a GPU answers, in one run of about ten minutes, offline: a CSV file a section, and a page to paste.

    make gpu                                # runs/gpu.md and runs/gpu/SECTION.csv; a card of 40 GB or more
    make gpu GPU="--only files captions"    # these sections alone
    make gpu GPU="--small"                  # without a card: small networks on the CPU, to try the script

The sections come by their importance, each has a time limit, and rows are written as they come. A section that fails,
lacks memory or lasts too long says so, and the others go on. Weights are random or embedded. A policy with random
weights writes tokens without meaning, so the metrics rate captions of the papers' length in their place.
"""

import argparse
import gc
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
import transformers
import trl

from tests.benchmarks import gpu_scoring, gpu_training
from tests.benchmarks.measuring import make_table, markdown, write_csv

OUTPUT, PAGE = Path("runs/gpu"), Path("runs/gpu.md")
# Each section with the seconds that it may take.
SECTIONS = {
    "files": (gpu_scoring.files, 150),
    "captions": (gpu_scoring.captions, 100),
    "scores": (gpu_scoring.scores, 30),
    "grpo": (gpu_training.grpo, 150),
    "large_files": (gpu_scoring.large_files, 100),
    "best_of_n": (gpu_training.best_of_n, 60),
}


def main():
    """Runs the sections; exit code 1 if one did not end as it should, 2 without a card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small networks on the CPU")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION")
    options = parser.parse_args()
    if not options.small and not torch.cuda.is_available():
        print(f'torch {torch.__version__} finds no card: try the script by `make gpu GPU="--small"`', file=sys.stderr)
        return 2
    card = "no card, --small" if options.small else torch.cuda.get_device_properties(0).name
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, TRL {trl.__version__}"
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(f"# capreward on {card}\n\n{versions}\n", encoding="utf-8")
    signal.signal(signal.SIGALRM, _too_long)
    failed = [name for name in options.only if not _run(name, small=options.small)]
    print(f"-> {PAGE}" + (f"; not as they should be: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


def _run(name, *, small):
    """Runs a section and adds it to the page; tells whether it ended as it should."""
    begin, rows, note = time.monotonic(), [], ""
    section, limit = SECTIONS[name]
    with tempfile.TemporaryDirectory() as folder:
        try:
            signal.alarm(limit)
            for row in section(small, Path(folder)):
                print(name, *(f"{key}: {value}" for key, value in row.items()), sep=" | ", flush=True)
                rows.append(row)
        except Exception as error:  # the other sections go on, and the page says why this one did not
            traceback.print_exc()
            note = f"**{type(error).__name__}**: {str(error).partition(chr(10))[0]:.300}\n"
        finally:
            signal.alarm(0)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [[str(row.get(column, "")) for column in columns] for row in rows]
    table = make_table(name, columns)
    for line in lines:
        table.add_row(*line)
    write_csv(OUTPUT / f"{name}.csv", table)
    with PAGE.open("a", encoding="utf-8") as file:
        file.write(f"\n## {name}, {time.monotonic() - begin:.0f} s\n\n{markdown(columns, lines)}\n\n{note}")
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return not note


def _too_long(*_):
    raise TimeoutError("its time is up; the rows before are written")


if __name__ == "__main__":
    sys.exit(main())
