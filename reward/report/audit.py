"""The report of an audit: which attacks win, and what captions that say nothing earn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from reward.metaeval.audit.auditing import Audit
from reward.report.plots import BEST, intervals
from reward.report.report import Report
from reward.report.tables import Table, cell_text, few_images, frame_of_rows, percent

_SHORT = 160  # characters of an example in a note


def audit_report(audit: Audit, *, command: str) -> Report:
    """The attacks and the captions that say nothing, by each metric."""
    wins: dict[str, dict[str, Any]] = {}
    changes: dict[str, dict[str, Any]] = {}
    rewards: dict[str, dict[str, Any]] = {}
    plots = {}
    for label, metric in audit.metrics.items():
        for name, finding in metric.findings.items():
            row = wins.setdefault(name, {"captions": 0})
            # Metrics may have scored different numbers of captions; the column has the largest.
            row["captions"] = max(row["captions"], finding.captions)
            row[label] = percent(finding.wins)
            changes.setdefault(name, {})[label] = finding.change
        rewards.setdefault("the captions as they are", {})[label] = metric.mean
        for text, reward in metric.nothing.items():
            rewards.setdefault(repr(text), {})[label] = reward
        shares = {name: finding.wins for name, finding in metric.findings.items()}
        worst_attack, _ = metric.worst
        plots[label] = partial(intervals, shares, "wins, %", colours={worst_attack: BEST}, scale=100)
    tables = [
        Table("Attacked captions that win, in %", frame_of_rows(wins, head="attack")),
        Table("Mean change of the reward by an attack", frame_of_rows(changes, head="attack"), form="+.3f"),
        Table("Mean reward of captions that say nothing", frame_of_rows(rewards, head="caption"), form=".3f"),
    ]
    return Report(
        "audit",
        "Can the metric be cheated?",
        command,
        {"seed": audit.seed, "resamples": audit.resamples, "images": audit.images},
        tables,
        list(_notes(audit)),
        plots=[("Attacked captions that win", plots)],
    )


def _notes(audit: Audit) -> Iterator[str]:
    """What a reader must know to trust the tables."""
    yield (
        f"{audit.images} images. An attacked caption wins if its reward is higher than that of what was attacked. "
        "Intervals: 95 %, bootstrap over images."
    )
    yield from few_images(audit.images)
    for label, metric in audit.metrics.items():
        name, finding = metric.worst
        share = cell_text(percent(finding.wins))
        yield f"{label}: {name} wins most often, in {share} % of {finding.captions} captions."
        if finding.examples:
            before, after, reward_before, reward_after = finding.examples[0]
            yield f"{label}: {reward_before:.3f} for {_shorten(before)!r}, {reward_after:.3f} for {_shorten(after)!r}."
        if metric.longer is not None:
            share = cell_text(percent(metric.longer))
            yield f"{label}: the longer of two captions with the same facts wins in {share} %; 50 is no length bias."
        unscored, reason = metric.unscored
        if unscored:
            yield f"{label}: {unscored} captions could not be scored; the first: {reason}"
    if audit.skipped:
        kinds = ", ".join(f"{name} {count}" for name, count in audit.skipped.items())
        yield f"Captions that an attack did not fit, or that the oracle did not find worse: {kinds}."


def _shorten(text: str) -> str:
    """The end of a text, where attacks add words."""
    text = " ".join(text.split())
    return text if len(text) <= _SHORT else "... " + text[-_SHORT:]
