"""The report of a bench: tables of agreement, of raters, failures and published figures, and how to read them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import pandas as pd
from markupsafe import Markup

from reward.metaeval.bench import BenchRow, BenchTable
from reward.metaeval.benchmarks import BenchmarkSpec
from reward.metaeval.benchmarks.items import PAIRS, RATINGS
from reward.metaeval.bootstrap import MEAN
from reward.metaeval.evaluation import Evaluation
from reward.metaeval.published import Compared
from reward.metaeval.raters import failures
from reward.report.plots import BEST, intervals
from reward.report.report import Report
from reward.report.tables import Table, few_images, frame_of_rows, milliseconds, percent

SIGNIFICANT = 0.05
_TIME = "ms/caption"


def bench_report(tables: Sequence[BenchTable], *, command: str, seed: int, resamples: int, references: bool) -> Report:
    """All tables of `run_bench` as a report; its JSON also has all coefficients of each row, and each failure.

    Args:
        tables: of the benchmarks.
        command: as it was typed.
        seed, resamples: of the bootstrap.
        references: whether the metrics were given references.
    """
    shown = [_overview(tables)] if len(tables) > 1 else []
    published: list[tuple[str, str, Compared]] = []
    benchmarks = []
    for table in tables:
        shown += _benchmark_tables(table)
        benchmarks.append(_benchmark_figures(table))
        for row in table.rows:
            published += [(row.metric.label, table.title, figure) for figure in row.published]
    if published:
        shown.append(published_table(published))
    judged_by = dict.fromkeys(table.benchmark.spec.judged_by for table in tables)
    return Report(
        "bench",
        f"Agreement with {' and '.join(judged_by)}",
        command,
        {"seed": seed, "resamples": resamples, "references": references, "benchmarks": benchmarks},
        shown,
        list(_notes(tables, resamples)),
        plots=[(table.title, _plots(table)) for table in tables],
    )


def _benchmark_tables(table: BenchTable) -> list[Table]:
    """The tables of one benchmark: agreement, and if they were asked for one rater and failures."""
    shown = [_agreement(table)]
    if table.raters is not None:
        rows = {}
        for name, estimates in table.raters.agreement.items():
            rows[name] = {column: percent(interval) for column, interval in estimates.items()}
        title = f"{table.title}: tau x 100 with the mean of all raters but one"
        shown.append(Table(title, frame_of_rows(rows)))
    if table.threshold is not None:
        shown.append(_failures(table, table.threshold))
    return shown


def _benchmark_figures(table: BenchTable) -> dict[str, Any]:
    """What JSON has of a benchmark beside its tables: all coefficients as fractions, and each failure."""
    details = {}
    for row in table.rows:
        if row.evaluation is not None:
            details[row.metric.label] = row.evaluation.details
    figures: dict[str, Any] = {"title": table.title, "data": table.data, "details": details}
    if table.threshold is not None:
        figures["failures"] = failures(table.benchmark, _scores(table), table.threshold)
    return figures


def _overview(tables: Sequence[BenchTable]) -> Table:
    """All benchmarks side by side, each by its headline column."""
    # All tables have the same metrics in the same order, also those that a benchmark leaves out.
    titles = [table.title for table in tables]
    heads = []
    for title, table in zip(titles, tables, strict=True):
        file = f" in {table.data}" if titles.count(title) > 1 else ""
        heads.append(f"{title}{file} ({table.headline or '-'})")
    rows = []
    for rows_of_metric in zip(*(table.rows for table in tables), strict=True):
        estimates = []
        seconds = []
        for table, row in zip(tables, rows_of_metric, strict=True):
            estimates.append(percent(row.estimates.get(table.headline)))
            # Scores that were kept by an earlier run have no time.
            if row.run is not None and not math.isnan(row.run.seconds):
                seconds.append(row.run.seconds)
        time = milliseconds(fmean(seconds)) if seconds else None
        rows.append([rows_of_metric[0].metric.label, *estimates, time])
    best_of = {}
    for head, table in zip(heads, tables, strict=True):
        if table.best is not None:
            best_of[head] = table.rows.index(table.best)
    frame = pd.DataFrame(rows, columns=["", *heads, _TIME], dtype=object)
    return Table("All benchmarks, x 100", frame, best_of=best_of, forms={_TIME: ",g"})


def _agreement(table: BenchTable) -> Table:
    """The columns of a benchmark, numbers of scored items and errors, time, and p against one row."""
    statistic = "no figures"
    p_column = f"p ({table.headline or '-'})"
    rows = []
    for row in table.rows:
        scored = 0
        if row.evaluation is not None:
            statistic = f"{row.evaluation.statistic} x 100"
            scored = row.evaluation.scored
        estimates = [percent(row.estimates.get(column)) for column in table.columns]
        counts = [None, None] if row.left_out else [scored, row.errors]
        time = None if row.run is None else milliseconds(row.run.seconds)
        # The row that the others are tested against has no p. It is the best one, unless --against names another.
        p: float | str | None = row.p_adjusted
        if row is table.against:
            p = "best" if row is table.best else "against"
        rows.append([row.metric.label, *estimates, *counts, time, p])
    if table.benchmark.spec.statistics:  # of one's own ratings, each in a column
        statistic = "agreement x 100"
    heads = ["", *table.columns, "scored", "errors", _TIME, p_column]
    best = None if table.best is None else table.rows.index(table.best)
    title = f"{table.title}: {statistic}, {len(table.benchmark.rows)} items"
    frame = pd.DataFrame(rows, columns=heads, dtype=object)
    return Table(title, frame, best, forms={_TIME: ",g", p_column: ".2g"})


def _failures(table: BenchTable, threshold: float) -> Table:
    """Numbers and shares of scores far from the mean rating, by aspect and over all of them."""
    scores = _scores(table)
    distant = _counts(failures(table.benchmark, scores, threshold))
    totals = _counts(failures(table.benchmark, scores))
    rows = {}
    for label in scores:
        row = {}
        for column in (*table.benchmark.aspects, "all"):
            count, total = distant[label, column], totals[label, column]
            row[column] = f"{count} ({100 * count / total:.1f} %)" if total else None
        rows[label] = row
    title = f"{table.title}: scores at least {threshold:g} away from the mean rating"
    return Table(title, frame_of_rows(rows))


def _counts(scores: Sequence[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many scores of `failures` a metric has, by (label, aspect or "all")."""
    counts: Counter[tuple[str, str]] = Counter()
    for score in scores:
        counts[score["row"], score["aspect"]] += 1
        counts[score["row"], "all"] += 1
    return counts


def published_table(figures: Iterable[tuple[str, str, Compared]]) -> Table:
    """Figures beside the published ones, of (metric, benchmark, both)."""
    rows = []
    for metric, benchmark, compared in figures:
        figure = compared.published
        column = "" if figure.column == "overall" else f", {figure.column}"
        numbers = (compared.value, figure.figure, compared.difference)
        rows.append((metric, benchmark + column, figure.coefficient, *numbers, compared.verdict, figure.source))
    heads = ["", "on", "coefficient", "here", "published", "difference", "verdict", "source"]
    frame = pd.DataFrame(rows, columns=heads)
    return Table("Beside published figures, x 100", frame, forms={"difference": "+.1f"})


def _plots(table: BenchTable) -> dict[str, Callable[[], Markup]]:
    """A plot of each column."""
    colours = {row.metric.label: BEST for row in table.rows if row is table.best}
    plots: dict[str, Callable[[], Markup]] = {}
    for column in table.columns:
        rows = {row.metric.label: row.estimates[column] for row in table.rows if column in row.estimates}
        plots[column] = partial(intervals, rows, colours=colours, scale=100)
    return plots


def _notes(tables: Sequence[BenchTable], resamples: int) -> Iterator[str]:
    """How to read the tables, and what went wrong."""
    yield f"[low, high]: 95 % intervals of {resamples} bootstrap resamples of whole images."
    # A dict, as a set in order: one sentence for all tables that are tested against the same row.
    against: dict[str, None] = {}
    for table in tables:
        if table.against is not None and table.was_named:
            against[table.against.metric.label] = None
        elif table.against is not None:
            against["the best row, which is chosen on these data and so is flattered,"] = None
    for row_name in against:
        yield f"p: of the difference from {row_name} in the same resamples, by Holm's correction for the rows."
    for table in tables:
        if table.benchmark.provenance:
            yield f"{table.title}: {table.benchmark.provenance}."
        evaluations = [row.evaluation for row in table.rows if row.evaluation is not None]
        if evaluations:
            yield f"{table.title}: {'; '.join(_rules(table, evaluations[0]))}."
            for doubt in _doubts(table, evaluations, resamples):
                yield f"{table.title}: {doubt}"
        if table.no_raters:
            yield f"{table.title}: the row of a single rater is left out, because {table.no_raters}"
    devices = sorted({row.run.device for table in tables for row in table.rows if row.run is not None})
    if devices:
        yield f"Time per caption: of scoring on {' and '.join(devices)}, without loading the model."
    for table in tables:
        for row in table.rows:
            for problem in _row_problems(table, row):
                yield f"{row.metric.label} on {table.title}: {problem}"


def _rules(table: BenchTable, evaluation: Evaluation) -> Iterator[str]:
    """How ratings, aspects and ties count in a table."""
    spec = table.benchmark.spec
    if spec.judged_by != BenchmarkSpec.judged_by:
        yield f"{spec.judged_by}, no people were asked"
    if spec.form == RATINGS and spec.judgments == "mean":
        yield "the mean of a caption's ratings counts"
    elif spec.form == RATINGS:
        yield "every rating of a caption counts by itself, with its score repeated"
    if MEAN in evaluation.estimates and spec.form != PAIRS:
        yield "a metric with one score has it compared with each aspect"
    if table.benchmark.draws:
        yield f"the mean over {table.benchmark.draws} draws of {spec.drawn_references} references"
    if len(evaluation.estimates) > 1:
        yield f"rows are ranked by {evaluation.headline!r}"
    yield evaluation.tie_rule


def _doubts(table: BenchTable, evaluations: Sequence[Evaluation], resamples: int) -> Iterator[str]:
    """Reasons to trust a table less."""
    # The smallest p of R resamples is 2 / (R + 1), and Holm's correction multiplies it by the number of tests.
    tests = sum(row.p is not None for row in table.rows)
    if 2 * tests / (1 + resamples) >= SIGNIFICANT:
        enough = math.ceil(4 * tests / SIGNIFICANT)
        yield f"{resamples} resamples are too few for any p of {tests} below {SIGNIFICANT}: {enough} do"
    if len({evaluation.scored for evaluation in evaluations}) > 1:
        yield "rows that differ in 'scored' are computed on different items, and p on the items that both scored."
    for warning in few_images(min(evaluation.images for evaluation in evaluations)):
        yield warning[0].lower() + warning[1:]


def _row_problems(table: BenchTable, row: BenchRow) -> Iterator[str]:
    """What went wrong with a row, or is to be known of it."""
    questions = int(table.benchmark.rows["question"].notna().sum())
    if row.evaluation is not None and math.isnan(row.evaluation.estimates[table.headline].value):
        yield "no figures, because all scores or all ratings are equal"
    if row.left_out:
        yield f"left out, because {row.problem}"
    elif row.errors:
        yield f"{row.errors} of {row.captions} captions not scored; the first: {row.problem}"
    if row.run is None:
        return
    if questions and not row.metric.spec.reads_questions:
        yield f"it does not read the questions of {questions} items, and takes answers for captions"
    if row.run.truncated:
        yield f"{row.run.truncated} captions had text cut to fit the model"
    if row.run.prompt:
        yield f"prompt {row.run.prompt}"


def _scores(table: BenchTable) -> dict[str, Any]:
    """{metric: its scores}, of the rows that have any."""
    return {row.metric.label: row.scores for row in table.rows if row.scores is not None}
