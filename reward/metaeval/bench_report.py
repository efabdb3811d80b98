"""The report of a bench: its tables, notes, plots and JSON values, and the pages that hold them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reward.metaeval.bench import BenchRow, BenchTable
from reward.metaeval.benchmarks import BenchmarkSpec
from reward.metaeval.benchmarks.items import PAIRS, RATINGS
from reward.metaeval.bootstrap import MEAN
from reward.metaeval.people import failure_grids, failures, rater_grid
from reward.metaeval.report import (
    FEW_IMAGES,
    SIGNIFICANT,
    Grid,
    bar_plot,
    check_report,
    few_images,
    milliseconds,
    percent,
    plain,
    star,
    versions,
    write_pages,
)

# What the JSON of a row has without an evaluation.
_NO_FIGURES: dict[str, Any] = {"estimates": {}, "details": {}, "ties": None, "tie_rule": None, "counts": {}}
_NO_FIGURES |= {"images": 0, "by_category": {}, "scored": 0}


def table_grid(table: BenchTable) -> Grid:
    """The table of one benchmark: its columns, numbers of scored items and errors, time, and p against the best row."""
    rows = []
    for row in table.rows:
        evaluation = row.evaluation
        cells = [percent(None if evaluation is None else evaluation.estimates.get(name)) for name in table.columns]
        scored = 0 if evaluation is None else evaluation.scored
        counts = ["-", "-"] if row.left_out else [str(scored), str(row.errors)]
        time = "-" if row.run is None else milliseconds(row.run.seconds)
        rows.append((row.metric.label, *cells, *counts, time, _p(row, table)))
    statistic = "agreement" if table.benchmark.spec.statistics else None
    statistics = [f"{statistic or row.evaluation.statistic} x 100" for row in table.rows if row.evaluation is not None]
    figures = statistics[0] if statistics else "no figures"
    title = f"{table.title}: {figures}, {len(table.benchmark.rows)} items"
    test = f"p ({table.headline})" if table.headline else "p"
    heads = ("", *table.columns, "scored", "errors", "ms/caption", test)
    return Grid(title, heads, tuple(rows), None if table.best is None else table.rows.index(table.best))


def grids(tables: Sequence[BenchTable], *, details: bool = False) -> list[Grid]:
    """All tables: an overview if there are several benchmarks, then each benchmark, with all statistics if wanted."""
    shown = [overview(tables)] if len(tables) > 1 else []
    for table in tables:
        shown.append(table_grid(table))
        shown += [] if table.raters is None else [rater_grid(table.title, table.raters)]
        if table.threshold is not None:
            shown += failure_grids(table.title, table.benchmark, _scores(table), table.threshold, listed=details)
        if details and (other := detail_grid(table)) is not None:
            shown.append(other)
    return shown


def _scores(table: BenchTable) -> dict[str, Any]:
    return {row.metric.label: row.scores for row in table.rows if row.scores is not None}


def detail_grid(table: BenchTable) -> Grid | None:
    """All statistics of each aspect, or of all pairs together; None if there is only one statistic."""
    ranked = [(row.metric.label, row.evaluation.details) for row in table.rows if row.evaluation is not None]
    if not ranked:
        return None
    details = ranked[0][1]
    columns = table.benchmark.aspects or list(details)[-1:]
    kinds = [(name, kind) for name in columns for kind in details[name]]
    if len(kinds) == len(columns):
        return None
    heads = [(f"{name} " if len(columns) > 1 else "") + kind.replace("_", "-") for name, kind in kinds]
    rows = [(label, *(f"{100 * values[name][kind]:.1f}" for name, kind in kinds)) for label, values in ranked]
    whole = "" if table.benchmark.aspects else f" of {columns[0]}"
    return Grid(f"{table.title}: all statistics{whole} x 100", ("", *heads), tuple(rows))


def overview(tables: Sequence[BenchTable]) -> Grid:
    """All benchmarks side by side, each by its headline column."""
    heads = ["", *(f"{table.title} ({table.headline or '-'})" for table in tables), "ms/caption"]
    rows = []
    for number, first in enumerate(tables[0].rows):
        cells = []
        for table in tables:
            row = table.rows[number]
            headline = None if row.evaluation is None else row.evaluation.estimates.get(table.headline)
            mark = "" if table.best is None else {True: " best", False: ""}[row is table.best]
            cells.append(percent(headline) + (mark or star(row.p_adjusted)))
        times = [row.run.seconds for row in (table.rows[number] for table in tables) if row.run is not None]
        known = [seconds for seconds in times if not math.isnan(seconds)]
        rows.append((first.metric.label, *cells, milliseconds(sum(known) / len(known) if known else math.nan)))
    return Grid("All benchmarks, x 100", tuple(heads), tuple(rows))


def notes(tables: Sequence[BenchTable], *, resamples: int) -> Iterator[str]:
    """Remarks below the tables: how to read them, and what went wrong."""
    yield (
        f"[low, high]: 95 % intervals of {resamples} bootstrap resamples of whole images. p: of the difference "
        f"from the best row in the same resamples, by Holm's correction for the rows; * is below {SIGNIFICANT}."
    )
    for table in tables:
        yield from _rules(table)
        yield from _doubts(table, resamples)
    runs = [row.run for table in tables for row in table.rows if row.run is not None]
    devices = sorted({run.device for run in runs})
    if devices:
        yield f"Time per caption: of scoring on {' and '.join(devices)}, without loading the model."
    for table in tables:
        for row in table.rows:
            where = f"{row.metric.label} on {table.title}"
            if row.evaluation is not None and math.isnan(row.evaluation.estimates[table.headline].value):
                yield f"{where}: no figures, because all scores or all ratings are equal"
            if row.left_out:
                yield f"{where}: left out, because {row.problem}"
            elif row.errors:
                yield f"{where}: {row.errors} of {row.captions} captions not scored; the first: {row.problem}"
            answers = int(table.benchmark.rows["question"].notna().sum())
            if row.run is not None and answers and not row.metric.spec.reads_questions:
                yield f"{where}: it does not read the questions of {answers} items, and takes answers for captions"
            if row.run is not None and row.run.truncated:
                yield f"{where}: {row.run.truncated} captions had text cut to fit the model"


def _rules(table: BenchTable) -> Iterator[str]:
    """How ratings, aspects and ties count in a table."""
    evaluation = next((row.evaluation for row in table.rows if row.evaluation is not None), None)
    if evaluation is None:
        return
    spec = table.benchmark.spec
    several = {
        RATINGS: f"is the mean of {evaluation.statistic} over the aspects; a metric with one score has it "
        "compared with each of them",
        PAIRS: "is the mean over the categories",
    }
    rules = []
    if spec.form == RATINGS:
        of_one = "every rating of a caption counts by itself, with its score repeated"
        rules.append("the mean of a caption's ratings counts" if spec.judgments == "mean" else of_one)
    if spec.judged_by != BenchmarkSpec.judged_by:
        rules.insert(0, f"{spec.judged_by}, no people were asked")
    if MEAN in evaluation.estimates and spec.form in several:
        rules.append(f"{MEAN!r} {several[spec.form]}")
    if len(evaluation.estimates) > 1:
        rules.append(f"rows are ranked by {evaluation.headline!r}")
    yield f"{table.title}: {'; '.join([*rules, evaluation.tie_rule])}."


def _doubts(table: BenchTable, resamples: int) -> Iterator[str]:
    """Reasons to trust the intervals and tests of a table less."""
    name = table.title
    evaluations = [row.evaluation for row in table.rows if row.evaluation is not None]
    tests = sum(row.p is not None for row in table.rows)
    least = 2 * tests / (1 + resamples)
    if least >= SIGNIFICANT:
        yield (
            f"{name}: with {resamples} resamples and {tests} rows tested, no p can be below {min(least, 1):.2g}: for "
            f"significance, give --resamples {math.ceil(4 * tests / SIGNIFICANT)} or more."
        )
    if len({each.scored for each in evaluations}) > 1:
        yield (
            f"{name}: rows that differ in 'scored' are computed on different items, and p on the items that both rows "
            "scored."
        )
    images = min((each.images for each in evaluations), default=FEW_IMAGES)
    if images < FEW_IMAGES:
        yield f"{name}: {few_images(images)[0].lower()}{few_images(images)[1:]}"


def to_json(
    tables: Sequence[BenchTable], *, command: str, seed: int, resamples: int, references: bool
) -> dict[str, Any]:
    """All results as plain JSON values; estimates are fractions, not percent, and NaN is null."""
    return {
        "command": command,
        "versions": versions(),
        "seed": seed,
        "resamples": resamples,
        "references": references,
        "benchmarks": [_table_json(table) for table in tables],
    }


def _table_json(table: BenchTable) -> dict[str, Any]:
    benchmark = table.benchmark
    return {
        "name": benchmark.spec.name,
        "title": benchmark.spec.title,
        "part": benchmark.part,
        "data": table.data,
        "items": len(benchmark.rows),
        "captions_per_item": benchmark.shape[1],
        "statistic": benchmark.spec.statistic,
        "columns": list(table.columns),
        "headline": table.headline,
        "best": None if table.best is None else table.best.metric.label,
        "rows": [_row_json(row) for row in table.rows],
        **({} if table.raters is None else {"raters": plain(table.raters.agreement)}),
        **(
            {}
            if table.threshold is None
            else {"failures": plain(failures(table.benchmark, _scores(table), table.threshold))}
        ),
    }


def _row_json(row: BenchRow) -> dict[str, Any]:
    evaluation, run, metric = row.evaluation, row.run, row.metric
    figures = dict(_NO_FIGURES)
    if evaluation is not None:
        figures = {name: getattr(evaluation, name) for name in _NO_FIGURES}
        figures["by_category"] = {name: part.estimates for name, part in evaluation.by_category.items()}
    described: dict[str, Any] = {
        "name": metric.name,
        "label": metric.label,
        "kind": "column" if metric.is_column else "metric",
        **figures,
        "captions": row.captions,
        "errors": row.errors,
        "first_error": row.problem or None,
        "left_out": row.left_out,
        "p": row.p,
        "p_adjusted": row.p_adjusted,
    }
    if run is not None:
        described |= {
            "source": metric.source,
            "revision": metric.revision,
            "truncated": run.truncated,
            "seconds_per_caption": run.seconds,
            "devices": [run.device],
        }
    result: dict[str, Any] = plain(described)
    return result


def _p(row: BenchRow, table: BenchTable) -> str:
    if row is table.best:
        return "best"
    return "-" if row.p_adjusted is None else f"{row.p_adjusted:.2g}{star(row.p_adjusted)}"


def write_report(folder: Path, tables: Sequence[BenchTable], figures: dict[str, Any]) -> Path:
    """Writes bench.json, bench.md and bench.html into a folder.

    Args:
        folder: made if absent; or one of them by its path, such as `figures.json`, which alone is then written.
        tables: of the benchmarks, from `run_bench`.
        figures: from `to_json`.

    Returns:
        Path of the page.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: a file cannot be written.
    """
    check_report(folder)
    shown, remarks = grids(tables, details=True), list(notes(tables, resamples=figures["resamples"]))
    sections = [] if folder.suffix == ".json" else [(table.title, _bars(table)) for table in tables]
    judged_by = dict.fromkeys(table.benchmark.spec.judged_by for table in tables)
    return write_pages(folder, "bench", f"Agreement with {' and '.join(judged_by)}", figures, shown, remarks, sections)


def _bars(table: BenchTable) -> dict[str, str]:
    """{column: plot} of one benchmark."""
    ranked = {row.metric.label: row.evaluation.estimates for row in table.rows if row.evaluation is not None}
    best = None if table.best is None else table.best.metric.label
    return {
        column: bar_plot({label: row[column] for label, row in ranked.items() if column in row}, best=best)
        for column in table.columns
    }
