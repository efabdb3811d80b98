"""Writes the demo's report: one HTML file with its charts that needs no other file, and all figures as JSON."""

from __future__ import annotations

import base64
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from integrations.demo.agreement import CEILING
from integrations.demo.quality import LESS_IS_BETTER
from reward.metaeval import Interval
from reward.metaeval.agreement import RATER
from reward.metaeval.report import plain
from reward.scenes import ASPECTS

_NAMES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency", "mean": "mean of the three"}
_TRUTH = {"reward": "VELA reward", "oracle_f1": "oracle F1", "flaws": "flaws of language"}
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
# the page's colours, light and dark; matplotlib draws with stand-ins
_COLOURS = {"--ink": "#010101", "--soft": "#020202", "--line": "#030303", "--ours": "#040404", "--bound": "#050505"}
_COLOURS |= {"--plain": "#060606", "--good": "#070707"}


def write_report(folder: Path, results: Mapping[str, Any], examples: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Writes `report.html` and `figures.json` into a folder, each whole or not at all; returns the report.

    Args:
        folder: where they go.
        results: what `integrations.demo.run` has found so far.
        examples: from `make_examples`.
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
        agreement_plots=_agreement_plots(results["agreement"]),
        choice_plot=_choice_plot(results["choice"]),
        curve_plots=_curve_plots(results["grpo"]),
    )
    report = folder / "report.html"
    for path, text in ((folder / "figures.json", json.dumps(plain(dict(results)), indent=1)), (report, html)):
        unfinished = path.with_name(path.name + ".partial")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    return report


def _headlines(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The main figure of each part: {title, before, after, what, difference, beside: [(name, measure, difference)]}."""
    headlines: list[dict[str, Any]] = []
    part = results["agreement"]
    if part:
        rows, learned = part["agreement"], part["differences"]
        vela = next(iter(learned))
        best = max(
            (name for name in rows if name not in (*learned, CEILING)), key=lambda name: rows[name]["mean"].value
        )
        beside = [(f"{_NAMES[aspect]}, against {best}", "", learned[vela][best][aspect]) for aspect in ASPECTS]
        headlines.append(
            {
                "title": "Agreement with simulated raters",
                "before": f"{rows[best]['mean'].value:.2f}",
                "after": f"{rows[vela]['mean'].value:.2f}",
                "what": f"tau-c, mean of three aspects: best baseline ({best}) and {vela}",
                "difference": learned[vela][best]["mean"],
                "beside": [*beside, (f"mean, against a {RATER}", "", part["differences_from_rater"][vela]["mean"])],
            }
        )
    part = results["offline"]
    if part:
        lost = part["rows"] - part["scored"]
        what = f"{part['scored']} captions of {part['images']} images, on this CPU; {lost} not scored"
        rate = f"{part['scored'] / part['seconds']:.0f}/s"
        headlines.append(
            {"title": "Offline scoring", "before": None, "after": rate, "what": what, "difference": None, "beside": []}
        )
    part = results["choice"]
    if part:
        chosen, *others = (f"best of {part['n']} by {name}" for name in part["rewards"])
        headline = _change(f"Best of {part['n']}", "greedy", chosen, part)
        headline["beside"] += [
            (f"F1 of {name}", "f1", part["differences"][f"{name} - greedy"]["f1"]) for name in others
        ]
        headlines.append(headline)
    part = results["grpo"]
    if part and part["differences"]:
        size = f". {part['steps']} steps of {part['completions']} captions; longer runs: docs/RESULTS.md"
        headlines.append(_change("GRPO", "greedy, before", "greedy, after", part, size))
    return headlines


def _change(title: str, before: str, after: str, part: Mapping[str, Any], size: str = "") -> dict[str, Any]:
    difference = part["differences"][f"{after} - {before}"]
    return {
        "title": title,
        "before": f"{part['means'][before]['f1'].value:.2f}",
        "after": f"{part['means'][after]['f1'].value:.2f}",
        "what": f"oracle F1 on {part['scenes']} held-out scenes: {before}, and {after}{size}",
        "difference": difference["f1"],
        "beside": [(name, measure, difference[measure]) for measure, name in _BESIDE.items()],
    }


def _agreement_plots(part: Mapping[str, Any] | None) -> dict[str, str]:
    """{aspect: plot of all metrics}."""
    plots = {}
    for aspect, name in _NAMES.items() if part else ():
        rows = {metric: row[aspect] for metric, row in part["agreement"].items()}  # type: ignore[index]
        rows[RATER] = part["against_two"][RATER][aspect]  # type: ignore[index]
        colours = dict.fromkeys(part["differences"], "--ours") | {CEILING: "--bound", RATER: "--bound"}  # type: ignore[index]
        plots[aspect] = interval_plot(rows, f"tau-c of {name}, 95 % interval", colours)
    return plots


def _choice_plot(part: Mapping[str, Any] | None) -> str:
    if not part:
        return ""
    rows = {name: row["f1"] for name, row in part["means"].items()}
    colours = {name: "--bound" if name.endswith("the oracle") else "--ours" for name in rows if "best of" in name}
    return interval_plot(rows, "oracle F1, mean and 95 % interval", colours)


def _curve_plots(part: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(title, plot) of the GRPO run."""
    kinds = {"Reward, and the truth about the same captions": _TRUTH}
    kinds["Aspects of the reward"] = {name: name for name in ("descriptiveness", "relevance", "fluency")}
    plots = []
    for title, names in kinds.items() if part and part["curve"] else ():
        lines = {
            label: [(entry["step"], entry[name]) for entry in part["curve"] if name in entry]  # type: ignore[index]
            for name, label in names.items()
        }
        plots.append((title, curve_plot({label: line for label, line in lines.items() if line})))
    return plots


def interval_plot(rows: Mapping[str, Interval], title: str, colours: Mapping[str, str]) -> str:
    """A dot with its interval for each row, as SVG.

    Args:
        rows: {label: estimate}.
        title: of the axis.
        colours: {label: the page's colour}; rows left out are "--plain".
    """
    figure = Figure(figsize=(5.6, 0.27 * len(rows) + 0.6))
    axes = figure.subplots()
    for place, (label, interval) in enumerate(rows.items()):
        colour = _COLOURS[colours.get(label, "--plain")]
        axes.plot([interval.low, interval.high], [place, place], color=colour, lw=3, alpha=0.55, solid_capstyle="round")
        axes.plot([interval.value], [place], "o", color=colour, ms=7)
        text: dict[str, Any] = {"va": "center", "fontsize": 9, "transform": axes.get_yaxis_transform()}
        axes.text(1.02, place, f"{interval.value:.3f}", color=_COLOURS["--soft"], **text)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlim(-0.1 if min(interval.low for interval in rows.values()) < 0 else 0, 1)
    axes.grid(axis="x", color=_COLOURS["--line"], lw=1)
    return _svg(figure, axes, title)


def curve_plot(series: Mapping[str, Sequence[tuple[float, float]]], *, smooth: int = 9) -> str:
    """Lines over steps, as SVG: each as its points, faint, and their running mean over `smooth` steps."""
    figure = Figure(figsize=(5.4, 2.9))
    axes = figure.subplots()
    for colour, (label, line) in zip(("--ours", "--bound", "--good"), series.items(), strict=False):
        steps, values = np.array(line).T
        half = smooth // 2
        means = [values[max(0, place - half) : place + half + 1].mean() for place in range(len(values))]
        axes.plot(steps, values, color=_COLOURS[colour], alpha=0.4, lw=1)
        axes.plot(steps, means, color=_COLOURS[colour], lw=2.5, label=label)
    axes.grid(axis="y", color=_COLOURS["--line"], lw=1)
    key = {"frameon": False, "fontsize": 9, "labelcolor": _COLOURS["--ink"], "ncols": len(series)}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **key)
    return _svg(figure, axes, "step; faint: each step, bold: mean of nine")


def _svg(figure: Figure, axes: Any, title: str) -> str:
    axes.set_xlabel(title, color=_COLOURS["--soft"], fontsize=9)
    axes.tick_params(length=0, labelsize=9, colors=_COLOURS["--soft"])
    axes.tick_params(axis="y", labelcolor=_COLOURS["--ink"])
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "capreward"}):
        figure.savefig(text, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    svg = text.getvalue()
    for name, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var({name})")
    # inside a page, a picture needs neither its namespaces nor a record of who made it
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"|<metadata>.*</metadata>', "", svg[svg.index("<svg") :], flags=re.DOTALL)
    return svg.replace("<svg", f'<svg class="chart" role="img" aria-label="{escape(title)}"', 1)


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
