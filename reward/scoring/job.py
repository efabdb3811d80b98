"""Job: the scoring of parts of a data file, in whatever process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from reward.errors import OutputError
from reward.scoring.ahead import ImageReader
from reward.scoring.batch_scorer import BatchScorer
from reward.scoring.columns import ColumnPlan, RowTask, row_task
from reward.scoring.parts import ANSWERS, Part, PartFolder, RowsDigest, put_part
from reward.scoring.results import RankColumns, ScoreColumns, Scored
from reward.scoring.several import Metrics
from reward.scoring.sources import Source
from reward.scoring.summary import SummaryBuilder

__all__ = ["Job", "Progress"]


@dataclass
class Progress:
    """What was done since the last one.

    Args:
        rows, failed: rows that were scored, and those of them that have an error.
        images: images decoded.
        cache: {what is kept on disk: [entries found, entries computed]}.
        part: number of the part that is finished and on the disk with them; None if it goes on.
    """

    rows: int
    failed: int
    images: int
    cache: dict[str, list[int]] = field(default_factory=dict)
    part: int | None = None


@dataclass
class Job:
    """How the parts of a data file are scored; picklable if the metrics are given by name.

    Args:
        source, plan: the data, and which of its columns are read.
        scorer: scores them.
        folder: of the parts.
        run: name of the run, see `PartFolder.name`.
        part_rows: rows of a part.
    """

    source: Source
    plan: ColumnPlan
    scorer: BatchScorer
    folder: Path
    run: str
    part_rows: int

    @property
    def root(self) -> str | os.PathLike[str]:
        """Where relative image paths start."""
        return self.source.folder if self.scorer.image_root is None else self.scorer.image_root

    @property
    def numbers(self) -> range:
        """Of all parts."""
        return range(-(-self.source.num_rows // self.part_rows))

    def rows_of(self, number: int) -> int:
        """How many rows a part has."""
        return min(self.part_rows, self.source.num_rows - number * self.part_rows)

    def columns(self, metrics: Metrics) -> ScoreColumns:
        """The columns that the output has more than the input; refuses bad weights and names that the input has."""
        shared = (metrics, self.scorer.weights, self.scorer.prefix, self.source.columns)
        if self.plan.many:
            return RankColumns(*shared, self.plan.caption)
        return ScoreColumns(*shared, is_ranked=self.plan.group is not None)

    def facts(self) -> dict[str, Any]:
        """What is known once the metrics are loaded: the added columns with their types, and those with numbers.

        Raises:
            CapRewardError: the metrics cannot be loaded, or their columns are there already.
        """
        metrics = self.scorer.loaded()
        return {"added": self.columns(metrics).types, "numbers": metrics.numbers}

    def tasks(self, numbers: Iterable[int]) -> Iterator[RowTask]:
        """The rows of some parts, in their order."""
        rows: Iterator[Any] = iter(())
        at = -1  # the row that comes next
        for number in sorted(numbers):
            first, count = number * self.part_rows, self.rows_of(number)
            if at < 0 or (at != first and self.source.is_indexed):
                rows = self.source.rows(self.plan.names, first)
            else:  # to read on is cheaper than to begin anew
                next(islice(rows, first - at, first - at), None)
            for place, row in enumerate(islice(rows, count), start=first):
                yield row_task(
                    row,
                    self.plan,
                    self.scorer.given.specs,
                    number=place,
                    is_csv=self.source.is_csv,
                    root=self.root,
                )
            at = first + count

    def done(self, folder: PartFolder) -> dict[int, Part]:
        """The parts that are there, of these very rows as they are now: {number: part without its columns}."""
        found: dict[int, Part] = {}
        tasks = self.tasks(number for number in folder.numbers if number in self.numbers)
        for number in folder.numbers:
            own = islice(tasks, self.rows_of(number)) if number in self.numbers else ()
            part = folder.find(number, RowsDigest().add(own).name(self.run))
            if part is not None:
                found[number] = replace(part, columns={})
        return found

    def work(self, numbers: Iterable[int]) -> Iterator[Progress]:
        """Scores some parts and writes each of them to the folder; gives what was done, chunk by chunk.

        Raises:
            OutputError: a part cannot be written, or the data have fewer rows than before.
        """
        metrics = self.scorer.loaded()
        columns, reader = self.columns(metrics), ImageReader(self.root, metrics)
        chunks: list[Scored] = []
        decoded, counts = 0, _cache_counts(metrics)
        with ExitStack() as stack:
            stack.enter_context(_answers_kept(metrics, self.folder / ANSWERS))
            for chunk in self.scorer.scored(self.tasks(numbers), reader, self.part_rows):
                chunks.append(chunk)
                number = chunk.tasks[0].row // self.part_rows
                is_whole = sum(len(each.tasks) for each in chunks) == self.rows_of(number)
                if is_whole:
                    self._write(number, Scored.joined(chunks), columns)
                    chunks = []
                now = _cache_counts(metrics)
                cache = {kind: [a - b for a, b in zip(now[kind], counts[kind], strict=True)] for kind in now}
                yield Progress(
                    len(chunk.tasks),
                    _failed(chunk),
                    reader.decoded - decoded,
                    cache,
                    number if is_whole else None,
                )
                decoded, counts = reader.decoded, now
        if chunks:
            raise OutputError(f"{self.source.name} has fewer rows than before: it changed; run the same again")

    def _write(self, number: int, scored: Scored, columns: ScoreColumns) -> None:
        summary = SummaryBuilder(columns.metrics.numbers)
        summary.rows = number * self.part_rows  # the errors name rows of the data
        built = columns.build(scored, summary)
        summary.rows -= number * self.part_rows
        digest = RowsDigest().add(scored.tasks)
        groups = [] if self.plan.group is None else [task.group for task in scored.tasks]
        part = Part(built, summary.record(), digest.texts, digest.pictures, groups)
        put_part(self.folder, number, digest.name(self.run), part)


def _failed(scored: Scored) -> int:
    """How many rows have an error."""
    wrong = [any(problems) for problems in zip(*(scores.problems for scores in scored.metrics), strict=True)]
    failed = last = 0
    for task in scored.tasks:
        first, last = last, last + max(1, len(task.candidates))
        failed += any(wrong[first:last])
    return failed


def _cache_counts(metrics: Metrics) -> dict[str, list[int]]:
    """{what is kept on disk: [entries found, entries computed]} since it was loaded."""
    counts: dict[str, list[int]] = {}
    for scorer in metrics.scorers:
        for kind, section in getattr(scorer, "caches", {}).items():
            hits, misses = counts.get(kind, (0, 0))
            counts[kind] = [hits + section.hits, misses + section.misses]
    return counts


@contextmanager
def _answers_kept(metrics: Metrics, path: Path) -> Iterator[None]:
    """Has the judges that are asked keep their answers in a file, unless they keep them elsewhere."""
    judges: list[Any] = [judge for scorer in metrics.scorers for judge in getattr(scorer, "judges", ())]
    keeping = [judge for judge in judges if getattr(judge, "cache", path) is None and hasattr(judge, "close")]
    for judge in keeping:
        judge.cache = path
        judge.close()  # it opens the file at the next question
    try:
        yield
    finally:
        for judge in keeping:
            judge.cache = None
            judge.close()
