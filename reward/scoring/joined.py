"""Joins the parts of a data file to the columns of its output."""

from __future__ import annotations

import hashlib
from typing import Any

from reward.errors import OutputError
from reward.scoring.columns import row_key
from reward.scoring.job import Job
from reward.scoring.parts import Part, PartFolder, RowsDigest
from reward.scoring.summary import SummaryBuilder

__all__ = ["Joined", "PictureDigests"]


class Joined:
    """The columns of all parts, row after row; called with the next rows of the data, whose texts it compares."""

    def __init__(self, job: Job, folder: PartFolder, summary: SummaryBuilder) -> None:
        self.summary, self.images = summary, PictureDigests()
        self.ranks: list[int | None] | None = None
        self._job, self._parts = job, folder.parts(job.numbers)
        self._name = f"{job.scorer.prefix}rank"
        self._rows = 0  # that were handed out
        self._part: Part | None = None
        self._left: list[tuple[Any, ...]] = []  # rows of the part, the next one last
        self._digest = RowsDigest()

    def __call__(self, rows: list[Any]) -> dict[str, list[Any]]:
        taken: list[tuple[Any, ...]] = []
        for row in rows:
            if not self._left:
                self._next()
            taken.append(self._left.pop())
            self._digest.add_text(row_key(row, self._job.plan))
            if not self._left:
                self._check()
        columns: dict[str, list[Any]] = {name: [] for name in (self._part.columns if self._part is not None else ())}
        for values in taken:
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        if self.ranks is not None:
            columns[self._name] = self.ranks[self._rows : self._rows + len(rows)]
        self._rows += len(rows)
        return columns

    def _next(self) -> None:
        part = next(self._parts, None)
        if part is None:
            raise OutputError("the input has more rows than were scored: it changed; run the same again")
        self.summary.add_record(part.record)
        self.images.add(part.pictures)
        self._part, self._digest = part, RowsDigest()
        self._left = list(zip(*part.columns.values(), strict=True))[::-1]

    def _check(self) -> None:
        """Compares the rows of the part with those that were scored."""
        if self._part is not None and self._digest.texts != self._part.texts:
            raise OutputError(
                f"{self._job.source.name} has other rows than those that were scored: the data changed meanwhile; run "
                "the same again"
            )


class PictureDigests:
    """One digest of the images of all parts; None if none is a file."""

    def __init__(self) -> None:
        self._each: list[str | None] = []

    def add(self, pictures: str | None) -> None:
        self._each.append(pictures)

    @property
    def value(self) -> str | None:
        known = any(self._each)
        return hashlib.sha256(repr(self._each).encode()).hexdigest()[:16] if known else None
