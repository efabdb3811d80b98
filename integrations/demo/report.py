"""Writes the demo's report: one HTML file with its charts that needs no other file, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from integrations.demo.agreement import CEILING
from integrations.demo.quality import LESS_IS_BETTER
from reward.metaeval import Interval
from reward.metaeval.agreement import RATER
from reward.metaeval.report import (
    BEST,
    BOUND,
    GOOD,
    INK,
    PLAIN,
    SOFT,
    Grid,
    blank_figure,
    data_address,
    page_svg,
    page_templates,
    plain,
)
from reward.scenes import ASPECTS
from reward.scoring.writers import write_text

_NAMES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency", "mean": "mean of the three"}
_MEASURES = {"f1": "oracle F1", "recall": "recall", "precision": "precision", "faults": "flaws of language"}
_MEASURES |= {"words": "words"}
# what a card shows beside its main figure, so that a gain is not all that is seen
_BESIDE = dict(list(_MEASURES.items())[1:4])
_BESIDE |= {"false_actions": "false actions", "missed_actions": "actions left out"}
_BESIDE |= {"false_signs": "false claims of signs", "missed_signs": "facts of signs left out", "words": "words"}
_CURVES = {
    "Reward, and the truth about the same captions": {
        "reward": "VELA reward",
        "oracle_f1": "oracle F1",
        "flaws": "flaws of language",
    },
    "Aspects of the reward": {name: name for name in ("descriptiveness", "relevance", "fluency")},
}
_Rows = Mapping[str, Mapping[str, Interval]]


def write_report(folder: Path, results: Mapping[str, Any], examples: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Writes `report.html` and `figures.json` into a folder, each whole or not at all; returns the report.

    Args:
        folder: where they go.
        results: what `integrations.demo.run` has found so far.
        examples: from `make_examples`.
    """
    templates = page_templates("integrations.demo")
    templates.filters |= {"value": _value, "cell": _cell, "verdict": verdict, "png": partial(data_address, kind="png")}
    html = templates.get_template("demo.html.jinja").render(
        name="demo",
        results=results,
        examples=examples,
        rater=RATER,
        headlines=headlines(results),
        plots=_plots(results),
        tables=_tables(results),
    )
    report = folder / "report.html"
    write_text(folder / "figures.json", json.dumps(plain(dict(results)), indent=1))
    write_text(report, html)
    return report


def headlines(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The main figure of each part: {title, before, after, what, difference, beside: [(name, measure, difference)]}."""
    found: list[dict[str, Any]] = []
    if part := results["agreement"]:
        rows, learned = part["agreement"], part["differences"]
        vela = next(iter(learned))
        best = max(rows.keys() - {*learned, CEILING}, key=lambda name: rows[name]["mean"].value)
        beside = [(f"{_NAMES[aspect]}, against {best}", "", learned[vela][best][aspect]) for aspect in ASPECTS]
        beside.append((f"mean, against a {RATER}", "", part["differences_from_rater"][vela]["mean"]))
        what = f"tau-c, mean of three aspects: best baseline ({best}) and {vela}"
        before, after = (rows[name]["mean"] for name in (best, vela))
        difference = learned[vela][best]["mean"]
        found.append(_headline("Agreement with simulated raters", before, after, what, difference, beside))
    if part := results["offline"]:
        what = f"{part['scored']} captions of {part['images']} images, on this CPU; "
        what += f"{part['rows'] - part['scored']} not scored"
        rate = f"{part['scored'] / part['seconds']:.0f}/s"
        found.append({"title": "Offline scoring", "before": None, "after": rate, "what": what})
        found[-1] |= {"difference": None, "beside": []}
    if part := results["choice"]:
        chosen, *others = (f"best of {part['n']} by {name}" for name in part["rewards"])
        found.append(_change(f"Best of {part['n']}", "greedy", chosen, part))
        others_gain = [(f"F1 of {name}", "f1", part["differences"][f"{name} - greedy"]["f1"]) for name in others]
        found[-1]["beside"] += others_gain
    if (part := results["grpo"]) and part["differences"]:
        size = f". {part['steps']} steps of {part['completions']} captions; longer runs: docs/RESULTS.md"
        found.append(_change("GRPO", "greedy, before", "greedy, after", part, size))
    return found


def _change(title: str, before: str, after: str, part: Mapping[str, Any], size: str = "") -> dict[str, Any]:
    difference = part["differences"][f"{after} - {before}"]
    what = f"oracle F1 on {part['scenes']} held-out scenes: {before}, and {after}{size}"
    beside = [(name, measure, difference[measure]) for measure, name in _BESIDE.items()]
    first, last = (part["means"][name]["f1"] for name in (before, after))
    return _headline(title, first, last, what, difference["f1"], beside)


def _headline(
    title: str, before: Interval, after: Interval, what: str, difference: Interval, beside: list[Any]
) -> dict[str, Any]:
    row = {"title": title, "before": f"{before.value:.2f}", "after": f"{after.value:.2f}", "what": what}
    return {**row, "difference": difference, "beside": beside}


def _plots(results: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """{part: {title: plot}}."""
    plots: dict[str, dict[str, str]] = {"agreement": {}, "choice": {}, "grpo": {}}
    if part := results["agreement"]:
        colours = dict.fromkeys(part["differences"], BEST) | {CEILING: BOUND, RATER: BOUND}
        for aspect, name in _NAMES.items():
            rows = {metric: row[aspect] for metric, row in part["agreement"].items()}
            rows[RATER] = part["against_two"][RATER][aspect]
            title = f"{name.capitalize()}: agreement with simulated ratings"
            plots["agreement"][title] = interval_plot(rows, f"tau-c of {name}, 95 % interval", colours)
    if part := results["choice"]:
        rows = {name: row["f1"] for name, row in part["means"].items()}
        colours = {name: BOUND if name.endswith("the oracle") else BEST for name in rows if "best of" in name}
        title = f"Greedy captions, one sample, and who chooses among {part['n']}"
        plots["choice"][title] = interval_plot(rows, "oracle F1, mean and 95 % interval", colours)
    for title, names in _CURVES.items() if results["grpo"] and results["grpo"]["curve"] else ():
        curve = results["grpo"]["curve"]
        lines = {label: [(row["step"], row[name]) for row in curve if name in row] for name, label in names.items()}
        plots["grpo"][title] = curve_plot({label: line for label, line in lines.items() if line})
    return plots


def interval_plot(rows: Mapping[str, Interval], title: str, colours: Mapping[str, str]) -> str:
    """A dot with its interval for each row, as SVG.

    Args:
        rows: {label: estimate}.
        title: of the axis.
        colours: {label: colour}; rows left out are grey.
    """
    figure, axes = blank_figure(0.25 * len(rows) + 0.5, width=4.6)
    for place, (label, interval) in enumerate(rows.items()):
        colour = colours.get(label, PLAIN)
        axes.plot([interval.low, interval.high], [place, place], color=colour, lw=3, alpha=0.55, solid_capstyle="round")
        axes.plot([interval.value], [place], "o", color=colour, ms=7)
        where = {"va": "center", "fontsize": 8, "transform": axes.get_yaxis_transform()}
        axes.text(1.02, place, f"{interval.value:.3f}", color=SOFT, **where)
    axes.set_yticks(range(len(rows)), list(rows), parse_math=False)
    axes.invert_yaxis()
    lowest = min(interval.low for interval in rows.values())
    axes.set_xlim(lowest - 0.03 if lowest < 0 else 0, 1)
    axes.grid(axis="x", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel(title)
    return page_svg(figure)


def curve_plot(series: Mapping[str, Sequence[tuple[float, float]]], *, smooth: int = 9) -> str:
    """Lines over steps, as SVG: each as its points, faint, and their running mean over `smooth` steps."""
    figure, axes = blank_figure(2.6, width=4.6)
    for colour, (label, line) in zip((BEST, BOUND, GOOD), series.items(), strict=False):
        steps, values = np.array(line).T
        half = smooth // 2
        means = [values[max(0, place - half) : place + half + 1].mean() for place in range(len(values))]
        axes.plot(steps, values, color=colour, alpha=0.4, lw=1)
        axes.plot(steps, means, color=colour, lw=2.5, label=label)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_xlabel("step; faint: each step, bold: mean of nine")
    key = {"frameon": False, "fontsize": 8, "labelcolor": INK, "ncols": len(series)}
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), **key)
    return page_svg(figure)


def _tables(results: Mapping[str, Any]) -> dict[str, list[Grid]]:
    """{part: its tables}."""
    tables: dict[str, list[Grid]] = {}
    if part := results["agreement"]:
        people = {f"{name}, with the mean of two raters": row for name, row in part["against_two"].items()}
        tables["agreement"] = [_grid("agreement of every metric", "tau-c", {**part["agreement"], **people}, _NAMES)]
        for name, rows in part["differences"].items():
            rows = {**rows, f"{RATER}, both with two raters": part["differences_from_rater"][name]}
            tables["agreement"].append(_grid(f"{name} minus each other metric", "minus", rows, _NAMES, sign="+"))
    for name in ("choice", "grpo"):
        if part := results[name]:
            tables[name] = [_grid("means", "", part["means"], _MEASURES)]
            tables[name].append(_grid("paired differences", "", part["differences"], _MEASURES, sign="+"))
    if part := results["offline"]:
        spreads = part["distributions"]
        rows = tuple((name, *(f"{value:.3f}" for value in spread.values())) for name, spread in spreads.items())
        tables["offline"] = [Grid("distribution of the scores", ("", *next(iter(spreads.values()))), rows)]
    return tables


def _grid(title: str, head: str, rows: _Rows, columns: Mapping[str, str], sign: str = "") -> Grid:
    named = {name.replace(" - ", " − "): row for name, row in rows.items()}
    cells = [(name, *(_cell(row[key], sign, key) for key in columns)) for name, row in named.items()]
    return Grid(title, (head, *columns.values()), tuple(cells))


def _cell(interval: Interval, sign: str = "", measure: str = "") -> Markup:
    """An estimate with its interval, such as 0.412 [0.350, 0.470]; of a difference, in the colour of its verdict."""
    low, high = (f"{end:.{_digits(interval)}f}" for end in (interval.low, interval.high))
    kind = verdict(interval, measure)[1] if sign else ""
    return Markup('<span class="{}">{} <span class="ends">[{}, {}]</span></span>').format(
        kind, _value(interval, sign), low, high
    )


def _value(interval: Interval, sign: str = "") -> str:
    return f"{interval.value:{sign}.{_digits(interval)}f}"


def _digits(interval: Interval) -> int:
    return 1 if abs(interval.value) >= 5 else 3  # numbers of words, and shares


def verdict(interval: Interval, measure: str = "") -> tuple[str, str]:
    """What a difference says, and its CSS class. More words are neither good nor bad."""
    if not interval.excludes_zero:
        return "level", "level"
    if measure == "words":
        return ("more" if interval.low > 0 else "fewer"), "level"
    return ("better", "up") if (interval.low > 0) != (measure in LESS_IS_BETTER) else ("worse", "down")
