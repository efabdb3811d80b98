"""Charts of the report as inline SVG; colours and fonts come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from reward.metaeval import Interval

__all__ = ["curves", "interval_plot"]

_ROW = 26
_LABEL = 190


def interval_plot(
    rows: Mapping[str, Interval], *, kinds: Mapping[str, str] | None = None, low: float = 0.0, high: float = 1.0
) -> str:
    """A dot with its interval for each row, on one axis.

    Args:
        rows: {label: estimate}.
        kinds: {label: CSS class of the row}; rows left out are "plain".
        low, high: ends of the axis.

    Example:
        >>> interval_plot({"VELA": Interval(0.5, 0.4, 0.6)}).startswith("<svg")
        True
    """
    width, right = 560, 56
    scale = (width - _LABEL - right) / (high - low)

    def x(value: float) -> float:
        return _LABEL + (min(max(value, low), high) - low) * scale

    height = len(rows) * _ROW + 24
    parts = [f'<svg class="chart" viewBox="0 0 {width} {height}" role="img">']
    for tick in _ticks(low, high):
        parts.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{height - 20}"/>')
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 6}" text-anchor="middle">{tick:g}</text>')
    for index, (label, interval) in enumerate(rows.items()):
        y = index * _ROW + _ROW / 2
        kind = (kinds or {}).get(label, "plain")
        parts.append(
            f'<g class="row {kind}"><title>{escape(label)}: {interval}</title>'
            f'<text class="label" x="{_LABEL - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
            f'<line class="whisker" x1="{x(interval.low):.1f}" x2="{x(interval.high):.1f}" y1="{y}" y2="{y}"/>'
            f'<circle cx="{x(interval.value):.1f}" cy="{y}" r="5"/>'
            f'<text class="value" x="{width - 4}" y="{y + 4:.1f}" text-anchor="end">{interval.value:.3f}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def curves(series: Mapping[str, Sequence[tuple[float, float]]], *, smooth: int = 9) -> str:
    """Lines over steps: each as its points, faint, and their running mean.

    Args:
        series: {label: (step, value) in order}; the n-th line has the CSS class "line<n>".
        smooth: steps of the running mean.

    Example:
        >>> curves({"reward": [(1, 0.4), (2, 0.5)]}).count("<polyline")
        2
    """
    width, height, left, bottom, top = 540, 250, 36, 30, 10
    points = [point for line in series.values() for point in line]
    steps, values = [step for step, _ in points], [value for _, value in points]
    last = max(steps)
    low, high = np.floor(min(values) * 10) / 10, np.ceil(max(values) * 10) / 10
    high = high if high > low else low + 0.1

    def x(step: float) -> float:
        return left + (width - left - 16) * step / last

    def y(value: float) -> float:
        return top + (height - bottom - top) * (high - value) / (high - low)

    parts = [f'<svg class="chart" viewBox="0 0 {width} {height}" role="img">']
    for tick in _ticks(low, high):
        parts.append(f'<line class="grid" x1="{left}" x2="{width - 16}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in _ticks(0, last):
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 14}" text-anchor="middle">{tick:g}</text>')
    for index, (label, line) in enumerate(series.items()):
        smoothed = _running_mean(np.array([value for _, value in line]), smooth)
        for kind, heights in (("raw", [value for _, value in line]), ("smooth", smoothed)):
            path = " ".join(f"{x(step):.1f},{y(value):.1f}" for (step, _), value in zip(line, heights, strict=True))
            parts.append(
                f'<polyline class="line{index} {kind}" points="{path}"><title>{escape(label)}</title></polyline>'
            )
    return "".join([*parts, "</svg>"])


def _running_mean(values: np.ndarray, window: int) -> list[float]:
    """Mean of the values around each, fewer at the ends."""
    half = window // 2
    return [float(values[max(0, k - half) : k + half + 1].mean()) for k in range(len(values))]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends, about five."""
    rough = (high - low) / 5
    unit = 10 ** np.floor(np.log10(rough))
    step = next(float(unit * factor) for factor in (1, 2, 5, 10) if rough <= unit * factor * 1.001)
    first = int(np.ceil(low / step - 1e-9))
    return [round(k * step, 10) for k in range(first, int(np.floor(high / step + 1e-9)) + 1)]
