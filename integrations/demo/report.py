"""Writes the demo's report: one HTML file that needs nothing else, and all figures as JSON."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from PIL import Image

from integrations.demo.agreement import CEILING
from integrations.demo.charts import curves, interval_plot
from integrations.demo.examples import Example
from integrations.demo.results import Results
from reward.metaeval import Interval
from reward.metaeval.agreement import RATER
from reward.metaeval.bootstrap import MEAN
from reward.scenes import ASPECTS

__all__ = ["write_report"]

_NAMES = {"desc": "descriptiveness", "rel": "relevance", "flu": "fluency", MEAN: "mean of the three"}


def write_report(folder: Path, results: Results, examples: Sequence[Example] = ()) -> Path:
    """Writes `report.html` and `figures.json` into a folder, each whole or not at all.

    Returns:
        Path of the report.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"value": _value, "ends": _ends, "direction": _direction, "png": _png}
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
    """The main figure of each part: {title, before, after, what, difference}."""
    found: list[dict[str, Any]] = []
    if results.agreement is not None:
        rows = results.agreement.agreement
        learned = results.agreement.differences
        vela = next(iter(learned))
        baselines = [name for name in rows if name not in learned and name != CEILING]
        best = max(baselines, key=lambda name: rows[name][MEAN].value)
        found.append(
            {
                "title": "Agreement with raters",
                "before": f"{rows[best][MEAN].value:.2f}",
                "after": f"{rows[vela][MEAN].value:.2f}",
                "what": f"tau-c, mean of three aspects: best baseline ({best}) and {vela}",
                "difference": learned[vela][best][MEAN],
            }
        )
    if results.choice is not None:
        chosen = f"best of {results.choice.n} by {next(iter(results.choice.rewards))}"
        found.append(_change(f"Best of {results.choice.n}", "greedy", chosen, results.choice))
    if results.grpo is not None and results.grpo.differences:
        found.append(_change("GRPO", "greedy, before", "greedy, after", results.grpo))
    if results.offline is not None:
        summary = results.offline.summary
        found.append(
            {
                "title": "Offline scoring",
                "before": None,
                "after": f"{summary['rows_per_second']:.0f}/s",
                "what": f"{summary['scored']} captions of {summary['images_decoded']} images, on this CPU",
                "difference": None,
            }
        )
    return found


def _change(title: str, before: str, after: str, part: Any) -> dict[str, Any]:
    return {
        "title": title,
        "before": f"{part.means[before]['f1'].value:.2f}",
        "after": f"{part.means[after]['f1'].value:.2f}",
        "what": f"oracle F1 on {part.scenes} held-out scenes: {before}, and {after}",
        "difference": part.differences[f"{after} - {before}"]["f1"],
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
        plots[aspect] = interval_plot(rows, kinds=kinds | {RATER: "bound"}, low=-0.1, high=1.0)
    return plots


def _choice_plot(results: Results) -> str:
    if results.choice is None:
        return ""
    rows = {name: row["f1"] for name, row in results.choice.means.items()}
    kinds = {name: "bound" if name.endswith("the oracle") else "ours" for name in rows if "best of" in name}
    return interval_plot(rows, kinds=kinds)


def _curve_plots(results: Results) -> list[tuple[str, list[str], str]]:
    """(title, labels in the order of the lines, plot) of the GRPO run."""
    if results.grpo is None or not results.grpo.curve:
        return []
    plots = []
    for title, names in (
        ("Reward, and the truth about the same captions", {"reward": "VELA reward", "oracle_f1": "oracle F1"}),
        ("Aspects of the reward", {name: name for name in ("descriptiveness", "relevance", "fluency")}),
    ):
        series = {
            label: [(entry["step"], entry[name]) for entry in results.grpo.curve if name in entry]
            for name, label in names.items()
        }
        series = {label: line for label, line in series.items() if line}
        plots.append((title, list(series), curves(series)))
    return plots


def _value(interval: Interval, sign: str = "") -> str:
    """The estimate; `sign` "+" for differences."""
    return f"{interval.value:{sign}.{_digits(interval)}f}"


def _ends(interval: Interval) -> str:
    """The ends of the interval, such as [0.350, 0.470]."""
    return f"[{interval.low:.{_digits(interval)}f}, {interval.high:.{_digits(interval)}f}]"


def _direction(interval: Interval, measure: str) -> str:
    """CSS class of a difference: better ("up") or worse ("down"), "" if open; length is neither."""
    if not interval.excludes_zero or measure == "words":
        return ""
    return "up" if (interval.low > 0) != (measure == "faults") else "down"


def _digits(interval: Interval) -> int:
    return 1 if abs(interval.value) >= 10 else 3


def _png(image: Image.Image) -> str:
    """The image as a data address, so that the page needs no other file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
