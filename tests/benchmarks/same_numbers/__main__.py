"""Whether two trees of this library give the same numbers: writes some 62,000, and compares two such files.

    cd TREE && PYTHONPATH=TREE python .../same_numbers write OUT.json [--only PART ...] [--toys FOLDER]
    python .../same_numbers compare A.json B.json [--only PART ...]

`write` imports the library of the working directory and uses public names only, so that it runs before and after a
change of the code behind them. It needs no network, and `java` for BLEU to METEOR. What cannot be made is said aloud,
listed at the end and in the file, and the exit code is 1; the rest is written. Metrics without shipped weights get
small models of `tests.toys`, made in a temporary folder; `--toys FOLDER` keeps them, so that the second tree reads the
very same files. What asks a judge is in the parts `judged-...`.

`compare` says for each part how many numbers there are, how many differ by more than 1e-9 and 1e-6, and where most. All
else (None, nan, texts, flags) must be equal. The exit code is 1 if a number differs by more than 1e-6, or anything else
does, or is missing. The words of error messages may differ: they are counted and shown, and change nothing.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

OWN = ("reward", "integrations", "capreward", "tests")  # packages of the library
SHOWN = 5  # lines of a kind in a part
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}  # one order of sums
sys.path[:0] = [os.getcwd()]
sys.path += [str(Path(__file__).parents[1])]  # of this package, wherever it lies


def write(out, only, toys):
    """Runs the parts on the library of the working directory; 1 if anything could not be made."""
    import torch

    import reward
    from same_numbers import choosing, files, judged, rewards, scores  # noqa: F401 - they fill PARTS
    from same_numbers.book import PARTS, RUN, Book

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    place = Path(reward.__file__).resolve()
    print(f"reward is {place}", flush=True)
    if place.parents[1] != Path.cwd().resolve():
        raise SystemExit(f"this is not the library of the working directory {Path.cwd()}")
    if unknown := set(only) - PARTS.keys():
        raise SystemExit(f"no parts: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    RUN.tree = str(place.parents[1])
    written = {"reward": str(place), "parts": {}}
    with tempfile.TemporaryDirectory() as folder:
        RUN.folder = Path(folder) / "run"
        RUN.folder.mkdir()
        RUN.toys = (toys or Path(folder) / "toys").resolve()
        RUN.toys.mkdir(parents=True, exist_ok=True)
        for name in only or sorted(PARTS, key=lambda name: name.startswith("judged")):
            book, start, failed = Book(), time.perf_counter(), len(RUN.failed)
            torch.manual_seed(0)
            try:
                PARTS[name](book)
            except Exception as error:
                traceback.print_exc()
                RUN.failed.append(f"{name} ended early: {type(error).__name__}: {error!s:.500}")
            seconds = round(time.perf_counter() - start, 1)
            numbers = sum(map(is_number, book.values.values()))
            different = len({value for value in book.values.values() if is_number(value)})
            others = len(book.values) - numbers
            told = f"{numbers:6} numbers ({different:5} different), {others:6} texts, flags and None, {seconds:6.1f} s"
            failures = RUN.failed[failed:]
            print(f"{name:16} {told}" + (f", {len(failures)} FAILED" if failures else ""), flush=True)
            written["parts"][name] = {"values": book.values, "messages": book.messages, "failed": failures}
    out.write_text(json.dumps(written, ensure_ascii=False, indent=0), encoding="utf-8")
    for line in strangers(place.parents[1]):
        RUN.failed.append(line)
        written["parts"].setdefault("imports", {"values": {}, "messages": {}, "failed": []})["failed"].append(line)
    values = [value for each in written["parts"].values() for value in each["values"].values()]
    different = set(filter(is_number, values))
    print(f"{sum(map(is_number, values))} numbers in {out}, {len(different)} of them different")
    for failure in RUN.failed:
        print(f"FAILED: {failure}")
    return bool(RUN.failed)


def strangers(tree):
    """Modules that came from another tree, such as that which is installed; `tests` has no `__init__.py` to stop it."""
    named = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    own = {name: file for name, file in named.items() if file and name.split(".")[0] in OWN}
    return [f"{name} is {file}" for name, file in own.items() if not Path(file).resolve().is_relative_to(tree)]


def is_number(value):
    """Whether a value is compared with a tolerance."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def compare(first, second, only):
    """Prints where two files differ; 1 if they do."""
    files = [json.loads(file.read_text(encoding="utf-8")) for file in (first, second)]
    print(f"A is {files[0]['reward']}\nB is {files[1]['reward']}")
    parts = [file["parts"] for file in files]
    bad = False
    for name in only or dict.fromkeys([*parts[0], *parts[1]]):
        if lacking := [side for side, each in zip("AB", parts, strict=True) if name not in each]:
            print(f"{name}: MISSING in {' and '.join(lacking)}")
            bad = True
            continue
        a, b = (each[name]["values"] for each in parts)
        both = [key for key in a if key in b]
        apart = {key: abs(a[key] - b[key]) for key in both if is_number(a[key]) and is_number(b[key])}
        others = [key for key in both if key not in apart and (a[key] != b[key] or type(a[key]) is not type(b[key]))]
        missing = [f"{key} (in {side} only)" for side, x, y in (("A", a, b), ("B", b, a)) for key in x if key not in y]
        over = [sum(each > limit for each in apart.values()) for limit in (1e-9, 1e-6)]
        worst = max(apart, key=apart.__getitem__, default=None)
        print(f"{name}: {len(apart)} numbers, {over[0]} differ by more than 1e-9, {over[1]} by more than 1e-6", end="")
        print(f"; worst {apart[worst]:.3g} at {worst!r}" if worst and apart[worst] else "")
        told = {
            "differ": [f"{key}: {a[key]!r:.60} and {b[key]!r:.60}" for key in others],
            "MISSING": missing,
            "far": [f"{key}: {a[key]} and {b[key]}" for key in apart if apart[key] > 1e-6],
        }
        words = [each[name]["messages"] for each in parts]
        changed = [key for key in words[0] if key in words[1] and words[0][key] != words[1][key]]
        told["other words of errors"] = [f"{key}: {words[0][key]:.90} | {words[1][key]:.90}" for key in changed]
        told["FAILED"] = [
            f"{side}: {line}" for side, each in (("A", 0), ("B", 1)) for line in parts[each][name]["failed"]
        ]
        for kind, lines in told.items():
            for line in lines[:SHOWN]:
                print(f"  {kind}: {line}")
            if len(lines) > SHOWN:
                print(f"  {kind}: {len(lines) - SHOWN} more")
        bad |= bool(others or missing or over[1])
    print("DIFFERENT" if bad else "the same")
    return bad


def main():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("out", type=Path)
    writing.add_argument("--only", nargs="+", default=[], metavar="PART")
    writing.add_argument("--toys", type=Path, metavar="FOLDER")
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", type=Path, nargs=2)
    comparing.add_argument("--only", nargs="+", default=[], metavar="PART")
    given = parser.parse_args()
    return (
        compare(*given.files, given.only)
        if given.command == "compare"
        else write(given.out.resolve(), given.only, given.toys)
    )


if __name__ == "__main__":
    sys.exit(main())
