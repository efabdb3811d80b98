"""How commands print the report of what they found, and write its pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reward.cli import terminal

if TYPE_CHECKING:
    from reward.report.report import Report


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
