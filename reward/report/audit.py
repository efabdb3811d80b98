"""The report of an audit: which attacks win, and what captions that say nothing earn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from reward.metaeval.audit.auditing import Audit
from reward.report.plots import BEST, intervals
from reward.report.report import Report
from reward.report.tables import Table, column_frame, few_images, percent

_SHORT = 160  # characters of an example in a note


def audit_report(audit: Audit, *, command: str) -> Report:
    """The attacks and the captions that say nothing, by each metric."""
    metrics: dict[str, dict[str, Any]] = {}
    plots = {}
    for label, metric in audit.metrics.items():
        metrics[label] = {
            "attacks": metric.findings,
            "nothing": metric.nothing,
            "longer_wins": metric.longer,
            "mean": metric.mean,
            "unscored": metric.unscored[0],
        }
        wins = {name: finding.wins for name, finding in metric.findings.items()}
        plots[label] = partial(intervals, wins, "wins, %", colours={metric.worst[0]: BEST}, scale=100)
    figures = {
        "seed": audit.seed,
        "resamples": audit.resamples,
        "images": audit.images,
        "metrics": metrics,
        "skipped": audit.skipped,
    }
    return Report(
        "audit",
        "Can the metric be cheated?",
        command,
        figures,
        [_attacks(audit), _empty_captions(audit)],
        list(_notes(audit)),
        plots=[("Attacked captions that win", plots)],
    )


def _attacks(audit: Audit) -> Table:
    """Share of captions where the attacked one wins, in percent with its interval, and in brackets the mean change."""
    captions: dict[str, int] = {}
    columns: dict[str, dict[str, str]] = {"captions": {}}
    for label, metric in audit.metrics.items():
        columns[label] = {}
        for name, finding in metric.findings.items():
            # Metrics may have scored different numbers of captions; the column has the largest.
            captions[name] = max(captions.get(name, 0), finding.captions)
            columns["captions"][name] = str(captions[name])
            columns[label][name] = f"{percent(finding.wins)} ({finding.change.value:+.3f})"
    title = "Attacked captions that win, in % (mean change of the reward)"
    return Table(title, column_frame(columns, head="attack"))


def _empty_captions(audit: Audit) -> Table:
    """Mean rewards of captions as they are and of captions that say nothing, and the length bias."""
    columns: dict[str, dict[str, str]] = {}
    for label, metric in audit.metrics.items():
        columns[label] = {"the captions as they are": f"{metric.mean:.3f}"}
        for text, reward in metric.nothing.items():
            columns[label][repr(text)] = f"{reward:.3f}"
        if metric.longer is not None:
            columns[label]["the longer of two captions with the same facts wins, %"] = percent(metric.longer)
    return Table("Mean reward of captions that say nothing", column_frame(columns, head="caption"))


def _notes(audit: Audit) -> Iterator[str]:
    """What a reader must know to trust the tables."""
    yield (
        f"{audit.images} images. An attacked caption wins if its reward is higher than that of what was attacked. "
        "Intervals: 95 %, bootstrap over images."
    )
    yield from few_images(audit.images)
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
    """The end of a text, where attacks add words."""
    text = " ".join(text.split())
    return text if len(text) <= _SHORT else "... " + text[-_SHORT:]
