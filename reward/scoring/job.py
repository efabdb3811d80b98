"""Job: the scoring of parts of a data file, in whatever process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from reward.scoring.ahead import decoded_chunks
from reward.scoring.columns import ColumnPlan, RowTask
from reward.scoring.parts import ANSWERS, Part, part_name, put_part
from reward.scoring.pictures import PictureReader
from reward.scoring.results import AddedColumns
from reward.scoring.several import Metrics
from reward.scoring.sources import Source
from reward.scoring.summary import SummaryBuilder

FIRST_ROWS = 64  # of the first part, which tells the pace
PART_SECONDS = 60  # that a part takes at most, by the pace of the one before: what a kill can cost


@dataclass
class Progress:
    """A part that is done and on the disk."""

    part: str  # its name
    failed: int  # how many of its rows have an error
    images: int  # that were decoded for it


@dataclass
class Job:
    """How the rows of a data file are scored; picklable if the metrics are given by name."""

    source: Source
    plan: ColumnPlan
    metrics: Metrics  # loaded where `work` is called
    root: Path  # where relative image paths start
    folder: Path  # of the parts
    prefix: str
    batch_size: int | None
    part_rows: int  # of a part, at most

    def columns(self, metrics: Metrics) -> AddedColumns:
        """The columns that the output has more than the input."""
        caption = self.plan.caption if self.plan.many else None
        is_ranked = self.plan.group is not None
        return AddedColumns(metrics, self.prefix, self.source.columns, caption=caption, is_ranked=is_ranked)

    def tasks(self, blocks: Iterable[range]) -> Iterator[Iterator[RowTask]]:
        """For each of some ranges of rows, in order, what is to be scored; each must be read before the next."""
        rows: Iterator[Any] = iter(())
        next_row = None  # of the iterator
        for block in blocks:
            if next_row is None or next_row > block.start or (next_row < block.start and self.source.is_indexed):
                rows = iter(self.source.rows(self.plan.names, block.start))
            else:  # to read on is cheaper than to begin anew
                next(islice(rows, block.start - next_row, block.start - next_row), None)
            numbered = enumerate(islice(rows, len(block)), start=block.start)
            yield (self.plan.task(row, number, self.root) for number, row in numbered)
            next_row = block.stop

    def names(self, blocks: Iterable[range]) -> Iterator[str]:
        """The names that the parts of some ranges of rows have as the rows are now."""
        return map(part_name, self.tasks(blocks))

    def work(self, blocks: Iterable[range]) -> Iterator[Progress]:
        """Scores some ranges of rows, and writes them to the folder, part by part.

        Raises:
            OutputError: a part cannot be written.
        """
        columns, reader = self.columns(self.metrics), PictureReader.of(self.metrics, self.root)
        most = min(FIRST_ROWS, self.part_rows)
        with _answers_kept(self.metrics, self.folder / ANSWERS):
            for chunk, decoded in decoded_chunks(self.tasks(blocks), reader, self.part_rows):
                while chunk:
                    tasks, start = chunk[:most], time.perf_counter()
                    del chunk[:most]
                    name, failed = self._put(tasks, columns)
                    # A kill costs the part that is being scored, so the next one is as long as a minute allows.
                    seconds = max(time.perf_counter() - start, 1e-6)
                    most = 1 + int(PART_SECONDS * len(tasks) / seconds)
                    tasks.clear()  # the images take far more memory than all else
                    yield Progress(name, failed, decoded)
                    decoded = 0

    def _put(self, tasks: list[RowTask], columns: AddedColumns) -> tuple[str, int]:
        """Scores rows and writes their part; gives its name, and how many of the rows have an error."""
        summary = SummaryBuilder()
        built = columns.build(tasks, self.batch_size, summary)
        name, groups = part_name(tasks), [task.group for task in tasks]
        part = Part(columns.types, built, summary.record(), [task.stamp for task in tasks], groups)
        put_part(self.folder, name, part)
        return name, sum(error is not None for error in built[f"{self.prefix}error"])


@contextmanager
def _answers_kept(metrics: Metrics, path: Path) -> Iterator[None]:
    """Has the judges that are asked keep their answers in a file, unless they keep them elsewhere."""
    judges: list[Any] = []
    for scorer in metrics.parts:
        for judge in getattr(scorer, "judges", ()):
            if getattr(judge, "cache", path) is None and hasattr(judge, "close"):
                judges.append(judge)
    for judge in judges:
        judge.cache = path
        judge.close()  # it opens the file at the next question
    try:
        yield
    finally:
        for judge in judges:
            judge.cache = None
            judge.close()
