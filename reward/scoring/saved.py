"""The results of a scoring run that its journal holds, by number of the row."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from reward.errors import OutputError
from reward.scoring.columns import RowTask
from reward.scoring.journal import Journal
from reward.scoring.results import RowResult

__all__ = ["SavedRows"]

_MISSING = -1


class SavedRows:
    """Rows with a result in a journal, whatever their order there. Results stay on disk; a row takes 8 bytes here.

    Args:
        journal: written by `append`, perhaps by an earlier run.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._places = array("q")  # of the row's line in the journal
        self._count = 0
        for place, (row, _, _, _) in journal.lines():
            self._note(row, place)
        lost = len(self._places) - self._count
        if lost > journal.damaged:
            warnings.warn(
                f"{journal.path} lacks {lost} rows, which are scored again: lines of it were deleted", stacklevel=2
            )

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and row < len(self._places) and self._places[row] != _MISSING

    def append(self, tasks: Sequence[RowTask], results: Sequence[RowResult]) -> None:
        """Saves the results of some rows, each with what it belongs to: number of the row, hash of its texts, group."""
        lines = [[task.row, task.key, task.group, result] for task, result in zip(tasks, results, strict=True)]
        for task, place in zip(tasks, self._journal.append(lines), strict=True):
            self._note(task.row, place)

    def _note(self, row: int, place: int) -> None:
        while len(self._places) <= row:
            self._places.append(_MISSING)
        self._count += self._places[row] == _MISSING
        self._places[row] = place

    def first_missing(self) -> int:
        """The first row without a result."""
        return self._places.index(_MISSING) if self._count < len(self._places) else len(self._places)

    def in_order(self) -> Iterator[tuple[str, str | None, Any]]:
        """(key, group, result) of each row, from the first to the last.

        Raises:
            OutputError: a row has no result.
        """
        if self._count < len(self._places):
            raise OutputError(f"{self._journal.path} lacks row {self.first_missing() + 1}; run the same again")
        return ((key, group, result) for _, key, group, result in self._journal.read(self._places))
