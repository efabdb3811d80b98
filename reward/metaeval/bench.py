"""Agreement of metrics and published scores with human judgments: one table a benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reward.errors import DataError, MissingExtraError
from reward.metaeval.benchmark_scores import BenchmarkScores, check_needs, score_benchmark
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.bootstrap import Interval
from reward.metaeval.difference import Difference, compare, holm
from reward.metaeval.evaluation import Evaluation, evaluate
from reward.metaeval.published import Compared, compare_published, is_published, published_figures
from reward.metaeval.raters import Comparison, check_range, single_rater, why_no_raters
from reward.registry import MetricSource, list_metrics, load_scorer, metric_spec


@dataclass(eq=False)
class BenchRow:
    """A metric or a score column on one benchmark.

    Args:
        metric: the metric or score column.
        captions: number of captions of the benchmark.
        scores: (N, K) or {aspect: (N, K)}; None if nothing could be scored.
        evaluation: agreement with the judgments; None if nothing could be scored.
        errors: number of captions without a score.
        problem: the first error, or why there is no evaluation.
        left_out: whether the benchmark lacks what the metric needs: the column, or references.
        run: of a metric, what `score_benchmark` gave.
        p: of the difference from `BenchTable.against` in the headline column; None for that row itself.
        p_adjusted: p with Holm's correction for the number of rows.
        published: its values beside published figures, where metric, checkpoint and benchmark are those.
    """

    metric: MetricSource
    captions: int
    scores: Any = None
    evaluation: Evaluation | None = None
    errors: int = 0
    problem: str = ""
    left_out: bool = False
    run: BenchmarkScores | None = None
    p: float | None = None
    p_adjusted: float | None = None
    published: tuple[Compared, ...] = ()

    @property
    def estimates(self) -> Mapping[str, Interval]:
        """{column: agreement with the judgments}; empty if nothing could be scored."""
        return {} if self.evaluation is None else self.evaluation.estimates


@dataclass(eq=False)
class BenchTable:
    """All rows on one benchmark.

    Args:
        benchmark: the benchmark.
        data: its path as it was given.
        rows: one a metric, in the order given; of one's own ratings the best first.
        columns: aspects, categories, or parts of a score, and their mean.
        headline: the column by which rows are ranked.
        best: the row with the largest value in it; None if no row has one.
        against, was_named: the row that the others are tested against, and whether it was named; else it is the best.
        raters, no_raters: one rater against the others, or why there is none; None and empty if it was not asked for.
        threshold: distance of failures; None without them.
    """

    benchmark: Benchmark
    data: str | None
    rows: list[BenchRow]
    columns: tuple[str, ...] = ()
    headline: str = ""
    best: BenchRow | None = None
    against: BenchRow | None = None
    was_named: bool = False
    raters: Comparison | None = None
    no_raters: str = ""
    threshold: float | None = None

    @property
    def title(self) -> str:
        """Name of the benchmark with its part."""
        return title_of(self.benchmark)


def run_bench(
    benchmarks: Sequence[tuple[Benchmark, str | None]],
    metrics: Sequence[MetricSource],
    *,
    references: bool = True,
    against: str | None = None,
    raters: bool = False,
    threshold: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
    **scoring: Any,
) -> list[BenchTable]:
    """Scores and evaluates every metric on every benchmark, and tests each against one of them.

    If a benchmark lacks what a metric needs, such as references, the row of the metric says so.

    Args:
        benchmarks: benchmarks, each with the path that it was read from.
        metrics: metrics and columns.
        references: False withholds the references from the metrics.
        against: name or label of the row that the others are tested against; None is the best of each table. The best
            is chosen on the data that it is tested on, so that its lead is flattered.
        raters, threshold: for `single_rater` (if wanted) and `failures` of `reward.metaeval.raters`.
        resamples, seed: of the bootstrap.
        say: called with a line about each run.
        scoring: batch_size, progress, device, dtype and folder of `score_benchmark`.

    Raises:
        DataError: a metric needs something that none of the benchmarks has, no row is named `against`, or `threshold`
            needs other ratings.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> metrics = [MetricSource("unigram"), MetricSource("length")]
        >>> [table] = run_bench([(load_benchmark("scenes", limit=30), None)], metrics, resamples=100)
        >>> table.headline in table.columns, table.best.metric.name in ("unigram", "length")
        (True, True)
    """
    loaded = [benchmark for benchmark, _ in benchmarks]
    if threshold is not None:
        for benchmark in loaded:
            check_range(benchmark)
    if against is not None and not any(against in (metric.name, metric.label) for metric in metrics):
        labels = ", ".join(metric.label for metric in metrics)
        raise DataError(f"no row is named {against!r}; the rows: {labels}")
    # What a benchmark lacks is told before anything is scored, which may take hours.
    problems = {metric: _find_missing(metric, loaded, references) for metric in metrics}
    drawn = {"resamples": resamples, "seed": seed}
    tables = []
    for number, (benchmark, data) in enumerate(benchmarks):
        rows = []
        for metric in metrics:
            row = BenchRow(metric, int(np.prod(benchmark.shape)))
            rows.append(row)
            if number in problems[metric]:
                row.problem, row.left_out = problems[metric][number], True
                continue
            try:
                score_row(row, benchmark, references=references, say=say, **scoring)
            except DataError as error:  # such as references that CIDEr cannot be fitted on; the other rows stay
                row.errors, row.problem = row.captions, str(error)
            if row.scores is None:
                continue
            try:
                row.evaluation = evaluate(benchmark, row.scores, **drawn)
            except ValueError as error:  # too few scores for this statistic
                row.scores, row.problem = None, row.problem or str(error)
                continue
            figures = [figure for figure in published_figures() if is_published(metric, figure)]
            row.published = compare_published(benchmark, row.evaluation, figures, references=references)
        table = BenchTable(benchmark, data, rows, was_named=against is not None, threshold=threshold)
        _rank(table, against, **drawn)
        if raters:
            table.no_raters = why_no_raters(benchmark)
            if not table.no_raters:
                scores = {row.metric.label: row.scores for row in rows if row.scores is not None}
                table.raters = single_rater(benchmark, scores, **drawn)
        tables.append(table)
    return tables


def column_scores(benchmark: Benchmark, name: str) -> np.ndarray:
    """Scores (N, K) that came with the data."""
    if name not in benchmark.columns:
        names = ", ".join(benchmark.columns) or "none"
        hint = ". Ratings are named by --rating-column" if benchmark.spec.statistics else ""
        raise DataError(f"{benchmark.spec.name} has no score column {name!r}; its score columns: {names}{hint}")
    return benchmark.columns[name]


def title_of(benchmark: Benchmark) -> str:
    """Name of a benchmark with its part."""
    return f"{benchmark.spec.title} ({benchmark.part})" if benchmark.part else benchmark.spec.title


def default_metrics(
    benchmarks: Sequence[Benchmark], *, references: bool = True
) -> tuple[list[MetricSource], list[str]]:
    """Metrics that can score these benchmarks with what ships with the package, and why the others are left out."""
    metrics: list[MetricSource] = []
    reasons: dict[str, list[str]] = {}  # metrics left out, by why
    for name in list_metrics():
        spec = metric_spec(name)
        if not spec.has_embedded and not spec.needs_corpus:  # the corpus is the benchmark's own references
            reasons.setdefault("no checkpoint ships with this package; give NAME=CHECKPOINT", []).append(name)
            continue
        try:
            _find_missing(MetricSource(name), benchmarks, references)
            if spec.extra is not None:
                load_scorer(name)  # says what is not installed
            metrics.append(MetricSource(name))
        except (DataError, MissingExtraError) as error:
            reasons.setdefault(str(error).removeprefix(f"metric {name!r} "), []).append(name)
    notes = [f"left out: {', '.join(names)} ({reason})" for reason, names in reasons.items()]
    if not metrics:
        raise DataError("no metric can score these data as they are; " + "; ".join(notes))
    return metrics, notes


def _find_missing(metric: MetricSource, benchmarks: Sequence[Benchmark], references: bool) -> dict[int, str]:
    """{number of a benchmark: what it lacks that the metric needs}, found before anything is scored.

    Raises:
        DataError: all of them lack it.
    """
    problems: dict[int, DataError] = {}
    for number, benchmark in enumerate(benchmarks):
        try:
            if metric.is_column:
                column_scores(benchmark, metric.name)
            elif metric.source == "embedded":  # another checkpoint may have other needs
                check_needs(metric_spec(metric.name), benchmark, benchmark.samples(references=references))
        except DataError as error:
            problems[number] = error
    if problems and len(problems) == len(benchmarks):
        raise problems[0]
    return {number: str(error) for number, error in problems.items()}


def score_row(
    row: BenchRow, benchmark: Benchmark, *, say: Callable[[str], None] = lambda line: None, **scoring: Any
) -> None:
    """Fills in the scores of a row; `scoring` are options of `score_benchmark`."""
    metric = row.metric
    if metric.is_column:
        row.scores = column_scores(benchmark, metric.name)
        return
    say(f"{metric.label} on {title_of(benchmark)}, {row.captions} captions")
    scoring |= {"revision": metric.revision, **dict(metric.options)}
    row.run = score_benchmark(benchmark, metric.name, metric.source, **scoring)
    row.errors, row.problem = len(row.run.errors), next(iter(row.run.errors.values()), "")
    if row.errors < row.captions:
        row.scores = row.run.for_aspects(benchmark)


def _rank(table: BenchTable, against: str | None, *, resamples: int, seed: int) -> None:
    """Sets columns, headline and the best row, and tests the rows against it or the one that is named."""
    evaluations = [(row, row.evaluation) for row in table.rows if row.evaluation is not None]
    if not evaluations:
        return
    table.headline = evaluations[0][1].headline
    columns: dict[str, None] = {}
    ranked: list[tuple[float, BenchRow, Evaluation]] = []
    for row, evaluation in evaluations:
        columns.update(dict.fromkeys(evaluation.estimates))
        value = evaluation.estimates[table.headline].value
        if math.isnan(value):
            value = -math.inf
        ranked.append((value, row, evaluation))
    table.columns = tuple(columns)
    table.best = max(ranked, key=lambda entry: entry[0])[1]

    # The row that the others are tested against; one that is named may have no evaluation.
    if against is None:
        table.against = table.best
    for row, _ in evaluations:
        if table.against is None and against in (row.metric.name, row.metric.label):
            table.against = row
    p_values: dict[str, float] = {}
    for value, row, evaluation in ranked:
        if table.against is None or row is table.against or value == -math.inf:
            continue
        reference = table.against.evaluation
        assert reference is not None
        # Evaluations of the same items have drawn the same resamples; of others both are computed anew.
        if np.array_equal(reference.counted, evaluation.counted):
            difference = Difference.of(reference, evaluation)
        else:
            try:
                difference = compare(table.benchmark, table.against.scores, row.scores, resamples=resamples, seed=seed)
            except ValueError:  # no item that both have scored
                continue
        row.p = difference.p_values[difference.headline]
        p_values[row.metric.label] = float(np.nan_to_num(row.p, nan=1.0))
    adjusted = holm(p_values)
    for row, _ in evaluations:
        row.p_adjusted = adjusted.get(row.metric.label)
    if table.benchmark.spec.statistics:  # ratings of one's own: best first, without a figure last
        values = {row.metric.label: value for value, row, _ in ranked}
        table.rows.sort(key=lambda row: -values.get(row.metric.label, -math.inf))
