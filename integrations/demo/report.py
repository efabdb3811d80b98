"""Writes the demo's report: one HTML file with its charts that needs no other file, and all figures as JSON."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from PIL import Image

from integrations.demo.agreement import CEILING
from integrations.demo.quality import LESS_IS_BETTER, Example
from integrations.demo.results import Results
from reward.metaeval import Interval
from reward.metaeval.agreement import RATER
from reward.metaeval.bootstrap import MEAN
from reward.scenes import ASPECTS

__all__ = ["curves", "interval_plot", "write_report"]

_ROW = 26
_LABEL = 190

# what a card shows beside its main figure, so that a gain is not all that is seen
_BESIDE = {
    "recall": "recall",
    "precision": "precision",
    "faults": "flaws of language",
    "false_actions": "false actions",
    "missed_actions": "actions left out",
    "false_signs": "false claims of signs",
    "missed_signs": "facts of signs left out",
    "words": "words",
}
_NAMES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency", MEAN: "mean of the three"}


def write_report(folder: Path, results: Results, examples: Sequence[Example] = ()) -> Path:
    """Writes `report.html` and `figures.json` into a folder, each whole or not at all.

    Returns:
        Path of the report.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"value": _value, "ends": _ends, "verdict": _verdict, "png": _png}
    template = environment.from_string(files("integrations.demo").joinpath("report.html.jinja").read_text("utf-8"))
    html = template.render(
        results=results,
        examples=examples,
        aspects=_NAMES,
        rater=RATER,
        headlines=_headlines(results),
        agreement_plots=_agreement_plots(results),
        choice_plot=_choice_plot(results),
        curve_plots=_curve_plots(results),
        minutes=sum(results.seconds.values()) / 60,
    )
    report = folder / "report.html"
    for path, text in ((folder / "figures.json", results.to_json()), (report, html)):
        unfinished = path.with_name(path.name + ".partial")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    return report


def _headlines(results: Results) -> list[dict[str, Any]]:
    """The main figure of each part: {title, before, after, what, difference, beside: [(name, measure, difference)]}."""
    headlines: list[dict[str, Any]] = []
    if results.agreement is not None:
        rows = results.agreement.agreement
        learned = results.agreement.differences
        vela = next(iter(learned))
        baselines = [name for name in rows if name not in learned and name != CEILING]
        best = max(baselines, key=lambda name: rows[name][MEAN].value)
        headlines.append(
            {
                "title": "Agreement with simulated raters",
                "before": f"{rows[best][MEAN].value:.2f}",
                "after": f"{rows[vela][MEAN].value:.2f}",
                "what": f"tau-c, mean of three aspects: best baseline ({best}) and {vela}",
                "difference": learned[vela][best][MEAN],
                "beside": [
                    *((f"{_NAMES[aspect]}, against {best}", "", learned[vela][best][aspect]) for aspect in ASPECTS),
                    (f"mean, against a {RATER}", "", results.agreement.differences_from_rater[vela][MEAN]),
                ],
            }
        )
    if results.offline is not None:
        summary = results.offline.summary
        skipped = summary["rows"] - summary["scored"]
        headlines.append(
            {
                "title": "Offline scoring",
                "before": None,
                "after": f"{summary['rows_per_second']:.0f}/s",
                "what": f"{summary['scored']} captions of {summary['images_decoded']} images, on this CPU; "
                f"{skipped} not scored, {summary['truncated']} cut",
                "difference": None,
                "beside": [],
            }
        )
    if results.choice is not None:
        chosen, *others = (f"best of {results.choice.n} by {name}" for name in results.choice.rewards)
        headline = _change(f"Best of {results.choice.n}", "greedy", chosen, results.choice)
        headline["beside"] += [
            (f"F1 of {name}", "f1", results.choice.differences[f"{name} - greedy"]["f1"]) for name in others
        ]
        headlines.append(headline)
    if results.grpo is not None and results.grpo.differences:
        size = f"{results.grpo.steps} steps of {results.grpo.completions} captions; longer runs: docs/RESULTS.md"
        headlines.append(_change("GRPO", "greedy, before", "greedy, after", results.grpo, size))
    return headlines


def _change(title: str, before: str, after: str, part: Any, size: str = "") -> dict[str, Any]:
    difference = part.differences[f"{after} - {before}"]
    return {
        "title": title,
        "before": f"{part.means[before]['f1'].value:.2f}",
        "after": f"{part.means[after]['f1'].value:.2f}",
        "what": f"oracle F1 on {part.scenes} held-out scenes: {before}, and {after}" + (size and f". {size}"),
        "difference": difference["f1"],
        "beside": [(name, measure, difference[measure]) for measure, name in _BESIDE.items()],
    }


def _agreement_plots(results: Results) -> dict[str, str]:
    """{aspect: plot of all metrics}."""
    part = results.agreement
    if part is None:
        return {}
    plots = {}
    for aspect in (*ASPECTS, MEAN):
        rows = {name: row[aspect] for name, row in part.agreement.items()}
        rows[RATER] = part.against_two[RATER][aspect]
        kinds = dict.fromkeys(part.differences, "ours") | {CEILING: "bound"}
        plots[aspect] = interval_plot(
            rows, f"tau-c of {_NAMES[aspect]}, 95 % interval", kinds=kinds | {RATER: "bound"}, low=-0.1, high=1.0
        )
    return plots


def _choice_plot(results: Results) -> str:
    if results.choice is None:
        return ""
    rows = {name: row["f1"] for name, row in results.choice.means.items()}
    kinds = {name: "bound" if name.endswith("the oracle") else "ours" for name in rows if "best of" in name}
    return interval_plot(rows, "oracle F1, mean and 95 % interval", kinds=kinds)


def _curve_plots(results: Results) -> list[tuple[str, list[str], str]]:
    """(title, labels in the order of the lines, plot) of the GRPO run."""
    if results.grpo is None or not results.grpo.curve:
        return []
    truth = {"reward": "VELA reward", "oracle_f1": "oracle F1", "flaws": "flaws of language"}
    plots = []
    for title, names in (
        ("Reward, and the truth about the same captions", truth),
        ("Aspects of the reward", {name: name for name in ("descriptiveness", "relevance", "fluency")}),
    ):
        lines = {
            label: [(entry["step"], entry[name]) for entry in results.grpo.curve if name in entry]
            for name, label in names.items()
        }
        series = {label: line for label, line in lines.items() if line}
        plots.append((title, list(series), curves(series, title)))
    return plots


def _value(interval: Interval, sign: str = "") -> str:
    """The estimate; `sign` "+" for differences."""
    return f"{interval.value:{sign}.{_digits(interval)}f}"


def _ends(interval: Interval) -> str:
    """The ends of the interval, such as [0.350, 0.470]."""
    return f"[{interval.low:.{_digits(interval)}f}, {interval.high:.{_digits(interval)}f}]"


def _verdict(interval: Interval, measure: str = "") -> tuple[str, str]:
    """What a difference says, and its CSS class. More words are neither good nor bad."""
    if not interval.excludes_zero:
        return "level", "level"
    if measure == "words":
        return ("more" if interval.low > 0 else "fewer"), "level"
    return ("better", "up") if (interval.low > 0) != (measure in LESS_IS_BETTER) else ("worse", "down")


def _digits(interval: Interval) -> int:
    return 1 if abs(interval.value) >= 5 else 3  # numbers of words, and shares


def _png(image: Image.Image) -> str:
    """The image as a data address, so that the page needs no other file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def interval_plot(
    rows: Mapping[str, Interval],
    title: str,
    *,
    kinds: Mapping[str, str] | None = None,
    low: float = 0.0,
    high: float = 1.0,
) -> str:
    """A dot with its interval for each row, on one axis.

    Args:
        rows: {label: estimate}.
        title: of the axis.
        kinds: {label: CSS class of the row}; rows left out are "plain".
        low, high: ends of the axis.

    Example:
        >>> interval_plot({"VELA": Interval(0.5, 0.4, 0.6)}, "F1").startswith("<svg")
        True
    """
    width, right = 560, 56
    scale = (width - _LABEL - right) / (high - low)

    def x(value: float) -> float:
        return _LABEL + (min(max(value, low), high) - low) * scale

    height = len(rows) * _ROW + 42
    parts = [_open(width, height, title)]
    for tick in _ticks(low, high):
        parts.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="0" y2="{height - 38}"/>')
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 24}" text-anchor="middle">{tick:g}</text>')
    parts.append(_axis(x((low + high) / 2), height - 6, title))
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


def curves(series: Mapping[str, Sequence[tuple[float, float]]], title: str = "", *, smooth: int = 9) -> str:
    """Lines over steps: each as its points, faint, and their running mean.

    Args:
        series: {label: (step, value) in order}; the n-th line has the CSS class "line<n>".
        title: what the lines show.
        smooth: steps of the running mean.

    Example:
        >>> curves({"reward": [(1, 0.4), (2, 0.5)]}).count("<polyline")
        2
    """
    width, height, left, bottom, top = 540, 262, 36, 46, 10
    last = max(step for line in series.values() for step, _ in line)
    values = [value for line in series.values() for _, value in line]
    low, high = np.floor(min(values) * 10) / 10, np.ceil(max(values) * 10) / 10
    high = high if high > low else low + 0.1

    def x(step: float) -> float:
        return left + (width - left - 16) * step / last

    def y(value: float) -> float:
        return top + (height - bottom - top) * (high - value) / (high - low)

    parts = [_open(width, height, title)]
    for tick in _ticks(low, high):
        parts.append(f'<line class="grid" x1="{left}" x2="{width - 16}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in _ticks(0, last):
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 28}" text-anchor="middle">{tick:g}</text>')
    parts.append(_axis(x(last / 2), height - 8, "step; faint: each step, bold: mean of nine"))
    for index, (label, line) in enumerate(series.items()):
        for kind, window in (("raw", 1), ("smooth", smooth)):
            heights = _running_mean(np.array([value for _, value in line]), window)
            path = " ".join(f"{x(step):.1f},{y(height):.1f}" for (step, _), height in zip(line, heights, strict=True))
            parts.append(
                f'<polyline class="line{index} {kind}" points="{path}"><title>{escape(label)}</title></polyline>'
            )
    return "".join([*parts, "</svg>"])


def _open(width: int, height: int, title: str) -> str:
    return f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'


def _axis(x: float, y: float, title: str) -> str:
    return f'<text class="axis" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(title)}</text>'


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
