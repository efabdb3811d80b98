"""The progress bar of a scoring run: rows, rate, time left and errors, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    show: bool, *, done: int, total: int | None, what: str = "scoring"
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to be called with (rows, errors) after each chunk.

    Args:
        show: whether to draw anything.
        done: rows that an earlier run scored; they do not count in the rate.
        total: number of rows, None if unknown.
        what: is being done to the rows.
    """
    if not show:
        yield lambda rows, errors: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            new = task.completed - done
            rate = f"{new / task.elapsed:,.1f}" if new and task.elapsed else "-"
            return Text(f"{rate} rows/s", style="progress.data.speed")

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[errors]} errors"),
    )
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=120) as progress:
        task = progress.add_task("", total=total, completed=done, errors=0)
        errors_so_far = 0

        def advance(rows: int, errors: int) -> None:
            nonlocal errors_so_far
            errors_so_far += errors
            progress.update(task, advance=rows, errors=errors_so_far)

        yield advance
