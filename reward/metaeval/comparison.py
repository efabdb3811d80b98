"""Two metrics on one benchmark: their difference in every column, and the result in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reward.errors import DataError
from reward.metaeval.bench import score_row, title_of
from reward.metaeval.bench_table import BenchRow
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.bootstrap import Interval
from reward.metaeval.evaluation import Difference, compare
from reward.metaeval.report import FEW_IMAGES, SIGNIFICANT, Grid, few_images, percent, plain, star, versions
from reward.metric_source import MetricSource

__all__ = ["MetricComparison", "compare_on_benchmark"]


@dataclass(frozen=True, eq=False)
class MetricComparison:
    """Two metrics on a benchmark and the test of their difference, as `compare_on_benchmark` returns it.

    Args:
        benchmark: on which.
        first, second: the two, with their runs.
        difference: first minus second, column by column.
        resamples: of bootstrap and permutations.
    """

    benchmark: Benchmark
    first: BenchRow
    second: BenchRow
    difference: Difference
    resamples: int

    @property
    def sentence(self) -> str:
        """The result in the headline column, in words."""
        compared, column = self.difference, self.difference.headline
        difference, p = compared.differences[column], compared.p_values[column]
        ahead, behind = self.first.metric.label, self.second.metric.label
        where = f"{title_of(self.benchmark)} ({column})"
        if p < SIGNIFICANT and difference.value < 0:
            ahead, behind = behind, ahead
            difference = Interval(-difference.value, -difference.high, -difference.low)
        figures = f"{percent(difference)} points of {compared.statistic}, p = {p:.2g}, {compared.scored} items"
        if p >= SIGNIFICANT:
            return f"No difference between {ahead} and {behind} can be shown on {where}: {figures}."
        return f"{ahead} agrees better with {self.benchmark.spec.judged_by} than {behind} on {where}: {figures}."

    @property
    def notes(self) -> list[str]:
        """Captions that could not be scored, and reasons to trust the test less."""
        lines = [
            f"{row.metric.label}: {row.errors} of {row.captions} captions not scored; the first: {row.problem}"
            for row in (self.first, self.second)
            if row.errors
        ]
        if 1 / (1 + self.resamples) >= SIGNIFICANT:
            lines.append(f"with {self.resamples} resamples, no p can be below {1 / (1 + self.resamples):.2g}")
        if self.difference.images < FEW_IMAGES:
            lines.append(few_images(self.difference.images))
        return lines

    def grid(self) -> Grid:
        """The table: one row per column of the benchmark."""
        compared = self.difference
        rows = []
        for column, difference in compared.differences.items():
            values = [f"{100 * each[column]:.1f}" for each in (compared.first, compared.second)]
            p = compared.p_values[column]
            rows.append((column, *values, percent(difference), f"{p:.2g}{star(p)}", str(compared.scored)))
        heads = ("", self.first.metric.label, self.second.metric.label, "difference", "p", "items")
        return Grid(f"{title_of(self.benchmark)}: {compared.statistic} x 100", heads, tuple(rows))

    def to_json(self) -> dict[str, Any]:
        """Plain values; estimates are fractions, not percent."""
        compared = self.difference
        parts: dict[str, Mapping[str, Any]] = {"first": compared.first, "second": compared.second}
        parts |= {"difference": compared.differences, "p": compared.p_values}
        result: dict[str, Any] = plain(
            {
                "benchmark": self.benchmark.spec.name,
                "part": self.benchmark.part,
                "first": self.first.metric.label,
                "second": self.second.metric.label,
                "statistic": compared.statistic,
                "headline": compared.headline,
                "columns": {
                    column: {name: part[column] for name, part in parts.items()} for column in compared.p_values
                },
                "scored": compared.scored,
                "items": compared.items,
                "errors": {row.metric.label: row.errors for row in (self.first, self.second)},
                "sentence": self.sentence,
                "resamples": self.resamples,
                "versions": versions(),
            }
        )
        return result


def compare_on_benchmark(
    benchmark: Benchmark,
    first: MetricSource,
    second: MetricSource,
    *,
    resamples: int = 1000,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> MetricComparison:
    """Scores two metrics or score columns and tests their difference.

    Args:
        benchmark: from `load_benchmark`.
        first, second: the two.
        resamples, seed: of the bootstrap and the permutations.
        say: called with a line about each run.
        options: see `score_benchmark`.

    Raises:
        DataError: they are the same, or one cannot be scored.
        ScoringInterrupted: Ctrl-C; the scores so far are stored.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=40)
        >>> comparison = compare_on_benchmark(scenes, MetricSource("unigram"), MetricSource("length"), resamples=99)
        >>> list(comparison.difference.differences)
        ['descriptiveness', 'relevance', 'fluency', 'mean']
    """
    if first == second:
        raise DataError(f"both sides are {first.label}: there is no difference to test")
    captions = len(benchmark.items) * benchmark.captions_per_item
    rows = [BenchRow(metric, captions) for metric in (first, second)]
    for row in rows:
        if row.metric.is_column:
            score_row(row, benchmark)  # first, because a wrong column name should not show after hours of scoring
    for row in rows:
        if not row.metric.is_column:
            score_row(row, benchmark, say=say, **options)
        if row.scores is None:
            raise DataError(f"{row.metric.label} could score no caption; the first: {row.problem}")
    try:
        difference = compare(
            benchmark, rows[0].scores, rows[1].scores, resamples=resamples, permutations=resamples, seed=seed
        )
    except ValueError as error:
        raise DataError(f"{first.label} and {second.label} cannot be compared: {error}") from error
    return MetricComparison(benchmark, rows[0], rows[1], difference, resamples)
