"""The progress of a run: rows, rate, time left and errors, on stderr; a bar, or a line a minute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LOG_SECONDS = 60  # between two lines where no terminal shows a bar


class _Lines:
    """Where tqdm writes if no terminal shows its bar: each state becomes a line."""

    def write(self, text: str) -> None:
        if text := text.strip("\r\n "):
            print(text, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Each line is written at once."""


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

    form: dict[str, Any] = {"desc": doing, "total": total, "initial": done, "unit": " rows", "disable": not show}
    if not sys.stderr.isatty() and "ipykernel" not in sys.modules:  # a notebook shows a bar of its own
        form |= {"file": _Lines(), "mininterval": LOG_SECONDS, "miniters": 1, "ascii": True, "ncols": 100}
    with tqdm(**form) as bar:
        failed = 0

        def advance(rows: int, errors: int) -> None:
            nonlocal failed
            failed += errors
            bar.set_postfix(errors=failed, refresh=False)
            bar.update(rows)

        yield advance
