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
from reward.metaeval.published import published_grid
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

# What the JSON of a row has of an evaluation, and without one.
_FIGURES: dict[str, Any] = {"estimates": {}, "details": {}, "ties": None, "tie_rule": None, "counts": {}}
_FIGURES |= {"images": 0, "by_category": {}, "scored": 0}


def grids(tables: Sequence[BenchTable], *, details: bool = False) -> list[Grid]:
    """All tables: an overview if there are several benchmarks, then each benchmark, with all statistics if wanted."""
    all_grids: list[Grid] = []
    if len(tables) > 1:
        all_grids.append(overview(tables))
    published = []
    for table in tables:
        all_grids.append(table_grid(table))
        if table.raters is not None:
            all_grids.append(rater_grid(table.title, table.raters))
        if table.threshold is not None:
            all_grids += failure_grids(table.title, table.benchmark, _scores(table), table.threshold, listed=details)
        statistics = detail_grid(table) if details else None
        if statistics is not None:
            all_grids.append(statistics)
        for row in table.rows:
            published += [(row.metric.label, table.title, figure) for figure in row.published]
    if published:
        all_grids.append(published_grid(published))
    return all_grids


def table_grid(table: BenchTable) -> Grid:
    """The table of one benchmark: its columns, numbers of scored items and errors, time, and p against one row."""
    statistic = "agreement x 100" if table.benchmark.spec.statistics else "no figures"
    rows = []
    for row in table.rows:
        cells = [row.metric.label]
        scored = 0
        if row.evaluation is None:
            cells += [percent(None)] * len(table.columns)
        else:
            cells += [percent(row.evaluation.estimates.get(name)) for name in table.columns]
            scored = row.evaluation.scored
            if not table.benchmark.spec.statistics:
                statistic = f"{row.evaluation.statistic} x 100"
        cells += ["-", "-"] if row.left_out else [str(scored), str(row.errors)]
        cells.append("-" if row.run is None else milliseconds(row.run.seconds))
        if row is table.against:
            cells.append("best" if row is table.best else "against")
        else:
            cells.append("-" if row.p_adjusted is None else f"{row.p_adjusted:.2g}{star(row.p_adjusted)}")
        rows.append(tuple(cells))
    title = f"{table.title}: {statistic}, {len(table.benchmark.rows)} items"
    p = f"p ({table.headline})" if table.headline else "p"
    best = None if table.best is None else table.rows.index(table.best)
    return Grid(title, ("", *table.columns, "scored", "errors", "ms/caption", p), tuple(rows), best)


def detail_grid(table: BenchTable) -> Grid | None:
    """All statistics of each aspect, or of all pairs together; None if there is only one statistic."""
    details = {row.metric.label: row.evaluation.details for row in table.rows if row.evaluation is not None}
    if not details:
        return None
    first = next(iter(details.values()))
    columns = table.benchmark.aspects or list(first)[-1:]
    kinds = [(name, kind) for name in columns for kind in first[name]]
    if len(kinds) == len(columns):
        return None
    heads = [""]
    for name, kind in kinds:
        heads.append(kind.replace("_", "-"))
        if len(columns) > 1:
            heads[-1] = f"{name} {heads[-1]}"
    rows = []
    for label, values in details.items():
        rows.append((label, *(f"{100 * values[name][kind]:.1f}" for name, kind in kinds)))
    whole = "" if table.benchmark.aspects else f" of {columns[0]}"
    return Grid(f"{table.title}: all statistics{whole} x 100", tuple(heads), tuple(rows))


def overview(tables: Sequence[BenchTable]) -> Grid:
    """All benchmarks side by side, each by its headline column."""
    rows = []
    for number, first in enumerate(tables[0].rows):
        cells = [first.metric.label]
        seconds = []
        for table in tables:
            row = table.rows[number]
            headline = None if row.evaluation is None else row.evaluation.estimates.get(table.headline)
            best = " best" if row is table.best else ""
            cells.append(f"{percent(headline)}{best}{star(row.p_adjusted)}")
            if row.run is not None and not math.isnan(row.run.seconds):
                seconds.append(row.run.seconds)
        cells.append(milliseconds(sum(seconds) / len(seconds) if seconds else math.nan))
        rows.append(tuple(cells))
    heads = ("", *(f"{table.title} ({table.headline or '-'})" for table in tables), "ms/caption")
    return Grid("All benchmarks, x 100", heads, tuple(rows))


def notes(tables: Sequence[BenchTable], *, resamples: int) -> Iterator[str]:
    """Remarks below the tables: how to read them, and what went wrong."""
    yield f"[low, high]: 95 % intervals of {resamples} bootstrap resamples of whole images."
    for other in dict.fromkeys(_other(table) for table in tables if table.against is not None):
        holm = f"in the same resamples, by Holm's correction for the rows; * is below {SIGNIFICANT}."
        yield f"p: of the difference from {other} {holm}"
    for table in tables:
        if table.benchmark.provenance:
            yield f"{table.title}: {table.benchmark.provenance}."
        yield from _rules(table, resamples)
        if table.no_raters:
            yield f"{table.title}: the row of a single rater is left out, because {table.no_raters}"
    devices = sorted({row.run.device for table in tables for row in table.rows if row.run is not None})
    if devices:
        yield f"Time per caption: of scoring on {' and '.join(devices)}, without loading the model."
    for table in tables:
        answers = int(table.benchmark.rows["question"].notna().sum())
        for row in table.rows:
            where = f"{row.metric.label} on {table.title}"
            if row.evaluation is not None and math.isnan(row.evaluation.estimates[table.headline].value):
                yield f"{where}: no figures, because all scores or all ratings are equal"
            if row.left_out:
                yield f"{where}: left out, because {row.problem}"
            elif row.errors:
                yield f"{where}: {row.errors} of {row.captions} captions not scored; the first: {row.problem}"
            if row.run is not None and answers and not row.metric.spec.reads_questions:
                yield f"{where}: it does not read the questions of {answers} items, and takes answers for captions"
            if row.run is not None and row.run.truncated:
                yield f"{where}: {row.run.truncated} captions had text cut to fit the model"
            if row.run is not None and row.run.prompt:
                yield f"{where}: prompt {row.run.prompt}"


def _other(table: BenchTable) -> str:
    """What the rows are tested against."""
    if table.was_named and table.against is not None:
        return table.against.metric.label
    return "the best row, which is chosen on these data and so is flattered,"


def _rules(table: BenchTable, resamples: int) -> Iterator[str]:
    """How ratings, aspects and ties count in a table, and reasons to trust it less."""
    evaluations = [row.evaluation for row in table.rows if row.evaluation is not None]
    if not evaluations:
        return
    first, spec, rules = evaluations[0], table.benchmark.spec, []
    if spec.judged_by != BenchmarkSpec.judged_by:
        rules.append(f"{spec.judged_by}, no people were asked")
    if spec.form == RATINGS and spec.judgments == "mean":
        rules.append("the mean of a caption's ratings counts")
    elif spec.form == RATINGS:
        rules.append("every rating of a caption counts by itself, with its score repeated")
    if MEAN in first.estimates and spec.form == PAIRS:
        rules.append(f"{MEAN!r} is the mean over the categories")
    elif MEAN in first.estimates:
        rules.append(
            f"{MEAN!r} is the mean of {first.statistic} over the aspects; a metric with one score has it compared with "
            "each of them"
        )
    if table.benchmark.draws:
        rules.append(f"the mean over {table.benchmark.draws} draws of {spec.drawn} references")
    if len(first.estimates) > 1:
        rules.append(f"rows are ranked by {first.headline!r}")
    yield f"{table.title}: {'; '.join([*rules, first.tie_rule])}."
    tests = sum(row.p is not None for row in table.rows)
    if 2 * tests / (1 + resamples) >= SIGNIFICANT:
        enough = math.ceil(4 * tests / SIGNIFICANT)
        yield f"{table.title}: {resamples} resamples are too few for any p of {tests} below {SIGNIFICANT}: {enough} do"
    if len({evaluation.scored for evaluation in evaluations}) > 1:
        different = "rows that differ in 'scored' are computed on different items, and p on the items that both scored"
        yield f"{table.title}: {different}."
    images = min(evaluation.images for evaluation in evaluations)
    if images < FEW_IMAGES:
        yield f"{table.title}: {few_images(images)[0].lower()}{few_images(images)[1:]}"


def to_json(
    tables: Sequence[BenchTable], *, command: str, seed: int, resamples: int, references: bool
) -> dict[str, Any]:
    """All results as plain JSON values; estimates are fractions, not percent, and NaN is null."""
    facts = {"command": command, "versions": versions(), "seed": seed, "resamples": resamples}
    return {**facts, "references": references, "benchmarks": [_table_json(table) for table in tables]}


def _table_json(table: BenchTable) -> dict[str, Any]:
    benchmark = table.benchmark
    values: dict[str, Any] = {
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
        "best": None if table.best is None else table.best.metric.label,
        "against": None if table.against is None else table.against.metric.label,
        "reference_draws": benchmark.draws,
        "rows": [plain(_row_json(row)) for row in table.rows],
    }
    if table.raters is not None:
        values["raters"] = plain(table.raters.agreement)
    if table.no_raters:
        values["no_raters"] = table.no_raters
    if table.threshold is not None:
        values["failures"] = plain(failures(benchmark, _scores(table), table.threshold))
    return values


def _row_json(row: BenchRow) -> dict[str, Any]:
    evaluation, run, metric = row.evaluation, row.run, row.metric
    figures = _FIGURES if evaluation is None else {name: getattr(evaluation, name) for name in _FIGURES}
    values: dict[str, Any] = {
        "name": metric.name,
        "label": metric.label,
        "kind": "column" if metric.is_column else "metric",
        **figures,
        "by_category": {name: part.estimates for name, part in figures["by_category"].items()},
        "captions": row.captions,
        "errors": row.errors,
        "first_error": row.problem or None,
        "left_out": row.left_out,
        "p": row.p,
        "p_adjusted": row.p_adjusted,
    }
    if row.published:
        values["published"] = [figure.to_json() for figure in row.published]
    if run is not None:
        values |= {"source": metric.source, "revision": metric.revision, "truncated": run.truncated}
        values |= {"seconds_per_caption": run.seconds, "devices": [run.device], "prompt": run.prompt or None}
    return values


def _scores(table: BenchTable) -> dict[str, Any]:
    return {row.metric.label: row.scores for row in table.rows if row.scores is not None}


def write_report(folder: Path, tables: Sequence[BenchTable], figures: dict[str, Any]) -> Path:
    """Writes bench.json, bench.md and bench.html into a folder, or one of them alone, and gives the path of the page.

    Args:
        folder: made if absent; or one of them by its path, such as `figures.json`.
        tables: of the benchmarks, from `run_bench`.
        figures: from `to_json`.
    """
    check_report(folder)
    remarks = list(notes(tables, resamples=figures["resamples"]))
    sections = [] if folder.suffix == ".json" else [(table.title, _bars(table)) for table in tables]
    judged_by = dict.fromkeys(table.benchmark.spec.judged_by for table in tables)
    heading = f"Agreement with {' and '.join(judged_by)}"
    return write_pages(folder, "bench", heading, figures, grids(tables, details=True), remarks, sections)


def _bars(table: BenchTable) -> dict[str, str]:
    """{column: plot} of one benchmark."""
    ranked = {row.metric.label: row.evaluation.estimates for row in table.rows if row.evaluation is not None}
    best = None if table.best is None else table.best.metric.label
    plots = {}
    for column in table.columns:
        bars = {label: estimates[column] for label, estimates in ranked.items() if column in estimates}
        plots[column] = bar_plot(bars, best=best)
    return plots
