"""Plots of a bench as inline SVG: estimates with their intervals, and scores against judgments."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from reward.metaeval.bench import BenchRow, BenchTable
from reward.metaeval.benchmarks import PreferencePair, RatedCaption
from reward.metaeval.bootstrap import Interval
from reward.optional import require

__all__ = ["BEST", "INK", "PLAIN", "SOFT", "bar_plot", "bare", "blank_figure", "page_svg", "score_plots"]

# Colours that stand for those of the page, which may be light or dark; `page_svg` puts the page's names in their place.
INK, SOFT, BEST, PLAIN = "#010101", "#020202", "#030303", "#040404"
_NAMES = {INK: "var(--ink)", SOFT: "var(--soft)", BEST: "var(--ours)", PLAIN: "var(--plain)"}
_POINTS = "#4f78f0"  # in a picture inside the SVG, where the page has no say
_MOST_POINTS = 4000  # of a scatter: more only blacken it


def bar_plot(rows: Mapping[str, Interval], *, best: str | None = None, unit: str = "") -> str:
    """Horizontal bars with 95 % intervals, times 100.

    Args:
        rows: {label: estimate}, from top to bottom; an estimate may be NaN.
        best: label of the bar to be set off.
        unit: below the axis.

    Raises:
        MissingExtraError: matplotlib is not installed.

    Example:
        >>> "<svg" in bar_plot({"vela": Interval(0.5, 0.4, 0.6)}, best="vela")
        True
    """
    figure, axes = blank_figure(0.45 + 0.32 * len(rows) + (0.2 if unit else 0))
    labels = list(rows)
    values = np.array([[100 * each for each in (row.value, row.low, row.high)] for row in rows.values()])
    value, low, high = values.T
    # An estimate may lie outside its percentile interval; an error bar cannot have a negative length.
    errors = np.stack([np.maximum(value - low, 0), np.maximum(high - value, 0)])
    colours = [BEST if label == best else PLAIN for label in labels]
    axes.barh(range(len(labels)), value, xerr=errors, color=colours, ecolor=INK, height=0.6, error_kw={"lw": 1})
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color=SOFT, lw=0.8)
    axes.grid(axis="x", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(unit)
    return page_svg(figure)


def score_plots(table: BenchTable, row: BenchRow) -> dict[str, str]:
    """Scores of one row against what people judged: {aspect: scatter}; of pairs, both captions' scores.

    Winoground's quadruples have no such plot.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    items = table.benchmark.items
    if row.scores is None:
        return {}
    random = np.random.default_rng(0)
    places = np.sort(random.permutation(len(items))[:_MOST_POINTS])
    chosen = [items[place] for place in places]
    plots: dict[str, str] = {}
    rated = [item for item in chosen if isinstance(item, RatedCaption)]
    pairs = [item for item in chosen if isinstance(item, PreferencePair)]
    if rated:
        for aspect in table.benchmark.aspects:
            scores = np.asarray(row.scores[aspect] if isinstance(row.scores, dict) else row.scores)[places, 0]
            means = np.array([np.mean(item.ratings.get(aspect, [np.nan])) for item in rated])
            plots[aspect] = _scatter(means, scores, random, x="mean rating", y="score")
    elif pairs:
        scores = np.asarray(row.scores)[places]
        labels = np.array([np.nan if item.label is None else item.label for item in pairs])
        decided = np.isfinite(labels)
        better = labels[decided].astype(int)
        lines = np.arange(len(better))
        both = scores[decided]
        plots["pairs"] = _scatter(
            both[lines, 1 - better], both[lines, better], None, x="worse caption", y="better caption"
        )
    return plots


def _scatter(x_values: np.ndarray, y_values: np.ndarray, random: np.random.Generator | None, *, x: str, y: str) -> str:
    """Points; with `random`, x values are shaken a little, since ratings are few whole numbers."""
    figure, axes = blank_figure(2.6, width=3.6)
    there = np.isfinite(x_values) & np.isfinite(y_values)
    x_values, y_values = x_values[there], y_values[there]
    shown = x_values
    if random is not None and len(x_values):
        steps = np.diff(np.unique(x_values))
        shown = x_values + random.uniform(-0.3, 0.3, len(x_values)) * (steps.min() if len(steps) else 1.0)
    size = float(np.clip(3000 / max(1, len(shown)), 4, 20))
    axes.scatter(shown, y_values, s=size, color=_POINTS, alpha=0.45, lw=0, rasterized=True)
    if random is None and len(shown):
        ends = [min(shown.min(), y_values.min()), max(shown.max(), y_values.max())]
        axes.plot(ends, ends, color=SOFT, lw=0.8)  # above the line, the metric agrees with people
    axes.grid(color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return page_svg(figure)


def blank_figure(height: float, width: float = 6.4) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    require("matplotlib", extra="report", purpose="a plot")
    from matplotlib.figure import Figure  # not pyplot, which looks for a screen

    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    return figure, figure.subplots()


def bare(figure: Any, *, ink: str = INK, soft: str = SOFT) -> None:
    """Takes the frames away, and makes the labels small, in these colours."""
    for axes in figure.axes:
        axes.tick_params(colors=ink, labelsize=8, length=0)
        axes.xaxis.label.set(color=soft, fontsize=8)
        axes.yaxis.label.set(color=soft, fontsize=8)
        for spine in axes.spines.values():
            spine.set_visible(False)


def page_svg(figure: Any) -> str:
    """The figure as text, in the page's font and colours."""
    import matplotlib

    bare(figure)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "capreward"}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg class="chart" viewBox="\1">', text, count=1)
    for colour, name in _NAMES.items():
        text = text.replace(colour, name)
    return text
