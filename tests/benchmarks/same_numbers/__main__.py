"""Whether two trees of this library give the same numbers: writes them, and compares two such files.

    cd TREE && PYTHONPATH=TREE python .../same_numbers write OUT.json [--only PART ...] [--toys FOLDER]
    python .../same_numbers compare A.json B.json [--only PART ...]

`write` imports the library of the working directory and uses public names only, so that it runs before and after a
change of the code behind them. It needs no network, and `java` for BLEU to METEOR. What cannot be made is said aloud
and listed in the file, and the exit code is 1; the rest is written. Metrics without shipped weights get small models
of `tests.toys`; `--toys FOLDER` keeps them, so that the second tree reads the very same files.

`compare` says for each part how many numbers differ by more than 1e-9 and 1e-6, and where most. All else (None, nan,
texts, flags) must be equal, but for the words of errors, which are shown. The exit code is 1 if a number differs by
more than 1e-6, or anything else does, or is missing.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

SHOWN = 5  # lines of a kind in a part
NOTHING = {"values": {}, "messages": {}, "failed": []}  # of a part that was not written
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}  # one order of sums
sys.path[:0] = [os.getcwd()]
sys.path += [str(Path(__file__).parents[1])]  # of this package, wherever it lies


def write(out, only, toys):
    """Runs the parts on the library of the working directory; 1 if anything could not be made."""
    import torch

    import reward
    from same_numbers import choosing, files, judged, rewards, scores  # noqa: F401 - they fill PARTS
    from same_numbers.book import PARTS, RUN, Book, attempt
    from tests.toys import toy_clips

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for module in (reward, toy_clips):  # `tests` has no __init__.py that would hold it to one tree
        if not Path(module.__file__).resolve().is_relative_to(Path.cwd().resolve()):
            raise SystemExit(f"{module.__file__} is not in the working directory {Path.cwd()}")
    parts = {}
    with tempfile.TemporaryDirectory() as folder:
        RUN.folder = Path(folder) / "run"
        RUN.folder.mkdir()
        RUN.toys = (toys or Path(folder) / "toys").resolve()
        RUN.toys.mkdir(parents=True, exist_ok=True)
        for name in only or sorted(PARTS, key=lambda name: name.startswith("judged")):
            book = Book()
            start = time.perf_counter()
            torch.manual_seed(0)
            attempt(book, name, lambda: PARTS[name](book))  # noqa: B023
            numbers = sum(map(is_number, book.values.values()))
            others = len(book.values) - numbers
            seconds = time.perf_counter() - start
            print(f"{name:16} {numbers:6} numbers, {others:6} texts, flags and None, {seconds:6.1f} s", flush=True)
            parts[name] = {"values": book.values, "messages": book.messages, "failed": book.failed}
    out.write_text(json.dumps({"reward": reward.__file__, "parts": parts}, ensure_ascii=False, indent=0), "utf-8")
    return any(part["failed"] for part in parts.values())


def is_number(value):
    """Whether a value is compared with a tolerance."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def compare(first, second, only):
    """Prints where two files differ; 1 if they do."""
    a, b = (json.loads(file.read_text("utf-8")) for file in (first, second))
    print(f"A is {a['reward']}\nB is {b['reward']}")
    names = only or {**a["parts"], **b["parts"]}
    equal = [compare_part(name, a["parts"].get(name, NOTHING), b["parts"].get(name, NOTHING)) for name in names]
    print("the same" if all(equal) else "DIFFERENT")
    return not all(equal)


def compare_part(name, a, b):
    """Prints where two runs of a part differ; whether they are equal."""
    distances, far, other = {}, [], []
    for key in {**a["values"], **b["values"]}:
        one, two = (part["values"].get(key, "MISSING") for part in (a, b))
        if is_number(one) and is_number(two):
            distances[key] = abs(one - two)
            if distances[key] > 1e-6:
                far.append(f"{key}: {one} and {two}")
        elif one != two or type(one) is not type(two):
            other.append(f"{key}: {one!r:.60} and {two!r:.60}")
    words = []
    for key in a["messages"].keys() & b["messages"].keys():
        if a["messages"][key] != b["messages"][key]:
            words.append(f"{key}: {a['messages'][key]:.90} | {b['messages'][key]:.90}")
    worst = max(distances, key=distances.get, default=None)
    count = sum(distance > 1e-9 for distance in distances.values())
    print(f"{name}: {len(distances)} numbers, {count} differ by more than 1e-9, {len(far)} by more than 1e-6", end="")
    print(f"; worst {distances[worst]:.3g} at {worst!r}" if count else "")
    failed = a["failed"] + b["failed"]
    for kind, lines in {"far": far, "differ": other, "other words of errors": words, "FAILED": failed}.items():
        for line in lines[:SHOWN]:
            print(f"  {kind}: {line}")
        if len(lines) > SHOWN:
            print(f"  {kind}: {len(lines) - SHOWN} more")
    return not far and not other


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing, comparing = commands.add_parser("write"), commands.add_parser("compare")
    writing.add_argument("out", type=Path)
    writing.add_argument("--toys", type=Path, metavar="FOLDER")
    comparing.add_argument("files", type=Path, nargs=2)
    for command in (writing, comparing):
        command.add_argument("--only", nargs="+", default=[], metavar="PART")
    options = parser.parse_args()
    if options.command == "compare":
        return compare(*options.files, options.only)
    return write(options.out.resolve(), options.only, options.toys)


if __name__ == "__main__":
    sys.exit(main())
