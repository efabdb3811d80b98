"""The report of a scored data set as one HTML page: distributions, drift, errors, best and worst with pictures."""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import ImageError, OutputError
from reward.images import load_image
from reward.metaeval.bootstrap import Interval
from reward.metaeval.correlation import spearman
from reward.metaeval.report import (
    BEST,
    INK,
    SOFT,
    Grid,
    bar_plot,
    blank_figure,
    page_html,
    page_svg,
    versions,
    write_text,
)
from reward.metaeval.scored import WORDS, ScoredSet, drift, mean_of, read_scored
from reward.optional import require
from reward.samples import one_image
from reward.scoring.writers import check_output_name, write_atomically

__all__ = ["write_scored_report"]

_LENGTHS = (5, 10, 20, 40, 80, 160)  # most words of a caption in each bin
_MOST_GROUPS = 20
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SIDE = 280  # pixels of a picture on the page


def write_scored_report(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    against: str | os.PathLike[str] | None = None,
    per: str | None = None,
    command: str = "",
    overwrite: bool = False,
    **options: Any,
) -> ScoredSet:
    """Writes a page that needs no other file, with plots for light and dark screens.

    Args:
        data: what `capreward score` wrote, or a folder of Parquet files.
        output: `.html` file.
        against: an earlier scored set; the page then shows how far scores differ from it.
        per: column whose values are compared, such as the source of a row.
        command: as it was typed, for the page.
        overwrite: replace an output that is there.
        options: further arguments of `read_scored`, for both sets: by, candidate_column, image_column, split,
            image_root, examples, sample.

    Returns:
        The figures of `data`.

    Raises:
        MissingExtraError: matplotlib is not installed.
        DataError: the data cannot be read, or hold no scores.
        OutputError: the output is there already, or cannot be written.
    """
    target = Path(output)
    require("matplotlib", extra="report", purpose="a report with plots")
    check_output_name(target, ".html")
    if target.exists() and not overwrite:
        raise OutputError(f"{target} is there already; give another --output, or replace it with --overwrite")
    now = read_scored(data, per=per, **options)
    before = None if against is None else read_scored(against, **options)
    grids, plots = [_scores_grid(now)], {name: _histogram(name, now, before) for name in now.values}
    if before is not None:
        grids.append(_drift_grid(now, before))
    sections = [{"title": "Distributions", "bars": plots, "scatters": []}]
    splits = {"Caption length": _by_length(now), f"By {per}": _by_group(now) if per else {}}
    for title, rows in splits.items():
        if rows:
            grids.append(_split_grid(f"{title}: {now.by}", now, rows))
            means = {label: _mean(now, places) for label, places in rows.items()}
            bars = {f"mean {now.by}, with 95 % intervals": bar_plot(means, scale=1)}
            sections.append({"title": title, "bars": bars, "scatters": []})
    if now.errors:
        grids.append(_error_grid(now))
    galleries = [
        {"title": f"{name}, by {now.by}", "cards": [_card(row, now) for row in rows]}
        for name, rows in (("Best", now.best), ("Worst", now.worst))
    ]
    html = page_html(
        "report",
        f"Scores of {now.name}",
        {"command": command, "versions": versions()},
        grids,
        list(_notes(now, before)),
        sections,
        galleries,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, partial(write_text, text=html))
    return now


def _notes(now: ScoredSet, before: ScoredSet | None) -> Iterator[str]:
    yield f"{now.rows:,} rows, {now.unscored:,} of them without {now.by}."
    for one in (now, *([before] if before else [])):
        if one.sampled < one.rows:
            yield f"Distributions of {one.name} are of {one.sampled:,} of its rows, whole images drawn evenly."
    yield "[low, high]: 95 % intervals that allow for several captions of an image."
    if before is not None:
        yield (
            "Drift: difference is the mean now minus the mean before, paired by images that are in both sets. PSI: "
            "population stability index over tenths of the earlier set; below 0.1 is usually called stable, above 0.25 "
            "a large shift. KS: largest difference of the cumulative shares."
        )
    if WORDS in now.values:
        both = np.isfinite(now.values[WORDS]) & np.isfinite(now.values[now.by])
        words, scores = now.values[WORDS][both], now.values[now.by][both]
        if len(np.unique(words)) > 1 and len(np.unique(scores)) > 1:
            yield f"Spearman's correlation of {now.by} with the words of a caption: {spearman(scores, words):.3f}."


def _scores_grid(now: ScoredSet) -> Grid:
    rows = []
    for name, values in now.values.items():
        there = values[np.isfinite(values)]
        quantiles = np.quantile(there, (0, *_QUANTILES, 1)) if len(there) else np.full(7, np.nan)
        rows.append((name, f"{len(there):,}", str(mean_of(values, now.images)), *(f"{one:.3f}" for one in quantiles)))
    ends = ("min", *(f"{100 * one:g} %" for one in _QUANTILES), "max")
    return Grid("Scores", ("", "rows", "mean", *ends), tuple(rows))


def _drift_grid(now: ScoredSet, before: ScoredSet) -> Grid:
    rows = []
    for name, found in drift(now, before).items():
        means = [f"{np.nanmean(one.values[name]):.3f}" for one in (before, now)]
        size = "stable" if found.psi < 0.1 else "large" if found.psi > 0.25 else "moderate"
        rows.append((name, *means, str(found.difference), f"{found.psi:.3f} ({size})", f"{found.ks:.3f}"))
    return Grid(f"Drift from {before.name}", ("", "before", "now", "difference", "PSI", "KS"), tuple(rows))


def _by_length(now: ScoredSet) -> dict[str, np.ndarray]:
    """{words: places of the rows}."""
    if WORDS not in now.values:
        return {}
    words, low, found = now.values[WORDS], 0, {}
    for high in (*_LENGTHS, np.inf):
        places = np.flatnonzero((words > low) & (words <= high))
        if len(places):
            found[f"{low + 1} to {high}" if high < np.inf else f"above {low}"] = places
        low = int(min(high, _LENGTHS[-1]))
    return found


def _by_group(now: ScoredSet) -> dict[str, np.ndarray]:
    """{value: places of the rows}: the commonest values, and the others together."""
    labels = np.array(now.groups, dtype=object)
    common = [label for label, _ in Counter(now.groups).most_common(_MOST_GROUPS)]
    found = {label: np.flatnonzero(labels == label) for label in common}
    rest = np.flatnonzero(~np.isin(labels, common))
    return found | ({f"{len(set(labels[rest]))} other values": rest} if len(rest) else {})


def _mean(now: ScoredSet, places: np.ndarray) -> Interval:
    return mean_of(now.values[now.by][places], now.images[places])


def _split_grid(title: str, now: ScoredSet, rows: Mapping[str, np.ndarray]) -> Grid:
    cells = []
    for label, places in rows.items():
        scores = now.values[now.by][places]
        there = scores[np.isfinite(scores)]
        middle = f"{np.median(there):.3f}" if len(there) else "-"
        counts = (f"{len(places):,}", f"{len(places) - len(there):,}")
        cells.append((label, *counts, str(_mean(now, places)) if len(there) else "-", middle))
    return Grid(title, ("", "rows", "without a score", "mean", "median"), tuple(cells))


def _error_grid(now: ScoredSet) -> Grid:
    kinds = sorted(now.errors.items(), key=lambda item: -item[1][0])
    rows = [
        (f"{kind:.120}", f"{count:,}", f"{100 * count / now.rows:.2f}", f"row {row}: {message:.120}")
        for kind, (count, row, message) in kinds[:_MOST_GROUPS]
    ]
    return Grid(f"Errors: {len(kinds)} kinds", ("", "rows", "% of all", "the first"), tuple(rows))


def _histogram(name: str, now: ScoredSet, before: ScoredSet | None) -> str:
    """Shares of the rows in 40 bins; the earlier set as a line."""
    figure, axes = blank_figure(2.4, width=4.4)
    sets = [one.values[name] for one in (now, before) if one is not None and name in one.values]
    finite = [values[np.isfinite(values)] for values in sets]
    if any(len(values) for values in finite):
        bins = np.histogram_bin_edges(np.concatenate(finite), bins=40)
        styles: Sequence[dict[str, Any]] = ({"color": BEST, "label": "now"}, {"color": INK, "label": "before"})
        for values, style, kind in zip(finite, styles, ("stepfilled", "step"), strict=False):
            weights = np.full(len(values), 100 / max(1, len(values)))
            axes.hist(values, bins, weights=weights, histtype=kind, lw=1.2, **style)
    if len(sets) > 1:
        axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    axes.grid(axis="y", color=SOFT, alpha=0.25, lw=0.6)
    axes.set_ylabel("% of the rows")
    return page_svg(figure)


def _card(row: Mapping[str, Any], now: ScoredSet) -> dict[str, Any]:
    """A row on the page; a picture that cannot be read says so in its place."""
    picture, note = None, ""
    if row["image"] is not None:
        try:
            shown = load_image(one_image(row["image"]), root=now.root)
            shown = shown.copy()
            shown.thumbnail((_SIDE, _SIDE))
            buffer = io.BytesIO()
            shown.save(buffer, "JPEG", quality=85)
            picture = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
        except ImageError as error:
            note = f" · no picture: {error}"
    return {"picture": picture, "caption": row["caption"], "figures": f"{row['score']:.3f} · row {row['row']}{note}"}
