"""Plots as SVG, in the colours of the page that holds them."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
from markupsafe import Markup

from reward.metaeval.bootstrap import Interval
from reward.report.tables import short_names

# Matplotlib takes no CSS variables, so a plot is drawn in these colours; `_page_svg` then writes the page's names for
# them, which stand for other colours on a dark screen.
INK = "#1b2330"
SOFT = "#5c6878"
BEST = "#2f5bea"
PLAIN = "#8a94a3"
BOUND = "#b7791f"
GOOD = "#14804a"
BAD = "#c22f3d"
_PAGE_NAMES = {INK: "ink", SOFT: "soft", BEST: "best", PLAIN: "plain", BOUND: "bound", GOOD: "good", BAD: "bad"}
_BINS = 40  # of a histogram
_SMOOTHED_STEPS = 9  # of a running mean
_LABELS_A_ROW = 3  # of the key above a curve

Lines: TypeAlias = "Mapping[str, Sequence[tuple[float, float]]]"  # {label: [(step, value)]}


def intervals(
    rows: Mapping[str, Interval], name: str = "", *, colours: Mapping[str, str] | None = None, scale: int = 1
) -> Markup:
    """Estimates of at most 1, such as shares and correlations: a dot, its interval and its number for each row.

    Args:
        rows: {label: estimate}, from top to bottom; an estimate may be NaN.
        name: of the axis.
        colours: {label: colour}; rows left out are grey.
        scale: what values are multiplied with; 100 for percent.

    Example:
        >>> "<svg" in intervals({"vela": Interval(0.5, 0.4, 0.6)}, "share", colours={"vela": BEST})
        True
    """
    figure, axes = _blank_figure(0.25 * len(rows) + 0.5, width=4.6)  # half an inch for the axis below the rows
    numbers = scale * np.array([[interval.value, interval.low, interval.high] for interval in rows.values()])
    for position, (label, (value, low, high)) in enumerate(zip(rows, numbers.tolist(), strict=True)):
        if math.isnan(value):
            continue
        colour = (colours or {}).get(label, PLAIN)
        axes.plot([low, high], [position] * 2, color=colour, lw=3, alpha=0.55, solid_capstyle="round")
        axes.plot([value], [position], "o", color=colour, ms=7, clip_on=False)  # whole at the edge, too
        # x in shares of the axes, y in rows: beside the plot, at the height of the row.
        beside = axes.get_yaxis_transform()
        number = f"{value:.3f}" if scale == 1 else f"{value:.1f}"
        axes.text(1.02, position, number, color=SOFT, va="center", fontsize=8, transform=beside)
    axes.set_yticks(range(len(rows)), short_names(list(rows)), parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # from top to bottom
    axes.grid(axis="x", color=SOFT, alpha=0.25, lw=0.6)
    left = np.nanmin(numbers, initial=0)
    if left < 0:
        left -= 0.03 * scale  # so that the line's round end is seen
    axes.set_xlim(left, scale)
    axes.set_xlabel(name)
    return _page_svg(figure)


def curve(lines: Lines) -> Markup:
    """Lines over steps, {label: [(step, value)]}: each as its points, faint, and their running mean.

    Where all lines are too short for such a mean, their points alone are shown.
    """
    figure, axes = _blank_figure(2.6, width=4.6)
    is_smoothed = max(len(points) for points in lines.values()) > _SMOOTHED_STEPS
    for colour, (label, points) in zip(cycle((BEST, BOUND, GOOD, BAD, PLAIN, INK)), lines.items(), strict=False):
        steps, values = np.array(points).T
        if is_smoothed:
            axes.plot(steps, values, color=colour, alpha=0.4, lw=1)
            axes.plot(steps, _running_means(values), color=colour, lw=2.5, label=label)
        else:
            axes.plot(steps, values, "o-", color=colour, lw=2, ms=4, label=label)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(f"step; faint: each step, bold: mean of {_SMOOTHED_STEPS}" if is_smoothed else "step")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if min(value for points in lines.values() for _, value in points) >= 0:
        axes.set_ylim(bottom=max(0, axes.get_ylim()[0]))
    key = {"frameon": False, "fontsize": 8, "labelcolor": INK, "ncols": min(_LABELS_A_ROW, len(lines))}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **key)
    return _page_svg(figure)


def _running_means(values: np.ndarray) -> list[float]:
    """The mean of each value (N,) and those up to half of `_SMOOTHED_STEPS` before and after it, as far as they go."""
    half = _SMOOTHED_STEPS // 2
    return [values[max(0, index - half) : index + half + 1].mean() for index in range(len(values))]


def histogram(values: np.ndarray, name: str = "", unit: str = "captions") -> Markup:
    """Shares of the captions in `_BINS` bins of their scores.

    Args:
        values: finite scores (N,); N may be 0.
        name: of the axis.
        unit: what has a score, such as rows.
    """
    figure, axes = _blank_figure(2.4, width=4.4)
    if len(values):
        shares = np.full(len(values), 100 / len(values))
        axes.hist(values, _bin_edges(values), weights=shares, histtype="stepfilled", color=BEST)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(name, parse_math=False)
    axes.set_ylabel(f"% of the {unit}")
    return _page_svg(figure)


def _bin_edges(values: np.ndarray) -> np.ndarray:
    """The edges of the bins (_BINS + 1,), from the lowest to the highest score; with margins if these are equal."""
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high, _BINS + 1)
    # numpy refuses edges that do not rise, as of scores so near that no floats stand between them.
    if (np.diff(edges) > 0).all():
        return edges
    margin = max(0.5, abs(low) / 1000)  # of large scores a share, since floats near them are far apart
    return np.linspace(low - margin, high + margin, _BINS + 1)


def _blank_figure(height: float, *, width: float) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes."""
    from matplotlib.figure import Figure  # not pyplot, which looks for a screen

    figure = Figure(figsize=(width, height), layout="constrained", dpi=150)
    return figure, figure.subplots()


def _page_svg(figure: Any) -> Markup:
    """The figure as text, without frames, in the page's font and colours."""
    import matplotlib

    for axes in figure.axes:
        axes.tick_params(colors=INK, labelsize=8, length=0)
        axes.xaxis.label.set(color=SOFT, fontsize=8)
        axes.yaxis.label.set(color=SOFT, fontsize=8)
        axes.spines[:].set_visible(False)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    # Text stays text, and names of parts are the same each time, so that equal figures give equal pages.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "capreward"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    # The page gives the size: what stands before the drawing, and the element's own size, go.
    head = r'.*?<svg [^>]*?viewBox="([^"]*)"[^>]*>'
    text = re.sub(head, r'<svg class="chart" viewBox="\1">', buffer.getvalue(), count=1, flags=re.DOTALL)
    for colour, name in _PAGE_NAMES.items():
        text = text.replace(colour, f"var(--{name})")
    return Markup(text)  # matplotlib has escaped the labels
