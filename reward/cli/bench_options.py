"""What `capreward bench` and `capreward compare` share: options, and reading the benchmarks that they name."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

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
    "console",
    "print_json",
    "print_table",
    "read_benchmarks",
    "stdout_kept_clean",
    "stopped_politely",
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

T = TypeVar("T")


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


def console(*, stderr: bool) -> Any:
    """Where texts are printed, lines uncut."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", best: int | None = None
) -> None:
    """A table on stdout, never cut: a narrow terminal wraps its lines."""
    from rich.table import Table

    table = Table(*heads, title=title or None, title_justify="left")
    for number, column in enumerate(table.columns):
        column.justify, column.no_wrap = "right" if number else "left", True
    for number, row in enumerate(rows):
        table.add_row(*row, style="bold" if number == best else None)
    out = console(stderr=False)
    out.width = max(out.width, out.measure(table, options=out.options.update(width=10_000)).maximum)
    out.print(table)


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Sends to stderr what libraries print, such as those that announce what they do."""
    from contextlib import redirect_stdout

    with redirect_stdout(sys.stderr):
        yield


def stopped_politely(run: Callable[[], T]) -> T:
    """Runs something long; Ctrl-C ends the command with a line and exit code 130."""
    try:
        with stdout_kept_clean():
            return run()
    except KeyboardInterrupt as stop:
        console(stderr=True).print(str(stop) or "stopped", style="yellow", markup=False)
        raise typer.Exit(130) from None
