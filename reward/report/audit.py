"""The report of an audit: which attacks win, and what captions that say nothing earn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from reward.metaeval.audit.auditing import Audit
from reward.report.page import Report
from reward.report.plots import bar_plot
from reward.report.tables import Grid, column_grid, few_images, percent

_SHORT = 160  # characters of an example in a note


def audit_report(audit: Audit, *, command: str) -> Report:
    """The attacks and the captions that say nothing, by each metric."""
    metrics: dict[str, dict[str, Any]] = {}
    bars = {}
    for label, metric in audit.metrics.items():
        metrics[label] = {
            "attacks": metric.findings,
            "nothing": metric.nothing,
            "longer_wins": metric.longer,
            "mean": metric.mean,
            "unscored": metric.unscored[0],
        }
        wins = {name: finding.wins for name, finding in metric.findings.items()}
        bars[label] = partial(bar_plot, wins, best=metric.worst[0], unit="wins, %")
    figures = {
        "seed": audit.seed,
        "resamples": audit.resamples,
        "images": audit.images,
        "metrics": metrics,
        "skipped": audit.skipped,
    }
    grids = [_attack_grid(audit), _level_grid(audit)]
    sections = [("Attacked captions that win", bars)]
    return Report(
        "audit", "Can the metric be cheated?", command, figures, grids, list(_notes(audit)), sections=sections
    )


def _attack_grid(audit: Audit) -> Grid:
    """Share of captions where the attacked one wins, in percent with its interval, and in brackets the mean change."""
    captions: dict[str, int] = {}
    columns: dict[str, dict[str, str]] = {"captions": {}}
    for label, metric in audit.metrics.items():
        columns[label] = {}
        for name, finding in metric.findings.items():
            captions[name] = max(captions.get(name, 0), finding.captions)
            columns["captions"][name] = str(captions[name])
            columns[label][name] = f"{percent(finding.wins)} ({finding.change.value:+.3f})"
    title = "Attacked captions that win, in % (mean change of the reward)"
    return column_grid(title, columns, head="attack")


def _level_grid(audit: Audit) -> Grid:
    """Mean rewards of captions as they are and of captions that say nothing, and the length bias."""
    columns: dict[str, dict[str, str]] = {}
    for label, metric in audit.metrics.items():
        columns[label] = {"the captions as they are": f"{metric.mean:.3f}"}
        for text, reward in metric.nothing.items():
            columns[label][repr(text)] = f"{reward:.3f}"
        if metric.longer is not None:
            columns[label]["the longer of two captions with the same facts wins, %"] = percent(metric.longer)
    return column_grid("Mean reward of captions that say nothing", columns, head="caption")


def _notes(audit: Audit) -> Iterator[str]:
    """What a reader must know to trust the tables."""
    yield (
        f"{audit.images} images. An attacked caption wins if its reward is higher than that of what was attacked. "
        "Intervals: 95 %, bootstrap over images."
    )
    warning = few_images(audit.images)
    if warning:
        yield warning
    for label, metric in audit.metrics.items():
        name, finding = metric.worst
        yield f"{label}: {name} wins most often, in {percent(finding.wins)} % of {finding.captions} captions."
        if finding.examples:
            before, after, low, high = finding.examples[0]
            yield f"{label}: {low:.3f} for {_shorten(before)!r}, {high:.3f} for {_shorten(after)!r}."
        if metric.unscored[0]:
            yield f"{label}: {metric.unscored[0]} captions could not be scored; the first: {metric.unscored[1]}"
    if audit.skipped:
        kinds = ", ".join(f"{name} {count}" for name, count in audit.skipped.items())
        yield f"Captions that an attack did not fit, or that the oracle did not find worse: {kinds}."


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHORT else "... " + text[-_SHORT:]
