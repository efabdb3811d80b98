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
from integrations.demo.quality import LESS_IS_BETTER, MEASURES
from reward.metaeval import Interval
from reward.metaeval.raters import RATER
from reward.report.page import data_address, environment, html_cell
from reward.report.plots import BEST, BOUND, curve, intervals
from reward.report.report import plain_values
from reward.report.tables import Table, frame_of_rows
from reward.scenes import ASPECTS
from reward.scoring.writers import write_text

_COLUMNS = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency", "mean": "mean of the three"}
_MEASURES = {
    "f1": "oracle F1",
    "recall": "recall",
    "precision": "precision",
    "faults": "flaws of language",
    "false_actions": "false actions",
    "missed_actions": "actions left out",
    "false_signs": "false claims of signs",
    "missed_signs": "facts of signs left out",
    "words": "words",
}
_CURVES = {
    "Reward, and the truth about the same captions": {
        "reward": "VELA reward",
        "oracle_f1": "oracle F1",
        "flaws": "flaws of language",
    },
    "Aspects of the reward": {name: name for name in ("descriptiveness", "relevance", "fluency")},
}
_Part: TypeAlias = "tuple[Mapping[str, Callable[[], Markup]], list[Table]]"  # plots by their titles, and tables


@dataclass
class Headline:
    """The main figure of a part.

    Args:
        title: of the part.
        after: the figure.
        text: says what it is.
        before: what it is compared with; empty for nothing.
        difference: of the two, paired; None for nothing.
        beside: further differences: (name, measure, difference).
    """

    title: str
    after: str
    text: str
    before: str = ""
    difference: Interval | None = None
    beside: Sequence[tuple[str, str, Interval]] = ()


def write_report(folder: Path, results: Mapping[str, Any], examples: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Writes `report.html` and `figures.json` into a folder, each whole or not at all; returns the report.

    Args:
        folder: where they go.
        results: what `integrations.demo.run` has so far.
        examples: from `make_examples`.
    """
    templates = environment("integrations.demo")
    templates.filters |= {"difference": _difference, "verdict": verdict, "png": partial(data_address, kind="png")}
    make = {"agreement": _agreement, "choice": _choice, "grpo": _grpo, "offline": _offline}
    html = templates.get_template("demo.html.jinja").render(
        title="capreward demo",
        results=results,
        examples=examples,
        rater=RATER,
        headlines=headlines(results),
        parts={name: make_part(results[name]) for name, make_part in make.items() if results[name]},
    )
    report = folder / "report.html"
    write_text(folder / "figures.json", json.dumps(plain_values(results), indent=1))
    write_text(report, html)
    return report


def headlines(results: Mapping[str, Any]) -> list[Headline]:
    """The main figure of each part that was done."""
    rows = []
    if results["agreement"]:
        rows.append(_agreement_headline(results["agreement"]))
    if results["offline"]:
        part = results["offline"]
        text = f"{part['scored']} captions of {part['images']} images, on this CPU; "
        text += f"{part['rows'] - part['scored']} not scored"
        rows.append(Headline("Offline scoring", f"{part['scored'] / part['seconds']:.0f}/s", text))
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
        headline.text += f". {part['steps']} steps of {part['completions']} captions; longer runs: docs/RESULTS.md"
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
        # So that a gain is not all that is seen.
        [(name, measure, difference[measure]) for measure, name in _MEASURES.items() if measure != "f1"],
    )


def _agreement(part: Mapping[str, Any]) -> _Part:
    """Plots of the three aspects and their mean, and tables of all metrics and of the differences between them."""
    plots: dict[str, Callable[[], Markup]] = {}
    colours = dict.fromkeys(part["differences"], BEST) | {CEILING: BOUND, RATER: BOUND}
    for column, name in _COLUMNS.items():
        rows = {metric: row[column] for metric, row in part["agreement"].items()}
        rows[RATER] = part["against_two"][RATER][column]
        title = f"{name.capitalize()}: agreement with simulated ratings"
        plots[title] = partial(intervals, rows, f"tau-c of {name}, 95 % interval", colours=colours)
    with_two = {f"{name}, with the mean of two raters": row for name, row in part["against_two"].items()}
    tables = [_table("agreement of every metric", "tau-c", {**part["agreement"], **with_two}, _COLUMNS)]
    for name, differences in part["differences"].items():
        rows = {**differences, f"{RATER}, both with two raters": part["differences_from_rater"][name]}
        tables.append(_table(f"{name} minus each other metric", "minus", rows, _COLUMNS, write=_difference))
    return plots, tables


def _choice(part: Mapping[str, Any]) -> _Part:
    """A plot of who chooses how well, and tables of all measures."""
    rows = {name: row["f1"] for name, row in part["means"].items()}
    colours = {name: BEST for name in rows if "best of" in name}
    colours |= {name: BOUND for name in rows if name.endswith("the oracle")}
    title = f"Greedy captions, one sample, and who chooses among {part['n']}"
    return {title: partial(intervals, rows, "oracle F1, mean and 95 % interval", colours=colours)}, _systems(part)


def _grpo(part: Mapping[str, Any]) -> _Part:
    """Curves of the training, and tables of captions before and after it."""
    curves = {}
    for title, labels in _CURVES.items():
        lines = {}
        for name, label in labels.items():
            lines[label] = [(step["step"], step[name]) for step in part["curve"] if name in step]
        lines = {label: line for label, line in lines.items() if line}
        if lines:
            curves[title] = partial(curve, lines)
    return curves, _systems(part)


def _offline(part: Mapping[str, Any]) -> _Part:
    return {}, [Table("distribution of the scores", frame_of_rows(part["distributions"]), form=".3f")]


def _systems(part: Mapping[str, Any]) -> list[Table]:
    """Tables of the systems of a part, and of their differences."""
    columns = {measure: _MEASURES[measure] for measure in MEASURES}
    means = _table("means", "", part["means"], columns)
    return [means, _table("paired differences", "", part["differences"], columns, write=_difference)]


def _table(
    title: str,
    head: str,
    rows: Mapping[str, Mapping[str, Interval]],
    columns: Mapping[str, str],
    write: Callable[[Interval, str], Any] = lambda interval, measure: interval,
) -> Table:
    """A table of estimates, or of what is written of an estimate and its measure; `columns` are {measure: head}."""
    cells = {}
    for name, row in rows.items():
        cells[name.replace(" - ", " − ")] = {label: write(row[measure], measure) for measure, label in columns.items()}
    return Table(title, frame_of_rows(cells, head=head), form=".3f", forms={_MEASURES["words"]: ".1f"})


def _difference(interval: Interval, measure: str = "") -> Markup:
    """A difference with its interval, in the colour of its verdict."""
    form = "+.1f" if measure == "words" else "+.3f"
    return Markup('<span class="{}">{}</span>').format(verdict(interval, measure)[1], html_cell(interval, form))


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
