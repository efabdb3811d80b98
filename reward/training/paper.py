"""The table of a metric's paper, with the figures of a training as its last row."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["paper_table"]


def paper_table(
    paper: Mapping[str, Any] | None, sources: Iterable[str], preset: str | None, *runs: Mapping[str, Any]
) -> tuple[str, list[list[str]]] | None:
    """The paper's table, if the runs were tested on its data.

    Args:
        paper: the name of the data set (`data`); names of parts and of aspects, each {in the paper: here}; figures of
            `metrics`, a list over parts and aspects; and of `presets`, {preset: [name, figures]}. None gives None.
        sources: the data sets that were given.
        preset: what the runs started from.
        runs: figures as in `reward.training.run.TrainingResult`; of several, the table has means and deviations.

    Returns:
        A title, and rows of equally many cells, heads first; or None.

    Example:
        >>> paper = {"title": "T", "data": "photos", "parts": {"Test": "test"}, "aspects": {"All": "overall"},
        ...          "metrics": {"theirs": [50.0]}, "presets": {}}
        >>> paper_table(paper, ["photos"], None, {"test": {"tau_c_overall": 0.512}})
        ('T', [['', 'Test All'], ['theirs', '50.0'], ['this training', '51.2']])
    """
    source = next((name for name in sources if paper and name.partition("=")[0] == paper["data"]), None)
    if paper is None or source is None:
        return None

    def figure(run: Mapping[str, Any], part: str, aspect: str) -> float | None:
        figures = run.get(f"{part} of {source}", run.get(part, {}))
        value: float | None = figures.get(f"tau_c_{aspect}")
        return value

    heads, own = [""], []
    for part, our_part in paper["parts"].items():
        for aspect, our_aspect in paper["aspects"].items():
            heads.append(f"{part} {aspect}")
            own.append([figure(run, our_part, our_aspect) for run in runs])
    if not any(value is not None for values in own for value in values):
        return None
    rows = [[name, *map(str, figures)] for name, figures in paper["metrics"].items()]
    rows += [[str(cell) for cell in paper["presets"][preset]]] if preset in paper["presets"] else []
    return paper["title"], [heads, *rows, ["this training", *map(_cell, own)]]


def _cell(values: list[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if len(known) < len(values):
        return "-"
    deviation = f"±{statistics.stdev(known):.1f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.1f}{deviation}"
