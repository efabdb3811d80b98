"""Measures the tables of the results pages anew, and writes them into the pages.

    python -m examples.research.measure --list
    python -m examples.research.measure best_of_n pairs
    python -m examples.research.measure grpo --resume          # after a stop: go on
    python -m examples.research.measure best_of_n --limit 6    # a small trial, which leaves the pages alone
    python -m examples.research.measure --tables-only          # only write the pages' tables from docs/results

What a table's commands print is in OUTPUT/TABLE/log.txt. With --limit, CSV files and pages are written to OUTPUT/docs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from examples.research import draw_pictures
from examples.research.stored import Row, read_csv, read_origin, write_csv
from examples.research.tables import TABLES, Table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MISSING = "\0"


class _Text(str):
    """A text of a CSV file, which a format may take as a number; 0.50 is shown as .50."""

    def __format__(self, form: str) -> str:
        if not form:
            return str(self)
        return re.sub(r"\b0(?=\.\d\d)", "", format(float(self), form)) if self else _MISSING


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 1 if a table could not be measured, 130 after Ctrl-C, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="default: all")
    parser.add_argument("--list", action="store_true", help="the tables, and about how long each takes on two cores")
    parser.add_argument("--tables-only", action="store_true", help="run nothing")
    parser.add_argument("--resume", action="store_true", help="leave out commands that have finished in --output")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N scenes, pairs, steps and so on, for a trial")
    parser.add_argument(
        "--given", action="append", default=[], metavar="NAME=PATH", help="a path that commands need, see --list"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/measure"), help="default: %(default)s")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.tables if name not in TABLES]:
        parser.error(f"no table is called {unknown[0]!r}; there are: {', '.join(TABLES)}")
    if options.limit is not None and options.limit < 2:
        parser.error(f"--limit must be at least 2, for intervals to be there, got {options.limit}")
    if wrong := [part for part in options.given if not all(part.partition("="))]:
        parser.error(f"--given takes NAME=PATH, got {wrong[0]!r}")
    given = {name: str(Path(path).resolve()) for name, _, path in (part.partition("=") for part in options.given)}
    if options.list:
        for name, table in TABLES.items():
            paths = "".join(f", needs --given {path}=PATH" for path in _paths(table))
            print(f"{name:16}{table.cost}{paths}")
        return 0

    output, docs = options.output.resolve(), DOCS
    if options.limit is not None:
        docs = output / "docs"
        if not docs.exists():
            shutil.copytree(DOCS, docs, ignore=shutil.ignore_patterns("_build"))
    failed = []
    chosen = options.tables or list(TABLES)
    try:
        for name in [] if options.tables_only else chosen:
            try:
                measure(name, output / name, docs, options.limit, given, options.resume)
            except Failed as error:
                failed.append(f"{name}: {error}")
                print(failed[-1], flush=True)
    except KeyboardInterrupt:
        print("stopped: the same command with --resume goes on", file=sys.stderr)
        return 130
    for page in write_pages(docs):
        print(f"written: {page}")
    if failed:
        print("not measured:", *failed, sep="\n  ", file=sys.stderr)
    return int(bool(failed))


class Failed(Exception):
    """A table cannot be measured; the message says why, and where to look."""


def measure(name: str, folder: Path, docs: Path, limit: int | None, given: dict[str, str], resume: bool) -> None:
    """Runs the commands of a table and writes its CSV file, and the pictures that are drawn from it."""
    table, log, finished = TABLES[name], folder / "log.txt", folder / "finished.txt"
    if lacking := [path for path in _paths(table) if path not in given]:
        raise Failed(f"give --given {lacking[0]}=PATH")
    if folder.exists() and not resume:
        raise Failed(f"{folder} exists: give --resume to go on there, or another --output")
    folder.mkdir(parents=True, exist_ok=True)
    done = finished.read_text(encoding="utf-8").splitlines() if finished.is_file() else []
    for command in table.commands:
        command = re.sub(r"\{(?:(\d+)-)?(\d+)\}", lambda size: _size(int(size[2]), int(size[1] or 1), limit), command)
        words = [word.format(out=folder, runs=folder.parent, docs=docs, **given) for word in shlex.split(command)]
        if shlex.join(words) in done:
            continue
        print(f"{name}: {command}\n  log: {log}", flush=True)
        program = [sys.executable] if words[0] == "python" else [str(Path(sys.executable).with_name(words[0]))]
        with log.open("ab") as stream:
            code = subprocess.run(
                [*program, *words[1:]],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=stream,
                stderr=subprocess.STDOUT,
            ).returncode
        if code:
            raise Failed(f"`{command}` ended with exit code {code}, see {log}")
        with finished.open("a", encoding="utf-8") as stream:
            stream.write(f"{shlex.join(words)}\n")
    rows = table.store(folder) if table.store is not None else read_csv(folder / table.csv)
    small = "" if limit is None else f", at most {limit} of everything"
    day = date.fromtimestamp(finished.stat().st_mtime)  # of the last command, which may have been before a stop
    origin = f"{day:%-d %B %Y}{small} · python -m examples.research.measure {name}"
    write_csv(docs / "results" / table.csv, rows, origin)
    if name in ("decoding", "grpo", "parting"):
        draw_pictures.main(["--results", str(docs / "results"), "--output", str(docs / "images")])


def _size(full: int, least: int, limit: int | None) -> str:
    return str(full if limit is None else min(full, max(least, limit)))


def _paths(table: Table) -> list[str]:
    """What the commands need to be given."""
    names = re.findall(r"\{([a-z]\w*)\}", " ".join(table.commands))
    return sorted(set(names) - {"out", "runs", "docs"})


def write_pages(docs: Path) -> list[Path]:
    """Writes the tables of all pages from the CSV files; gives the pages that have changed."""
    changed = []
    for page in sorted(docs.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = _PLACE.sub(lambda place: f"{place[1]}{shown(place[2], docs / 'results')}\n{place[3]}", text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed


def shown(name: str, results: Path) -> str:
    """A table as its page shows it, with its name, the day of its figures and their file below."""
    table = TABLES[name]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for number, row in enumerate(filter(table.keep, read_csv(results / table.csv))):
        groups.setdefault(tuple(row[column] for column in table.group) or (str(number),), []).append(row)
    lines = [list(table.cells)]
    for group in groups.values():
        cells = {form: [_cell(form, row) for row in group] for form in table.cells.values()}
        named = {f"{{{column}}}" for column in table.group}
        lines.append([texts[0] if form in named else ", ".join(filter(None, texts)) for form, texts in cells.items()])
    head, *rows = (f"| {' | '.join(line)} |" for line in lines)
    day = read_origin(results / table.csv).partition(" · ")[0]
    below = f"*`{name}` · {day} · [CSV](results/{table.csv})*"
    return "\n".join([head, "|" + "---|" * len(table.cells), *rows, "", below])


def _cell(form: str, row: Row) -> str:
    text = form.format_map({name: _Text(value) for name, value in row.items()})
    text = re.sub(rf" ?[\[(][^\])]*{_MISSING}[^\])]*[\])]", "", text)
    return "" if _MISSING in text else text


if __name__ == "__main__":
    sys.exit(main())
