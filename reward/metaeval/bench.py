"""Agreement of metrics and published scores with human judgments: one table a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reward.errors import DataError, MissingExtraError
from reward.metaeval.bench_table import BenchRow, BenchTable
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.evaluation import compare, evaluate, holm
from reward.metaeval.people import check_people, single_rater
from reward.metaeval.scoring import check_needs, score_benchmark
from reward.registry import MetricSource, list_metrics, load_scorer, metric_spec

__all__ = [
    "column_scores",
    "default_metrics",
    "run_bench",
    "score_row",
    "title_of",
]


def run_bench(
    benchmarks: Sequence[tuple[Benchmark, str | None]],
    metrics: Sequence[MetricSource],
    *,
    references: bool = True,
    raters: bool = False,
    threshold: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
    batch_size: int | None = None,
    progress: bool = False,
    device: str | None = None,
    dtype: str | None = None,
) -> list[BenchTable]:
    """Scores and evaluates every metric on every benchmark, and tests each against the best one.

    If a benchmark lacks what a metric needs, such as references, the row of the metric says so.

    Args:
        benchmarks: benchmarks, each with the path that it was read from.
        metrics: metrics and columns.
        references: False withholds the references from the metrics.
        raters, threshold: for `single_rater` (if wanted) and `failures` of `reward.metaeval.people`.
        resamples, seed: of the bootstrap and the permutations.
        say: called with a line about each run.
        batch_size, progress, device, dtype: see `score_benchmark`.

    Raises:
        DataError: a metric needs something that none of the benchmarks has, or `raters` or `threshold` that one lacks.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> metrics = [MetricSource("unigram"), MetricSource("length")]
        >>> [table] = run_bench([(load_benchmark("scenes", limit=30), None)], metrics)
        >>> table.headline in table.columns, table.best.metric.name in ("unigram", "length")
        (True, True)
    """
    every = [benchmark for benchmark, _ in benchmarks]
    for benchmark in every:
        check_people(benchmark, raters=raters, threshold=threshold)
    problems = {metric: _missing(metric, every, references) for metric in metrics}
    scoring = {"batch_size": batch_size, "progress": progress, "device": device, "dtype": dtype}
    tables = []
    for number, (benchmark, data) in enumerate(benchmarks):
        rows = []
        for metric in metrics:
            row = BenchRow(metric, len(benchmark.items) * benchmark.captions_per_item)
            rows.append(row)
            if number in problems[metric]:
                row.problem, row.left_out = problems[metric][number], True
                continue
            try:
                score_row(row, benchmark, references=references, say=say, **scoring)
            except DataError as error:  # such as references that CIDEr cannot be fitted on; the other rows are kept
                row.errors, row.problem = row.captions, str(error)
            if row.scores is not None:
                try:
                    row.evaluation = evaluate(benchmark, row.scores, resamples=resamples, seed=seed)
                except ValueError as error:  # too few scores for this statistic
                    row.scores, row.problem = None, row.problem or str(error)
        table = BenchTable(benchmark, data, rows, threshold=threshold)
        _rank(table, resamples, seed)
        if raters:
            table.raters = single_rater(table, resamples=resamples, seed=seed)
        tables.append(table)
    return tables


def column_scores(benchmark: Benchmark, name: str) -> np.ndarray:
    """Scores (N, K) that came with the data.

    Raises:
        DataError: no such column, or not in every item; the message lists the columns.
    """
    if name not in benchmark.column_names:
        known = ", ".join(benchmark.column_names) or "none"
        having = sum(name in item.columns for item in benchmark.items)
        some = f" ({having} of {len(benchmark.items)} rows have it, and all must)" if having else ""
        if having == len(benchmark.items):
            some = " with a number in it: all rows have null there"
        known += ". Ratings are named by --rating-column" if benchmark.spec.statistics else ""
        raise DataError(f"{benchmark.spec.name} has no score column {name!r}{some}; its score columns: {known}")
    rows: list[Any] = [item.columns[name] for item in benchmark.items]
    return np.array(rows, dtype=np.float64).reshape(len(rows), benchmark.captions_per_item)


def title_of(benchmark: Benchmark) -> str:
    """Name of a benchmark with its part."""
    return f"{benchmark.spec.title} ({benchmark.part})" if benchmark.part else benchmark.spec.title


def default_metrics(
    benchmarks: Sequence[Benchmark], *, references: bool = True
) -> tuple[list[MetricSource], list[str]]:
    """Metrics that can score these benchmarks with what ships with the package, and why the others are left out.

    Raises:
        DataError: there is none.
    """
    metrics: list[MetricSource] = []
    reasons: dict[str, list[str]] = {}  # metrics left out, by why
    for name in list_metrics():
        spec = metric_spec(name)
        if not spec.has_embedded and not spec.needs_corpus:  # the corpus is the benchmark's own references
            reasons.setdefault("no checkpoint ships with this package; give NAME=CHECKPOINT", []).append(name)
            continue
        try:
            _missing(MetricSource(name), benchmarks, references)
            if spec.extra is not None:
                load_scorer(name)  # says what is not installed
            metrics.append(MetricSource(name))
        except (DataError, MissingExtraError) as error:
            reasons.setdefault(str(error).removeprefix(f"metric {name!r} "), []).append(name)
    notes = [f"left out: {', '.join(names)} ({reason})" for reason, names in reasons.items()]
    if not metrics:
        raise DataError("no metric can score these data as they are; " + "; ".join(notes))
    return metrics, notes


def _missing(metric: MetricSource, benchmarks: Sequence[Benchmark], references: bool) -> dict[int, str]:
    """{number of a benchmark: what it lacks that the metric needs}, found before anything is scored.

    Raises:
        DataError: all of them lack it.
    """
    problems: dict[int, str] = {}
    last: DataError | None = None
    for number, benchmark in enumerate(benchmarks):
        try:
            if metric.is_column:
                column_scores(benchmark, metric.name)
            elif metric.source == "embedded":  # another checkpoint may have other needs
                check_needs(metric_spec(metric.name), benchmark, benchmark.samples(references=references))
        except DataError as error:
            problems[number], last = str(error), error
    if last is not None and len(problems) == len(benchmarks):
        raise last
    return problems


def score_row(
    row: BenchRow, benchmark: Benchmark, *, say: Callable[[str], None] = lambda line: None, **options: Any
) -> None:
    """Fills in the scores of a row; `options` are those of `score_benchmark`."""
    metric = row.metric
    if metric.is_column:
        row.scores = column_scores(benchmark, metric.name)
        return
    say(f"{metric.label} on {title_of(benchmark)}, {row.captions} captions")
    row.run = score_benchmark(
        benchmark, metric.name, metric.source, revision=metric.revision, **dict(metric.options), **options
    )
    row.errors, row.problem = len(row.run.errors), next(iter(row.run.errors.values()), "")
    if len(row.run.errors) < row.captions:
        row.scores = row.run.for_aspects(benchmark)


def _rank(table: BenchTable, permutations: int, seed: int) -> None:
    """Sets columns, headline and the best row, and tests the other rows against it."""
    evaluations = {row.metric.label: row.evaluation for row in table.rows if row.evaluation is not None}
    if not evaluations:
        return
    table.columns = tuple(dict.fromkeys(name for each in evaluations.values() for name in each.estimates))
    table.headline = next(iter(evaluations.values())).headline
    values = {label: each.estimates[table.headline].value for label, each in evaluations.items()}
    best = max(values, key=lambda label: -np.inf if np.isnan(values[label]) else values[label])
    rows = {row.metric.label: row for row in table.rows}
    table.best = rows[best]
    p_values: dict[str, float] = {}
    for label in evaluations:
        if label == best or np.isnan(values[label]):
            continue
        try:
            compared = compare(
                *(table.benchmark, table.best.scores, rows[label].scores),
                resamples=1,
                permutations=permutations,
                seed=seed,
            )
        except ValueError:  # no item that both have scored
            continue
        p_values[label] = compared.p_values[compared.headline]
    for label, adjusted in holm(p_values).items():
        rows[label].p, rows[label].p_adjusted = p_values[label], adjusted
    if table.benchmark.spec.statistics:  # one's own ratings: best first, without a figure last
        table.rows.sort(key=lambda row: np.nan_to_num(-values.get(row.metric.label, np.nan), nan=np.inf))
