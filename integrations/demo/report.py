"""The demo's report: one HTML page with its charts that needs no other file, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup

from integrations.demo.agreement import CEILING
from integrations.demo.quality import LESS_IS_BETTER
from reward.metaeval import Interval
from reward.metaeval.raters import RATER
from reward.report.page import data_address, page_templates, plain
from reward.report.plots import BEST, BOUND, curve_plot, interval_plot
from reward.report.tables import Grid
from reward.scenes import ASPECTS
from reward.scoring.writers import write_text

_COLUMNS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency", "mean": "mean of the three"}
_MEASURES = {"f1": "oracle F1", "recall": "recall", "precision": "precision", "faults": "flaws of language"}
_MEASURES |= {"words": "words"}
# What a card shows beside its main figure, so that a gain is not all that is seen.
_BESIDE = {name: _MEASURES[name] for name in ("recall", "precision", "faults")}
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
_Rows: TypeAlias = Mapping[str, Mapping[str, Interval]]
_Plots: TypeAlias = dict[str, Callable[[], str]]  # {title: draws it as SVG}


@dataclass
class Headline:
    """The main figure of a part.

    Args:
        title: of the part.
        after: the figure.
        what: what it is.
        before: what it is compared with; empty for nothing.
        difference: of the two, paired; None for nothing.
        beside: further differences: (name, measure, difference).
    """

    title: str
    after: str
    what: str
    before: str = ""
    difference: Interval | None = None
    beside: Sequence[tuple[str, str, Interval]] = ()


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
    write_text(folder / "figures.json", json.dumps(plain(results), indent=1))
    write_text(report, html)
    return report


def headlines(results: Mapping[str, Any]) -> list[Headline]:
    """The main figure of each part that was done."""
    rows = []
    if results["agreement"]:
        rows.append(_agreement_headline(results["agreement"]))
    if results["offline"]:
        part = results["offline"]
        what = f"{part['scored']} captions of {part['images']} images, on this CPU; "
        what += f"{part['rows'] - part['scored']} not scored"
        rows.append(Headline("Offline scoring", f"{part['scored'] / part['seconds']:.0f}/s", what))
    if results["choice"]:
        part = results["choice"]
        first, *others = (f"best of {part['n']} by {name}" for name in part["rewards"])
        headline = _quality_headline(f"Best of {part['n']}", "greedy", first, part)
        for name in others:
            headline.beside = [*headline.beside, (f"F1 of {name}", "f1", part["differences"][f"{name} - greedy"]["f1"])]
        rows.append(headline)
    if results["grpo"] and results["grpo"]["differences"]:
        part = results["grpo"]
        headline = _quality_headline("GRPO", "greedy, before", "greedy, after", part)
        headline.what += f". {part['steps']} steps of {part['completions']} captions; longer runs: docs/RESULTS.md"
        rows.append(headline)
    return rows


def _agreement_headline(part: Mapping[str, Any]) -> Headline:
    """VELA, and the best of the metrics that have learned nothing."""
    rows, learned = part["agreement"], part["differences"]
    vela = next(iter(learned))
    best = max(rows.keys() - {*learned, CEILING}, key=lambda name: rows[name]["mean"].value)
    differences = learned[vela][best]
    beside = [(f"{_COLUMNS[aspect]}, against {best}", "", differences[aspect]) for aspect in ASPECTS]
    beside.append((f"mean, against a {RATER}", "", part["differences_from_rater"][vela]["mean"]))
    return Headline(
        "Agreement with simulated raters",
        f"{rows[vela]['mean'].value:.2f}",
        f"tau-c, mean of three aspects: best baseline ({best}) and {vela}",
        f"{rows[best]['mean'].value:.2f}",
        differences["mean"],
        beside,
    )


def _quality_headline(title: str, before: str, after: str, part: Mapping[str, Any]) -> Headline:
    """Two systems, by the oracle's F1."""
    difference = part["differences"][f"{after} - {before}"]
    return Headline(
        title,
        f"{part['means'][after]['f1'].value:.2f}",
        f"oracle F1 on {part['scenes']} held-out scenes: {before}, and {after}",
        f"{part['means'][before]['f1'].value:.2f}",
        difference["f1"],
        [(name, measure, difference[measure]) for measure, name in _BESIDE.items()],
    )


def _plots(results: Mapping[str, Any]) -> dict[str, _Plots]:
    """The plots of each part."""
    agreement: _Plots = {}
    choice: _Plots = {}
    curves: _Plots = {}
    if results["agreement"]:
        part = results["agreement"]
        colours = dict.fromkeys(part["differences"], BEST) | {CEILING: BOUND, RATER: BOUND}
        for column, name in _COLUMNS.items():
            rows = {metric: row[column] for metric, row in part["agreement"].items()}
            rows[RATER] = part["against_two"][RATER][column]
            title = f"{name.capitalize()}: agreement with simulated ratings"
            agreement[title] = partial(interval_plot, rows, f"tau-c of {name}, 95 % interval", colours)
    if results["choice"]:
        part = results["choice"]
        rows = {name: row["f1"] for name, row in part["means"].items()}
        colours = {name: BEST for name in rows if "best of" in name}
        colours |= {name: BOUND for name in rows if name.endswith("the oracle")}
        title = f"Greedy captions, one sample, and who chooses among {part['n']}"
        choice[title] = partial(interval_plot, rows, "oracle F1, mean and 95 % interval", colours)
    if results["grpo"] and results["grpo"]["curve"]:
        for title, labels in _CURVES.items():
            lines = {}
            for name, label in labels.items():
                line = [(step["step"], step[name]) for step in results["grpo"]["curve"] if name in step]
                if line:
                    lines[label] = line
            curves[title] = partial(curve_plot, lines)
    return {"agreement": agreement, "choice": choice, "grpo": curves}


def _tables(results: Mapping[str, Any]) -> dict[str, list[Grid]]:
    """The tables of each part that was done."""
    tables: dict[str, list[Grid]] = {}
    if results["agreement"]:
        part = results["agreement"]
        rows = {f"{name}, with the mean of two raters": row for name, row in part["against_two"].items()}
        rows = {**part["agreement"], **rows}
        tables["agreement"] = [_interval_grid("agreement of every metric", "tau-c", rows, _COLUMNS)]
        for name, differences in part["differences"].items():
            rows = {**differences, f"{RATER}, both with two raters": part["differences_from_rater"][name]}
            title = f"{name} minus each other metric"
            tables["agreement"].append(_interval_grid(title, "minus", rows, _COLUMNS, sign="+"))
    for name in ("choice", "grpo"):
        if results[name]:
            means, differences = results[name]["means"], results[name]["differences"]
            tables[name] = [_interval_grid("means", "", means, _MEASURES)]
            tables[name].append(_interval_grid("paired differences", "", differences, _MEASURES, sign="+"))
    if results["offline"]:
        spreads = results["offline"]["distributions"]
        lines = [[name, *(f"{value:.3f}" for value in spread.values())] for name, spread in spreads.items()]
        heads = ("", *next(iter(spreads.values())))
        tables["offline"] = [Grid("distribution of the scores", heads, lines)]
    return tables


def _interval_grid(title: str, head: str, rows: _Rows, columns: Mapping[str, str], sign: str = "") -> Grid:
    lines = []
    for name, row in rows.items():
        lines.append([name.replace(" - ", " − "), *(_cell(row[column], sign, column) for column in columns)])
    return Grid(title, (head, *columns.values()), lines)


def _cell(interval: Interval, sign: str = "", measure: str = "") -> Markup:
    """An estimate with its interval, such as 0.412 [0.350, 0.470]; of a difference, in the colour of its verdict."""
    digits = _digits(interval)
    kind = verdict(interval, measure)[1] if sign else ""
    text = Markup('<span class="{}">{} <span class="ends">[{}, {}]</span></span>')
    return text.format(kind, _value(interval, sign), f"{interval.low:.{digits}f}", f"{interval.high:.{digits}f}")


def _value(interval: Interval, sign: str = "") -> str:
    return f"{interval.value:{sign}.{_digits(interval)}f}"


def _digits(interval: Interval) -> int:
    return 1 if abs(interval.value) >= 5 else 3  # numbers of words, and shares


def verdict(interval: Interval, measure: str = "") -> tuple[str, str]:
    """What a difference says, and its CSS class. More words are neither good nor bad."""
    if not interval.excludes_zero:
        return "level", "level"
    is_more = interval.low > 0
    if measure == "words":
        return ("more" if is_more else "fewer"), "level"
    if is_more == (measure in LESS_IS_BETTER):
        return "worse", "down"
    return "better", "up"
