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
    shown = [overview(tables)] if len(tables) > 1 else []
    for table in tables:
        shown.append(table_grid(table))
        shown += [] if table.raters is None else [rater_grid(table.title, table.raters)]
        if table.threshold is not None:
            shown += failure_grids(table.title, table.benchmark, _scores(table), table.threshold, listed=details)
        if details and (other := detail_grid(table)) is not None:
            shown.append(other)
    known = [(row.metric.label, table.title, each) for table in tables for row in table.rows for each in row.published]
    return [*shown, published_grid(known)] if known else shown


def table_grid(table: BenchTable) -> Grid:
    """The table of one benchmark: its columns, numbers of scored items and errors, time, and p against one row."""
    rows, statistic = [], "agreement x 100" if table.benchmark.spec.statistics else "no figures"
    for row in table.rows:
        evaluation = row.evaluation
        cells = [percent(None if evaluation is None else evaluation.estimates.get(name)) for name in table.columns]
        scored = 0 if evaluation is None else evaluation.scored
        counts = ["-", "-"] if row.left_out else [str(scored), str(row.errors)]
        p = "-" if row.p_adjusted is None else f"{row.p_adjusted:.2g}{star(row.p_adjusted)}"
        time = "-" if row.run is None else milliseconds(row.run.seconds)
        p = ("best" if row is table.best else "against") if row is table.against else p
        rows.append((row.metric.label, *cells, *counts, time, p))
        if evaluation is not None and not table.benchmark.spec.statistics:
            statistic = f"{evaluation.statistic} x 100"
    title = f"{table.title}: {statistic}, {len(table.benchmark.rows)} items"
    heads = ("", *table.columns, "scored", "errors", "ms/caption", f"p ({table.headline})" if table.headline else "p")
    return Grid(title, heads, tuple(rows), None if table.best is None else table.rows.index(table.best))


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
    rows = []
    for metric, *each in zip([row.metric for row in tables[0].rows], *(table.rows for table in tables), strict=True):
        cells = []
        for table, row in zip(tables, each, strict=True):
            headline = None if row.evaluation is None else row.evaluation.estimates.get(table.headline)
            cells.append(percent(headline) + (" best" if row is table.best else "") + star(row.p_adjusted))
        known = [row.run.seconds for row in each if row.run is not None and not math.isnan(row.run.seconds)]
        rows.append((metric.label, *cells, milliseconds(sum(known) / len(known) if known else math.nan)))
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
    if spec.form == RATINGS:
        of_one = "every rating of a caption counts by itself, with its score repeated"
        rules.append("the mean of a caption's ratings counts" if spec.judgments == "mean" else of_one)
    if MEAN in first.estimates:
        several = {
            RATINGS: f"the mean of {first.statistic} over the aspects; a metric with one score has it compared with "
            "each of them",
            PAIRS: "the mean over the categories",
        }
        rules.append(f"{MEAN!r} is {several[spec.form]}")
    if table.benchmark.draws:
        rules.append(f"the mean over {table.benchmark.draws} draws of {spec.drawn} references")
    if len(first.estimates) > 1:
        rules.append(f"rows are ranked by {first.headline!r}")
    yield f"{table.title}: {'; '.join([*rules, first.tie_rule])}."
    tests = sum(row.p is not None for row in table.rows)
    if 2 * tests / (1 + resamples) >= SIGNIFICANT:
        enough = math.ceil(4 * tests / SIGNIFICANT)
        yield f"{table.title}: {resamples} resamples are too few for any p of {tests} below {SIGNIFICANT}: {enough} do"
    if len({each.scored for each in evaluations}) > 1:
        different = "rows that differ in 'scored' are computed on different items, and p on the items that both scored"
        yield f"{table.title}: {different}."
    images = min(each.images for each in evaluations)
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
    return {
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
        **({} if table.raters is None else {"raters": plain(table.raters.agreement)}),
        **({"no_raters": table.no_raters} if table.no_raters else {}),
        **(
            {} if table.threshold is None else {"failures": plain(failures(benchmark, _scores(table), table.threshold))}
        ),
    }


def _row_json(row: BenchRow) -> dict[str, Any]:
    evaluation, run, metric = row.evaluation, row.run, row.metric
    figures = _FIGURES if evaluation is None else {name: getattr(evaluation, name) for name in _FIGURES}
    by_category = {name: part.estimates for name, part in figures["by_category"].items()}
    told: dict[str, Any] = {
        "name": metric.name,
        "label": metric.label,
        "kind": "column" if metric.is_column else "metric",
    }
    told |= {**figures, "by_category": by_category, "captions": row.captions, "errors": row.errors}
    told |= {"first_error": row.problem or None, "left_out": row.left_out, "p": row.p, "p_adjusted": row.p_adjusted}
    told |= {"published": [each.to_json() for each in row.published]} if row.published else {}
    if run is not None:
        told |= {"source": metric.source, "revision": metric.revision, "truncated": run.truncated}
        told |= {"seconds_per_caption": run.seconds, "devices": [run.device], "prompt": run.prompt or None}
    return told


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
