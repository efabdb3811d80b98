"""The report of a bench: tables of agreement, of raters, failures and published figures, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd

from reward.metaeval.bench import BenchRow, BenchTable
from reward.metaeval.benchmarks import BenchmarkSpec
from reward.metaeval.benchmarks.items import PAIRS, RATINGS
from reward.metaeval.bootstrap import MEAN, Interval
from reward.metaeval.evaluation import Evaluation
from reward.metaeval.published import Compared
from reward.metaeval.raters import failures
from reward.report.page import Report
from reward.report.plots import bar_plot
from reward.report.tables import SIGNIFICANT, Grid, column_grid, few_images, interval_grid, milliseconds, percent

# What the JSON of a row has of an evaluation, and where there is none.
_FIGURES: dict[str, Any] = {"estimates": {}, "details": {}, "ties": None, "tie_rule": None, "counts": {}}
_FIGURES |= {"images": 0, "by_category": {}, "scored": 0}


def bench_report(tables: Sequence[BenchTable], *, command: str, seed: int, resamples: int, references: bool) -> Report:
    """All tables of `run_bench` as a report; its pages also have all statistics, and each failure.

    Args:
        tables: of the benchmarks.
        command: as it was typed.
        seed, resamples: of the bootstrap.
        references: whether the metrics were given references.
    """
    sections = [(table.title, _plots(table)) for table in tables]
    figures = {"seed": seed, "resamples": resamples, "references": references}
    judged_by = dict.fromkeys(table.benchmark.spec.judged_by for table in tables)
    return Report(
        "bench",
        f"Agreement with {' and '.join(judged_by)}",
        command,
        {**figures, "benchmarks": [_table_figures(table) for table in tables]},
        _all_grids(tables, with_details=False),
        list(_notes(tables, resamples)),
        page_grids=_all_grids(tables, with_details=True),
        sections=sections,
    )


def _all_grids(tables: Sequence[BenchTable], *, with_details: bool) -> list[Grid]:
    """An overview if there are several benchmarks, then the tables of each, and published figures."""
    grids = []
    if len(tables) > 1:
        grids.append(_overview(tables))
    published: list[tuple[str, str, Compared]] = []
    for table in tables:
        grids.append(_table_grid(table))
        if table.raters is not None:
            agreement = table.raters.agreement
            title = f"{table.title}: tau x 100 with the mean of all raters but one"
            grids.append(interval_grid(title, agreement, next(iter(agreement.values()))))
        if table.threshold is not None:
            grids += _failure_grids(table, table.threshold, listed=with_details)
        if with_details:
            grids += _statistics_grid(table)
        for row in table.rows:
            published += [(row.metric.label, table.title, figure) for figure in row.published]
    if published:
        grids.append(published_grid(published))
    return grids


def _overview(tables: Sequence[BenchTable]) -> Grid:
    """All benchmarks side by side, each by its headline column."""
    rows = []
    for number, first in enumerate(tables[0].rows):
        cells = [first.metric.label]
        seconds = []
        for table in tables:
            row = table.rows[number]
            cell = percent(row.estimates.get(table.headline))
            if row is table.best:
                cell += " best"
            cells.append(cell + _star(row))
            if row.run is not None and not math.isnan(row.run.seconds):
                seconds.append(row.run.seconds)
        cells.append(milliseconds(sum(seconds) / len(seconds)) if seconds else "-")
        rows.append(cells)
    heads = ("", *(f"{table.title} ({table.headline or '-'})" for table in tables), "ms/caption")
    return Grid("All benchmarks, x 100", heads, rows)


def _table_grid(table: BenchTable) -> Grid:
    """The table of one benchmark: its columns, numbers of scored items and errors, time, and p against one row."""
    statistic = "no figures"
    rows = []
    for row in table.rows:
        scored = 0
        if row.evaluation is not None:
            statistic = f"{row.evaluation.statistic} x 100"
            scored = row.evaluation.scored
        cells = [row.metric.label, *(percent(row.estimates.get(column)) for column in table.columns)]
        cells += ["-", "-"] if row.left_out else [str(scored), str(row.errors)]
        cells.append("-" if row.run is None else milliseconds(row.run.seconds))
        if row is table.best and row is table.against:
            cells.append("best")
        elif row is table.against:
            cells.append("against")
        elif row.p_adjusted is None:
            cells.append("-")
        else:
            cells.append(f"{row.p_adjusted:.2g}{_star(row)}")
        rows.append(cells)
    if table.benchmark.spec.statistics:  # of one's own ratings, each in a column
        statistic = "agreement x 100"
    p = f"p ({table.headline})" if table.headline else "p"
    heads = ["", *table.columns, "scored", "errors", "ms/caption", p]
    best = None if table.best is None else table.rows.index(table.best)
    return Grid(f"{table.title}: {statistic}, {len(table.benchmark.rows)} items", heads, rows, best)


def _star(row: BenchRow) -> str:
    """The mark of a significant difference."""
    return " *" if row.p_adjusted is not None and row.p_adjusted < SIGNIFICANT else ""


def _statistics_grid(table: BenchTable) -> list[Grid]:
    """All statistics of each aspect, or of all pairs together; none if there is only one statistic."""
    columns: dict[str, dict[str, str]] = {}
    aspects = list(table.benchmark.aspects)
    for row in table.rows:
        if row.evaluation is None:
            continue
        details = row.evaluation.details
        aspects = aspects or list(details)[-1:]
        for aspect in aspects:
            for statistic, value in details[aspect].items():
                name = statistic.replace("_", "-")
                head = f"{aspect} {name}" if len(aspects) > 1 else name
                columns.setdefault(head, {})[row.metric.label] = f"{100 * value:.1f}"
    if len(columns) <= len(aspects):
        return []
    whole = "" if table.benchmark.aspects else f" of {aspects[0]}"
    return [column_grid(f"{table.title}: all statistics{whole} x 100", columns)]


def _failure_grids(table: BenchTable, threshold: float, *, listed: bool) -> list[Grid]:
    """Numbers and shares of scores far from the mean rating, and with `listed` each, for people to sort into kinds."""
    scores = _scores(table)
    facts = ["row", "aspect", "image", "rating", "score", "candidate"]
    distant = pd.DataFrame(failures(table.benchmark, scores, threshold), columns=facts)
    scored = pd.DataFrame(failures(table.benchmark, scores), columns=facts)
    columns: dict[str, dict[str, str]] = {}
    for column in (*table.benchmark.aspects, "all"):
        counts = distant.loc[distant["aspect"].eq(column) | (column == "all"), "row"].value_counts()
        totals = scored.loc[scored["aspect"].eq(column) | (column == "all"), "row"].value_counts()
        columns[column] = dict.fromkeys(scores, "-")
        for label, total in totals.items():
            count = counts.get(label, 0)
            columns[column][str(label)] = f"{count} ({100 * count / total:.1f} %)"
    heading = f"{table.title}: scores at least {threshold:g} away from the mean rating"
    grids = [column_grid(heading, columns)]
    if listed:
        for name in ("rating", "score"):
            distant[name] = distant[name].map("{:.2f}".format)
        grids.append(Grid(f"{heading}, each", facts, distant.to_numpy().tolist()))
    return grids


def published_grid(figures: Iterable[tuple[str, str, Compared]]) -> Grid:
    """A table of figures beside the published ones, of (metric, benchmark, both)."""
    rows = []
    for metric, benchmark, compared in figures:
        figure = compared.published
        column = "" if figure.column == "overall" else f", {figure.column}"
        numbers = (f"{compared.value:.1f}", f"{figure.figure:.1f}", f"{compared.difference:+.1f}")
        rows.append((metric, benchmark + column, figure.coefficient, *numbers, compared.verdict, figure.source))
    heads = ("", "on", "coefficient", "here", "published", "difference", "verdict", "source")
    return Grid("Beside published figures, x 100", heads, rows)


def _plots(table: BenchTable) -> dict[str, Callable[[], str]]:
    """A bar plot of each column."""
    bars: dict[str, dict[str, Interval]] = {column: {} for column in table.columns}
    for row in table.rows:
        for column, estimate in row.estimates.items():
            bars[column][row.metric.label] = estimate
    return {column: partial(bar_plot, rows, best=_label(table.best)) for column, rows in bars.items()}


def _notes(tables: Sequence[BenchTable], resamples: int) -> Iterator[str]:
    """How to read the tables, and what went wrong."""
    yield f"[low, high]: 95 % intervals of {resamples} bootstrap resamples of whole images."
    against: dict[str, None] = {}
    for table in tables:
        if table.against is not None and table.was_named:
            against[table.against.metric.label] = None
        elif table.against is not None:
            against["the best row, which is chosen on these data and so is flattered,"] = None
    for row_name in against:
        holm = f"in the same resamples, by Holm's correction for the rows; * is below {SIGNIFICANT}."
        yield f"p: of the difference from {row_name} {holm}"
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
    if MEAN in evaluation.estimates and spec.form == PAIRS:
        yield f"{MEAN!r} is the mean over the categories"
    elif MEAN in evaluation.estimates:
        mean = f"{MEAN!r} is the mean of {evaluation.statistic} over the aspects"
        yield f"{mean}; a metric with one score has it compared with each of them"
    if table.benchmark.draws:
        yield f"the mean over {table.benchmark.draws} draws of {spec.drawn} references"
    if len(evaluation.estimates) > 1:
        yield f"rows are ranked by {evaluation.headline!r}"
    yield evaluation.tie_rule


def _doubts(table: BenchTable, evaluations: Sequence[Evaluation], resamples: int) -> Iterator[str]:
    """Reasons to trust a table less."""
    tests = sum(row.p is not None for row in table.rows)
    if 2 * tests / (1 + resamples) >= SIGNIFICANT:
        enough = math.ceil(4 * tests / SIGNIFICANT)
        yield f"{resamples} resamples are too few for any p of {tests} below {SIGNIFICANT}: {enough} do"
    if len({evaluation.scored for evaluation in evaluations}) > 1:
        yield "rows that differ in 'scored' are computed on different items, and p on the items that both scored."
    warning = few_images(min(evaluation.images for evaluation in evaluations))
    if warning:
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


def _table_figures(table: BenchTable) -> dict[str, Any]:
    """A table for JSON; estimates are fractions, not percent."""
    benchmark = table.benchmark
    figures: dict[str, Any] = {
        "name": benchmark.spec.name,
        "title": benchmark.spec.title,
        "part": benchmark.part,
        "data": table.data,
        "ratings": benchmark.provenance or None,
        "items": len(benchmark.rows),
        "captions_per_item": benchmark.shape[1],
        "statistic": benchmark.spec.statistic,
        "columns": list(table.columns),
        "headline": table.headline,
        "best": _label(table.best),
        "against": _label(table.against),
        "reference_draws": benchmark.draws,
        "rows": [_row_figures(row) for row in table.rows],
    }
    if table.raters is not None:
        figures["raters"] = table.raters.agreement
    if table.no_raters:
        figures["no_raters"] = table.no_raters
    if table.threshold is not None:
        figures["failures"] = failures(benchmark, _scores(table), table.threshold)
    return figures


def _row_figures(row: BenchRow) -> dict[str, Any]:
    evaluation = row.evaluation
    figures = _FIGURES if evaluation is None else {name: getattr(evaluation, name) for name in _FIGURES}
    figures = {
        "name": row.metric.name,
        "label": row.metric.label,
        "kind": "column" if row.metric.is_column else "metric",
        **figures,
        "by_category": {name: category.estimates for name, category in figures["by_category"].items()},
        "captions": row.captions,
        "errors": row.errors,
        "first_error": row.problem or None,
        "left_out": row.left_out,
        "p": row.p,
        "p_adjusted": row.p_adjusted,
    }
    if row.published:
        figures["published"] = [compared.to_json() for compared in row.published]
    if row.run is not None:
        figures |= {"source": row.metric.source, "revision": row.metric.revision, "truncated": row.run.truncated}
        figures |= {"seconds_per_caption": row.run.seconds, "devices": [row.run.device]}
        figures["prompt"] = row.run.prompt or None
    return figures


def _label(row: BenchRow | None) -> str | None:
    return None if row is None else row.metric.label


def _scores(table: BenchTable) -> dict[str, Any]:
    """{metric: its scores}, of the rows that have any."""
    return {row.metric.label: row.scores for row in table.rows if row.scores is not None}
