"""What `capreward bench` and `capreward compare` share: options, and reading the benchmarks that they name."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli.terminal import console

if TYPE_CHECKING:
    from reward.metaeval.benchmarks import Benchmark

__all__ = [
    "CacheFolder",
    "Images",
    "Json",
    "Limit",
    "NoReferences",
    "Resamples",
    "Seed",
    "command_line",
    "print_table",
    "read_benchmarks",
    "stdout_kept_clean",
]

Images = Annotated[
    Path | None, typer.Option(help="Folder that relative image paths start from; default: that of the data.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many items of the benchmark.")]
NoReferences = Annotated[
    bool, typer.Option("--no-references", help="Withhold the references from the metrics, even where there are any.")
]
Resamples = Annotated[int, typer.Option(min=1, help="Of the bootstrap and of the permutation tests.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the bootstrap and of the permutation tests.")]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        help="Folder that keeps the scores; default: capreward/scores in $XDG_CACHE_HOME, else in ~/.cache.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]


def read_benchmarks(
    names: Sequence[str], data: Path | None, parts: Sequence[str], images: Path | None, limit: int | None
) -> list[tuple[Benchmark, str | None]]:
    """Loads the benchmarks that the options name, each with its path.

    Raises:
        typer.BadParameter: options that do not go together.
        DataError: no such benchmark, or its files are not as they should be.
    """
    from reward.metaeval.benchmarks import benchmark_spec, load_benchmark

    if not names:
        raise typer.BadParameter("is missing; `capreward bench --list` shows which there are", param_hint="--benchmark")
    if len(names) > 1:
        for option, value in (("--data", data), ("--part", parts), ("--images", images)):
            if value:
                raise typer.BadParameter("goes with one --benchmark; write NAME=PATH for several", param_hint=option)
    found: list[tuple[Benchmark, str | None]] = []
    for text in names:
        name, equals, path = text.partition("=")
        benchmark_spec(name)
        if equals and (data is not None or not path):
            problem = "gives a path twice" if path else "has no path"
            raise typer.BadParameter(f"{text!r} {problem}: write NAME=PATH, or --data PATH", param_hint="--benchmark")
        place: Any = path if equals else data
        wanted: list[str | None] = [*parts] or [None]
        for part in wanted:
            loaded = load_benchmark(name, place, part=part, images=images, limit=limit)
            found.append((loaded, None if place is None else str(place)))
    return found


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["capreward", *sys.argv[1:]])


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", best: int | None = None
) -> None:
    """A table on stdout, never cut: columns that do not fit into a terminal come in further tables below the first.

    In a file or a pipe, which have no width, it is one table.
    """
    from rich.table import Table

    out = console(stderr=False)
    for number, columns in enumerate(_blocks(heads, rows, out.width if out.is_terminal else None)):
        named = f"{title}, continued" if title and number else title
        table = Table(title=named or None, title_justify="left")
        for column in columns:
            table.add_column(heads[column], justify="right" if column else "left", no_wrap=True)
        for place, row in enumerate(rows):
            table.add_row(*(row[column] for column in columns), style="bold" if place == best else None)
        out.width = max(out.width, out.measure(table, options=out.options.update(width=10_000)).maximum)
        out.print(table)


def _blocks(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[list[int]]:
    """Numbers of the columns of each table: the first column, and as many more as fit, at least one."""
    from rich.cells import cell_len

    wide = [3 + max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]  # with border and padding
    blocks, left = [[0]], 0
    for number in range(1, len(heads)):
        if width is not None and len(blocks[-1]) > 1 and wide[number] > left:
            blocks.append([0])
        if len(blocks[-1]) == 1:
            left = (width or 0) - 1 - wide[0]
        blocks[-1].append(number)
        left -= wide[number]
    return blocks


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Sends to stderr what libraries print, such as those that announce what they do."""
    from contextlib import redirect_stdout

    with redirect_stdout(sys.stderr):
        yield
