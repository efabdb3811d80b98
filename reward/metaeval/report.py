"""Writes a bench into a folder: all figures as JSON, the tables as Markdown, and one HTML page with plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from reward.errors import OutputError
from reward.metaeval.bench import BenchTable, title_of
from reward.metaeval.bench_tables import grids, notes
from reward.metaeval.plots import bar_plot, score_plots
from reward.metaeval.tables import Grid
from reward.optional import require
from reward.scoring.writers import refuse_address, write_atomically

__all__ = ["check_report", "write_pages", "write_report"]


def check_report(folder: Path) -> None:
    """Checks, before anything is scored, that a report can be written.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: an address, or the folder cannot be made, or not be written to.
    """
    refuse_address(folder)
    require("matplotlib", extra="report", purpose="a report with plots")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror or error}") from error


def write_report(folder: Path, tables: Sequence[BenchTable], figures: dict[str, Any]) -> Path:
    """Writes bench.json, bench.md and bench.html into a folder.

    Args:
        folder: made if absent.
        tables: of the benchmarks, from `run_bench`.
        figures: of `bench_tables.to_json`.

    Returns:
        Path of the page.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: a file cannot be written.
    """
    check_report(folder)
    shown, remarks = grids(tables, details=True), list(notes(tables, resamples=figures["resamples"]))
    sections = [_plots(table) for table in tables]
    return write_pages(folder, "bench", "Agreement with human judgments", figures, shown, remarks, sections)


def write_pages(
    folder: Path,
    name: str,
    heading: str,
    figures: Mapping[str, Any],
    tables: Sequence[Grid],
    remarks: Sequence[str],
    sections: Sequence[Mapping[str, Any]],
    *,
    pictures: Mapping[str, str] | None = None,
) -> Path:
    """Writes NAME.json, NAME.md and NAME.html, each whole or not at all; gives the path of the HTML page.

    Args:
        folder: of the files.
        name: of the command.
        heading: of the pages.
        figures: for NAME.json; the pages show their command, versions and seed.
        tables: from top to bottom.
        remarks: below the tables.
        sections: plots of the HTML page, which needs no other file; each section is {title, bars {heading: SVG},
            scatters [(row, aspect, SVG)]}.
        pictures: {title: file} of pictures beside the Markdown page.

    Raises:
        OutputError: a file cannot be written.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files("reward.metaeval").joinpath("report.html.jinja").read_text("utf-8"))
    texts = {
        "json": json.dumps(figures, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        "md": _markdown(heading, figures, tables, remarks, pictures or {}),
        "html": template.render(
            name=name, heading=heading, figures=figures, grids=tables, notes=remarks, sections=sections
        ),
    }
    for ending, text in texts.items():
        write_atomically(folder / f"{name}.{ending}", partial(_write, text=text))
    return folder / f"{name}.html"


def _markdown(
    heading: str,
    figures: Mapping[str, Any],
    tables: Sequence[Grid],
    remarks: Sequence[str],
    pictures: Mapping[str, str],
) -> str:
    parts = [f"# {heading}", f"`{figures['command']}`"]
    for grid in tables:
        parts += [f"## {grid.title}", grid.markdown()]
    parts += [f"![{title}]({file})" for title, file in pictures.items()]
    parts.append("\n".join(f"- {remark}" for remark in remarks))
    versions = ", ".join(f"{package} {number}" for package, number in figures["versions"].items())
    return "\n\n".join([*parts, f"Seed {figures['seed']}; {versions}."]) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _plots(table: BenchTable) -> dict[str, Any]:
    """{title, best, bars {column: plot}, scatters [(row, aspect, plot)]} of one benchmark."""
    ranked = [row for row in table.rows if row.evaluation is not None]
    bars = {}
    for column in table.columns:
        rows = {
            row.metric.label: row.evaluation.estimates[column]
            for row in ranked
            if row.evaluation is not None and column in row.evaluation.estimates
        }
        bars[column] = bar_plot(rows, best=None if table.best is None else table.best.metric.label)
    scatters = [(row.metric.label, aspect, plot) for row in ranked for aspect, plot in score_plots(table, row).items()]
    return {"title": title_of(table.benchmark), "bars": bars, "scatters": scatters}
