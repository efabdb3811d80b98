"""The report of an arena: results as JSON, tables as Markdown, plots as pictures, and everything on one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reward.metaeval.arena.plots import COLOURS, bias_plot, rating_plot, save_plot
from reward.metaeval.arena.result import ArenaResult
from reward.metaeval.arena.tables import grids, notes, to_json
from reward.metaeval.plots import page_svg
from reward.metaeval.report import check_report, write_pages

__all__ = ["write_arena"]


def write_arena(folder: Path, result: ArenaResult, *, command: str) -> Path:
    """Writes arena.json, arena.md, arena.html, and ratings and bias as .png and .svg.

    Args:
        folder: made if absent.
        result: of `rate_arena`.
        command: as it was typed.

    Returns:
        Path of the page, which needs no other file.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: a file cannot be written.
    """
    check_report(folder)
    draw: dict[str, Any] = {"ratings": rating_plot}
    if result.agreement:
        draw["bias"] = bias_plot
    for name, plot in draw.items():
        save_plot(plot(result, COLOURS), folder / name)
    figures = to_json(result, command=command)
    section = {"title": "Plots", "bars": {name: page_svg(plot(result)) for name, plot in draw.items()}, "scatters": []}
    pictures = {name: f"{name}.png" for name in draw}
    return write_pages(
        folder, "arena", "Arena", figures, grids(result), list(notes(result)), [section], pictures=pictures
    )
