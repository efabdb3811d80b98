"""The audit as tables, remarks, JSON, and a page with plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.metaeval.audit.run import Audit
from reward.metaeval.report import Grid, bar_plot, check_report, few_images, percent, plain, versions, write_pages

_SHORT = 160  # characters of an example in a table


def attack_grid(audit: Audit) -> Grid:
    """Share of captions where the attacked one wins, in percent with its interval, and in brackets the mean change."""
    heads = ("attack", "captions", *audit.metrics)
    rows = []
    for name in dict.fromkeys(name for metric in audit.metrics.values() for name in metric.findings):
        captions = 0
        cells = []
        for metric in audit.metrics.values():
            finding = metric.findings.get(name)
            if finding is None:
                cells.append("-")
                continue
            captions = max(captions, finding.captions)
            cells.append(f"{percent(finding.wins)} ({finding.change.value:+.3f})")
        rows.append((name, str(captions), *cells))
    return Grid("Attacked captions that win, in % (mean change of the reward)", heads, tuple(rows))


def level_grid(audit: Audit) -> Grid:
    """Mean rewards of captions as they are and of captions that say nothing, and the length bias."""
    metrics = audit.metrics.values()
    rows = [("the captions as they are", *(f"{metric.mean:.3f}" for metric in metrics))]
    for text in dict.fromkeys(text for metric in metrics for text in metric.nothing):
        cells = [f"{metric.nothing[text]:.3f}" if text in metric.nothing else "-" for metric in metrics]
        rows.append((repr(text), *cells))
    if any(metric.longer is not None for metric in metrics):
        name = "the longer of two captions with the same facts wins, %"
        rows.append((name, *(percent(metric.longer) for metric in metrics)))
    return Grid("Mean reward of captions that say nothing", ("caption", *audit.metrics), tuple(rows))


def notes(audit: Audit) -> Iterator[str]:
    """What a reader must know to trust the tables."""
    yield (
        f"{audit.images} images. An attacked caption wins if its reward is higher than that of what was attacked. "
        "Intervals: 95 %, bootstrap over images."
    )
    if audit.images < 10:
        yield few_images(audit.images)
    for label, metric in audit.metrics.items():
        name, finding = metric.worst
        yield f"{label}: {name} wins most often, in {percent(finding.wins)} % of {finding.captions} captions."
        if finding.examples:
            before, after, low, high = finding.examples[0]
            yield f"{label}: {low:.3f} for {_cut(before)!r}, {high:.3f} for {_cut(after)!r}."
        if metric.unscored[0]:
            yield f"{label}: {metric.unscored[0]} captions could not be scored; the first: {metric.unscored[1]}"
    if audit.skipped:
        kinds = ", ".join(f"{name} {count}" for name, count in audit.skipped.items())
        yield f"Captions that an attack did not fit, or that the oracle did not find worse: {kinds}."


def to_json(audit: Audit, *, command: str) -> dict[str, Any]:
    """Everything of an audit as plain data."""
    metrics = {}
    for label, metric in audit.metrics.items():
        metrics[label] = {
            "attacks": {name: vars(finding) for name, finding in metric.findings.items()},
            "nothing": metric.nothing,
            "longer_wins": metric.longer,
            "mean": metric.mean,
            "unscored": metric.unscored[0],
        }
    figures: dict[str, Any] = plain(
        {
            "command": command,
            "versions": versions(),
            "seed": audit.seed,
            "resamples": audit.resamples,
            "images": audit.images,
            "metrics": metrics,
            "skipped": audit.skipped,
        }
    )
    return figures


def write_report(folder: Path, audit: Audit, figures: dict[str, Any]) -> Path:
    """Writes audit.json, audit.md and audit.html into a folder, or one of them alone, and gives the path of the page.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: a file cannot be written.
    """
    check_report(folder)
    bars = {}
    if folder.suffix != ".json":
        for label, metric in audit.metrics.items():
            wins = {name: finding.wins for name, finding in metric.findings.items()}
            bars[label] = bar_plot(wins, best=metric.worst[0], unit="wins, %")
    sections = [("Attacked captions that win", bars)]
    grids = [attack_grid(audit), level_grid(audit)]
    return write_pages(folder, "audit", "Can the metric be cheated?", figures, grids, list(notes(audit)), sections)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHORT else "... " + text[-_SHORT:]
