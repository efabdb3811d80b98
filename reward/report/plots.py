"""Plots as SVG texts, in the colours of the page that holds them."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reward.metaeval.bootstrap import Interval

# The colours of a light page and of files; `_page_svg` replaces them by the page's names, which are others in the dark.
INK, SOFT, BEST, PLAIN, BOUND, GOOD = "#1b2330", "#5c6878", "#2f5bea", "#8a94a3", "#b7791f", "#14804a"
_PAGE_NAMES = {INK: "ink", SOFT: "soft", BEST: "ours", PLAIN: "plain", BOUND: "bound", GOOD: "good"}
_BINS = 40
_SMOOTH = 9  # steps of a running mean


def bar_plot(rows: Mapping[str, Interval], *, best: str | None = None, unit: str = "") -> str:
    """Horizontal bars with 95 % intervals, times 100.

    Args:
        rows: {label: estimate}, from top to bottom; an estimate may be NaN.
        best: label of the bar to highlight.
        unit: below the axis.

    Example:
        >>> "<svg" in bar_plot({"vela": Interval(0.5, 0.4, 0.6)}, best="vela")
        True
    """
    height = 0.45 + 0.32 * len(rows)
    if unit:
        height += 0.2
    figure, axes = _blank_figure(height)
    value, low, high = 100 * np.array([[row.value, row.low, row.high] for row in rows.values()]).T
    # An estimate may lie outside its percentile interval, but an error bar cannot have a negative length.
    errors = np.stack([np.maximum(value - low, 0), np.maximum(high - value, 0)])
    colours = [BEST if label == best else PLAIN for label in rows]
    axes.barh(range(len(rows)), value, xerr=errors, color=colours, ecolor=INK, height=0.6, error_kw={"lw": 1})
    axes.axvline(0, color=SOFT, lw=0.8)
    _name_rows(axes, rows)
    axes.set_xlabel(unit)
    return _page_svg(figure)


def interval_plot(rows: Mapping[str, Interval], title: str, colours: Mapping[str, str]) -> str:
    """A dot with its interval for each row.

    Args:
        rows: {label: estimate}.
        title: of the axis.
        colours: {label: colour}; rows left out are grey.
    """
    figure, axes = _blank_figure(0.25 * len(rows) + 0.5, width=4.6)
    for number, (label, interval) in enumerate(rows.items()):
        line = {"color": colours.get(label, PLAIN)}
        axes.plot([interval.low, interval.high], [number] * 2, **line, lw=3, alpha=0.55, solid_capstyle="round")
        axes.plot([interval.value], [number], "o", **line, ms=7)
        beside = {"va": "center", "fontsize": 8, "transform": axes.get_yaxis_transform()}
        axes.text(1.02, number, f"{interval.value:.3f}", color=SOFT, **beside)
    _name_rows(axes, rows)
    lowest = min(interval.low for interval in rows.values())
    if lowest < 0:
        lowest -= 0.03
    axes.set_xlim(min(lowest, 0), 1)
    axes.set_xlabel(title)
    return _page_svg(figure)


def curve_plot(series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Lines over steps, {label: [(step, value)]}: each as its points, faint, and their running mean over nine steps."""
    figure, axes = _blank_figure(2.6, width=4.6)
    half = _SMOOTH // 2
    for colour, (label, line) in zip((BEST, BOUND, GOOD), series.items(), strict=False):
        steps, values = np.array(line).T
        means = [values[max(0, step - half) : step + half + 1].mean() for step in range(len(values))]
        axes.plot(steps, values, color=colour, alpha=0.4, lw=1)
        axes.plot(steps, means, color=colour, lw=2.5, label=label)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel("step; faint: each step, bold: mean of nine")
    key = {"frameon": False, "fontsize": 8, "labelcolor": INK, "ncols": len(series)}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **key)
    return _page_svg(figure)


def histogram(name: str, scores: np.ndarray) -> str:
    """Shares of the captions in 40 bins of their scores (N,), which are finite; N may be 0."""
    figure, axes = _blank_figure(2.4, width=4.4)
    if len(scores):
        shares = np.full(len(scores), 100 / len(scores))
        axes.hist(scores, _bin_edges(scores), weights=shares, histtype="stepfilled", color=BEST)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(name, parse_math=False)
    axes.set_ylabel("% of the captions")
    return _page_svg(figure)


def _bin_edges(scores: np.ndarray) -> np.ndarray:
    """The edges of the bins (41,), also around scores that are equal, or too near for floats to stand between them."""
    low, high = float(scores.min()), float(scores.max())
    edges = np.linspace(low, high, _BINS + 1)
    if (np.diff(edges) > 0).all():
        return edges
    margin = max(0.5, abs(low) / 1000)
    return np.linspace(low - margin, high + margin, _BINS + 1)


def _blank_figure(height: float, width: float = 6.4) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes."""
    from matplotlib.figure import Figure  # not pyplot, which looks for a screen

    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    return figure, figure.subplots()


def _name_rows(axes: Any, labels: Mapping[str, Any]) -> None:
    axes.set_yticks(range(len(labels)), list(labels), parse_math=False)
    axes.invert_yaxis()
    axes.grid(axis="x", color=SOFT, alpha=0.25, lw=0.6)


def _page_svg(figure: Any) -> str:
    """The figure as text, without frames, in the page's font and colours."""
    import matplotlib

    for axes in figure.axes:
        axes.tick_params(colors=INK, labelsize=8, length=0)
        axes.xaxis.label.set(color=SOFT, fontsize=8)
        axes.yaxis.label.set(color=SOFT, fontsize=8)
        axes.spines[:].set_visible(False)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "capreward"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    # The page gives the size: what stands before the drawing, and the element's own size, go.
    head = r'.*?<svg [^>]*?viewBox="([^"]*)"[^>]*>'
    text = re.sub(head, r'<svg class="chart" viewBox="\1">', buffer.getvalue(), count=1, flags=re.DOTALL)
    for colour, name in _PAGE_NAMES.items():
        text = text.replace(colour, f"var(--{name})")
    return text
