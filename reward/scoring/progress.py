"""The progress bar of a scoring run: rows, rate, time left and errors, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG_SECONDS = 60  # between two lines where no terminal shows a bar


@contextmanager
def progress_bar(
    show: bool, *, done: int, total: int | None, doing: str = "scoring"
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to be called with (rows, errors) after each chunk.

    Args:
        show: whether to draw anything.
        done: rows that an earlier run scored; they do not count in the rate.
        total: number of rows, None if unknown.
        doing: what is done with the rows, shown before the bar.
    """
    from tqdm.auto import tqdm

    seconds = 0.1 if sys.stderr.isatty() else _LOG_SECONDS
    with tqdm(desc=doing, total=total, initial=done, unit=" rows", mininterval=seconds, disable=not show) as bar:
        failed = 0

        def advance(rows: int, errors: int) -> None:
            nonlocal failed
            failed += errors
            bar.set_postfix(errors=failed, refresh=False)
            bar.update(rows)

        yield advance
