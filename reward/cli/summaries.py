"""What commands say of a finished run, on stderr, and the exit code that follows from it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reward.cli import terminal

if TYPE_CHECKING:
    from reward.judges import Usage
    from reward.report.report import Report
    from reward.scoring.summary import Distribution, ScoringSummary

_ROWS_SHOWN, _WIDTH = 20, 60


def print_report(
    report: Report, output: Path | None, *, json: bool, quiet: bool, notes: Sequence[str] | None = None
) -> None:
    """Prints what a command has found, as tables or as JSON, and writes its pages.

    Args:
        report: what it has found.
        output: where the pages go; None for none.
        json: print one JSON value instead of tables.
        quiet: leave out the notes, and where the pages are.
        notes: said on stderr; None for those of the report, unless `quiet`.
    """
    if json:
        terminal.print_json(report.to_json())
    else:
        for table in report.tables:
            terminal.print_table(
                list(table.frame), table.texts(), title=table.title, best=table.best, best_of=table.best_of
            )
    console = terminal.console(stderr=True)
    if notes is None:
        notes = [] if quiet else report.notes
    for note in notes:
        console.print(note)
    if output is not None:
        page = report.write(output)
        if not quiet:
            console.print(f"report: {page}", style="green")


def print_summary(summary: ScoringSummary, *, quiet: bool, verb: str, shows_rows: bool = False) -> None:
    """Prints what a scoring run did, and exits with 1 if no caption has a score.

    Args:
        summary: of the run.
        quiet: print only what went wrong.
        verb: "scored" or "reranked".
        shows_rows: print the first rows on stdout.
    """
    console = terminal.console(stderr=True)
    if shows_rows and summary.scored and not quiet:
        _print_rows(summary)
    if summary.already_done:
        print_done(summary.output, "input and settings", "scored")
    if not quiet:
        columns = ", ".join(f"{role} = {column}" for role, column in summary.columns.items() if column)
        line = f"columns read: {columns}; {summary.rows} rows"
        if summary.columns.get("image") and summary.image_root is not None:
            line += f"; image paths start at {os.path.abspath(summary.output.parent / summary.image_root)}"
        console.print(line)
        _print_distributions(summary)
    for kind, count in summary.errors.items():
        fault = "scored, but without a text" if kind == "text" else f"not scored ({kind})"
        console.print(f"{count} {fault}; the first is {summary.examples[kind]}", style="yellow")
    if not quiet:
        _print_remarks(summary)
        console.print(f"{_work_done(summary, verb)} -> {summary.output}", style="green")
    if not summary.scored:
        console.print("error: no caption could be scored", style="red")
        raise typer.Exit(1)


def print_done(output: Path, same: str, work: str) -> None:
    """Says that there was nothing to do."""
    terminal.console(stderr=True).print(
        f"{output} is complete already, from the same {same}; nothing was {work} again (--overwrite does).",
        style="yellow",
    )


def _print_rows(summary: ScoringSummary) -> None:
    """The first rows of the output: image, caption and numbers; of a list of candidates the best."""
    from itertools import islice

    from reward.data.column_names import column_names
    from reward.scoring.readers import open_source

    reader = open_source(summary.output)
    # The picture, the caption, then scores in the order of the file; the columns of the input that nobody scored stay
    # out, and the errors too if the rows that are shown have none.
    image_names = [name for name in (summary.columns.get("image"), *column_names("image")) if name in reader.columns]
    caption = "best" if "best" in reader.columns else summary.columns["candidate"]
    heads = [name for name in (*image_names[:1], caption) if name is not None]
    scores = _without_copies(summary.distributions)
    for name in reader.columns:
        if name.endswith(tuple(scores)) or (name == "rewards" and "reward" in scores):
            heads.append(name)
    columns = [*heads, "error"] if "error" in reader.columns else heads
    records = [row for row in islice(reader.rows(columns), _ROWS_SHOWN) if isinstance(row, dict)]
    if any(row.get("error") for row in records):
        heads = columns
    rows = []
    for record in records:
        rows.append([_in_short(record.get(head)) for head in heads])
    title = summary.output.name
    count = summary.rows if summary.selected is None else summary.selected
    if count > len(rows):
        title += f", the first {len(rows)} of {count} rows"
    terminal.print_table(heads, rows, title=title)


def _in_short(cell: Any) -> str:
    """A cell in a line: of a list the first, of an image its path."""
    if isinstance(cell, list):
        cell = cell[0] if cell else None
    if isinstance(cell, dict):
        cell = cell.get("path")
    if cell is None:
        return ""
    text = f"{cell:.4g}" if isinstance(cell, float) else " ".join(str(cell).split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _without_copies(distributions: Mapping[str, Distribution]) -> dict[str, Distribution]:
    """The distributions without rewards that are the same as an aspect: as of a metric with one aspect."""
    distinct: dict[str, Distribution] = {}
    for name, spread in distributions.items():
        is_copy = name.endswith("reward") and spread in distinct.values()
        if not is_copy:
            distinct[name] = spread
    return distinct


def _print_distributions(summary: ScoringSummary) -> None:
    rows = []
    for name, spread in _without_copies(summary.distributions).items():
        numbers = (spread.mean, spread.std, spread.min, spread.max)
        rows.append([name, *(f"{number:.4g}" for number in numbers)])
    if rows:
        heads = ("", "mean", "std", "min", "max")
        terminal.print_table(heads, rows, title=f"{summary.captions} captions", stderr=True)


def _print_remarks(summary: ScoringSummary) -> None:
    """What a reader must know of the scores."""
    console = terminal.console(stderr=True)
    if 1 < summary.groups == summary.rows:
        console.print(
            f"no two rows share a value of {summary.columns['group']}, so that nothing was compared; name the column "
            "that the candidates of one image share with --group-column",
            style="yellow",
        )
    if summary.readings:
        ways = ", ".join(f"{count:,} by {way}" for way, count in summary.readings.items())
        console.print(f"answers of judges read: {ways}")
    if summary.truncated:
        console.print(f"{summary.truncated} captions had text cut to fit the model")
    if summary.thinking_cut:
        console.print(f"reasoning or marks (<think>, <answer>, ...) were cut from {summary.thinking_cut} captions")
    if summary.distinct:
        console.print(f"distinct among the candidates of a row: {summary.distinct} of {summary.captions}")
    if summary.selected is not None:
        console.print(f"{summary.selected} of {summary.rows} rows were selected and written")


def _work_done(summary: ScoringSummary, verb: str) -> str:
    """How many rows were scored, by what, and how fast."""
    from reward.scoring.summary import metric_label

    line = f"{verb} {summary.rows} rows"
    if summary.groups:
        line += f" in {summary.groups} groups"
    if summary.resumed_rows:
        line += f" ({summary.resumed_rows} of them by an earlier run)"
    if summary.devices:
        line += f" by {len(summary.devices)} processes ({', '.join(summary.devices)})"
    if summary.new_rows and not summary.already_done:
        line += f", {summary.rows_per_second:,.1f} rows/s"
    if summary.images_decoded:
        line += f", {summary.images_decoded} images decoded"
    metrics = [metric_label(metric, checkpoint) for metric, checkpoint in summary.checkpoints.items()]
    if metrics:
        line += f", metric {', '.join(metrics)}"
    return line


def print_usage(usages: Sequence[Usage], *, by: str = "judge", quiet: bool) -> None:
    """Says what models that were asked have done together, and what it cost; nothing if none was asked."""
    if quiet or not usages:
        return
    # Several metrics may ask one server each; the user pays one bill.
    total = type(usages[0])(*map(sum, zip(*map(astuple, usages), strict=True)))
    if total.answered + total.cached == 0:
        return
    line = f"{total.answered:,} questions answered by the {by}"
    if total.cached:
        line += f", {total.cached:,} known already"
    line += f"; {total.input_tokens:,} tokens read, {total.output_tokens:,} written"
    if total.cost:
        line += f"; cost {total.cost:.4f}"
    terminal.console(stderr=True).print(line)
