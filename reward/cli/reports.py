"""What commands say of a finished run, on stderr, and the exit code that follows from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reward.cli import terminal

if TYPE_CHECKING:
    from reward.judges import Usage
    from reward.metaeval.report import Grid
    from reward.scoring.summary import ScoringSummary


_ROWS_SHOWN, _WIDTH = 20, 60


def report_scores(summary: ScoringSummary, *, quiet: bool, what: str, shows_rows: bool = False) -> None:
    """Prints what a scoring run did, and exits with 1 if no caption has a score.

    Args:
        summary: of the run.
        quiet: print only what went wrong.
        what: "scored", "reranked" or "judged".
        shows_rows: print the first rows on stdout.
    """
    console = terminal.console(stderr=True)
    if shows_rows and summary.scored and not quiet:
        _print_rows(summary)
    if summary.already_done:
        print_done(summary.output, "input and settings", "scored")
    if not quiet:
        _print_summary(console, summary, what)
    elif summary.errors:
        console.print(_error_lines(summary), style="yellow")
    if not summary.scored:
        console.print("error: no caption could be scored", style="red")
        raise typer.Exit(1)


def print_done(output: Path, same: str, work: str) -> None:
    """Says that there was nothing to do."""
    terminal.console(stderr=True).print(
        f"{output} is complete already, from the same {same}; nothing was {work} again (--overwrite does).",
        style="yellow",
    )


def report_figures(
    figures: Any,
    grids: Iterable[Grid],
    notes: Iterable[str],
    write: Callable[[], Path] | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Prints what a command has found, as tables or as JSON, and leaves its pages.

    Args:
        figures: for JSON.
        grids: the tables.
        notes: said on stderr.
        write: writes the pages, and gives the path of the first; None for no pages.
        json: print `figures` instead of tables.
        quiet: do not say where the pages are.
    """
    if json:
        terminal.print_json(figures)
    else:
        for grid in grids:
            terminal.print_table(**vars(grid))
    console = terminal.console(stderr=True)
    for note in notes:
        console.print(note)
    if write is not None:
        page = write()
        if not quiet:
            console.print(f"report: {page}", style="green")


def _error_lines(summary: ScoringSummary) -> str:
    return "\n".join(
        f"{count} not scored ({kind}); the first is {summary.examples[kind]}" for kind, count in summary.errors.items()
    )


def _print_rows(summary: ScoringSummary) -> None:
    """The first rows of the output: image, caption and numbers; of a list of candidates the best."""
    from itertools import islice

    from reward.data.samples import column_names
    from reward.scoring.readers import open_source

    source = open_source(summary.output)
    image = next((name for name in column_names("image") if name in source.columns), None)
    names = [
        summary.columns.get("image") or image,
        "best" if "best" in source.columns else summary.columns["candidate"],
    ]
    numbers = [name for name in source.columns if name.endswith(tuple(summary.distributions)) or name == "rewards"]
    heads = [name for name in (*names, *numbers, "error") if name in source.columns]
    first = (row for row in islice(source.rows(heads), _ROWS_SHOWN) if isinstance(row, dict))
    rows = [tuple(_shown(row.get(name)) for name in heads) for row in first]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    count = summary.rows if summary.selected is None else summary.selected
    more = f", the first {len(rows)} of {count} rows" if count > len(rows) else ""
    terminal.print_table(heads, rows, title=f"{summary.output.name}{more}")


def _shown(cell: Any) -> str:
    """A cell in a line: of a list the first, of an image its path."""
    cell = (cell[0] if cell else None) if isinstance(cell, list) else cell
    cell = cell.get("path") if isinstance(cell, dict) else cell
    text = "" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else " ".join(str(cell).split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _print_summary(console: Any, summary: ScoringSummary, what: str) -> None:
    used = ", ".join(f"{role} = {column}" for role, column in summary.columns.items() if column)
    folder = ""
    if summary.columns.get("image") and summary.image_root is not None:
        folder = f"; image paths start at {os.path.abspath(summary.output.parent / summary.image_root)}"
    console.print(f"columns read: {used}; {summary.rows} rows{folder}")
    heads, rows = ("", "mean", "std", "min", "max"), []
    for name, spread in summary.distributions.items():
        numbers = (spread.mean, spread.std, spread.min, spread.max)
        rows.append((name, *(f"{number:.4g}" for number in numbers)))
    if rows:
        terminal.print_table(heads, rows, title=f"{summary.captions} captions", stderr=True)
    if summary.errors:
        console.print(_error_lines(summary), style="yellow")
    if 1 < summary.groups == summary.rows:
        console.print(
            f"no two rows share a value of {summary.columns['group']}, so that nothing was compared; name the column "
            "that the candidates of one image share with --group-column",
            style="yellow",
        )
    if summary.truncated:
        console.print(f"{summary.truncated} captions had text cut to fit the model")
    if summary.thinking_cut:
        console.print(f"reasoning or marks (<think>, <answer>, ...) were cut from {summary.thinking_cut} captions")
    if summary.distinct:
        console.print(f"distinct among the candidates of a row: {summary.distinct} of {summary.captions}")
    groups = f" in {summary.groups} groups" if summary.groups else ""
    before = f" ({summary.resumed_rows} of them by an earlier run)" if summary.resumed_rows else ""
    pace = f", {summary.rows_per_second:,.1f} rows/s" if summary.new_rows and not summary.already_done else ""
    images = f", {summary.images_decoded} images decoded" if summary.images_decoded else ""
    devices = f" by {len(summary.devices)} processes ({', '.join(summary.devices)})" if summary.devices else ""
    by = ", ".join(map(_by, summary.checkpoints, summary.checkpoints.values()))
    facts = f"{groups}{before}{devices}{pace}{images}" + (f", metric {by}" if by else "")
    if summary.selected is not None:
        console.print(f"{summary.selected} of {summary.rows} rows were selected and written")
    console.print(f"{what} {summary.rows} rows{facts} -> {summary.output}", style="green")


def _by(metric: str, checkpoint: str | None) -> str:
    """A metric with its checkpoint; a formula and a Python object have none."""
    from reward.registry import MetricSource

    if checkpoint == "embedded":
        return f"{metric} (weights for drawings)" if MetricSource(metric).knows_drawings_only else metric
    return f"{metric}={checkpoint}" if checkpoint else metric


def print_usage(usages: Sequence[Usage], *, by: str = "judge", quiet: bool) -> None:
    """Says what models that were asked have done together; nothing if none was asked."""
    if quiet or not usages:
        return
    total = type(usages[0])(*map(sum, zip(*map(astuple, usages), strict=True)))
    if total.answered + total.cached:
        terminal.console(stderr=True).print(usage_line(total, by))


def usage_line(usage: Usage, by: str = "judge") -> str:
    """What a judge has done, in a line.

    Example:
        >>> from reward.judges import Usage
        >>> usage_line(Usage(answered=3, cached=1, input_tokens=1200, output_tokens=60, cost=0.5))
        '3 questions answered by the judge, 1 known already; 1,200 tokens read, 60 written; cost 0.5000'
    """
    known = f", {usage.cached:,} known already" if usage.cached else ""
    cost = f"; cost {usage.cost:.4f}" if usage.cost else ""
    tokens = f"{usage.input_tokens:,} tokens read, {usage.output_tokens:,} written"
    return f"{usage.answered:,} questions answered by the {by}{known}; {tokens}{cost}"
