"""The report of a scored data set as one HTML page: distributions, drift, errors, best and worst with pictures."""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import ConfigError, ImageError, InvalidSampleError, OutputError
from reward.images import load_image
from reward.metaeval.bootstrap import Interval
from reward.metaeval.correlation import spearman
from reward.metaeval.report import (
    BEST,
    FEW_IMAGES,
    INK,
    SOFT,
    Grid,
    bar_plot,
    blank_figure,
    few_images,
    page_html,
    page_svg,
    versions,
)
from reward.metaeval.scored import WORDS, ScoredSet, read_scored
from reward.metaeval.scored_figures import Agreement, agreements, candidate_gains, drift, mean_of
from reward.optional import require
from reward.registry import metric_spec
from reward.samples import one_image
from reward.scoring.writers import check_output_name, write_text

__all__ = ["write_scored_report"]

_LENGTHS = (5, 10, 20, 40, 80, 160)  # most words of a caption in each bin
_MOST_GROUPS = 20
_MOST_PAIRS = 3  # of metrics whose disagreement is shown in pictures
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
        data: what `capreward score`, `rerank` or `caption` wrote, or a folder of Parquet files.
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
    warnings = warnings_of(now)
    if before is not None and before.data.origin.sources != now.data.origin.sources:
        warnings.append(f"{before.name} was scored otherwise ({_metrics(before)}): drift is then of the metric, too.")
    pairs = agreements(now, examples=options.get("examples", 6))
    grids, plots = [_scores_grid(now)], {name: _histogram(name, now, before) for name in now.values}
    sizes, gains = candidate_gains(now)
    if gains:
        rows = ((name, f"{one.mean:.3f}", f"{one.chosen:.3f}", str(one.gain)) for name, one in gains.items())
        grids.append(Grid(f"The best candidate, by {now.by}", ("", "mean candidate", "best", "gain"), tuple(rows)))
    if pairs:
        grids.append(_agreement_grid(pairs, now))
    if before is not None:
        grids.append(_drift_grid(now, before))
    sections = [("Distributions", plots)]
    splits = {"Caption length": _by_length(now), f"By {per}": _by_group(now) if per else {}}
    for title, places in splits.items():
        if places:
            grids.append(_split_grid(f"{title}: {now.by}", now, places))
            means = {label: _mean(now, rows) for label, rows in places.items()}
            bars = {
                f"mean {now.by}, with 95 % intervals over {_unit(now)}": bar_plot(
                    means, scale=1, unit=f"mean {now.by}", width=4.4
                )
            }
            sections.append((title, bars))
    if now.errors:
        grids.append(_error_grid(now))
    shown = {"Best": now.best, "Worst": now.worst} if now.worst else {"All alike": now.best}
    galleries = [
        {"title": f"{name}, by {now.by}", "cards": [_card(row, now, f"{row['score']:.3f}") for row in rows]}
        for name, rows in shown.items()
        if rows
    ]
    least = sorted(pairs, key=lambda pair: pair.spearman.value)[:_MOST_PAIRS]
    galleries += [_apart_gallery(pair, now) for pair in least if pair.apart]
    html = page_html(
        "report",
        f"Scores of {now.name}",
        {"command": command, "versions": versions()},
        grids,
        [*_notes(now, before), *([] if not gains else [_gain_note(now, sizes)])],
        sections,
        galleries,
        lead=list(_origin(now)),
        warnings=warnings,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, html)
    return now


def _origin(now: ScoredSet) -> Iterator[str]:
    """Where the scores come from."""
    origin = now.data.origin
    if origin.path is None:
        yield (
            f"There is no summary of this content beside {now.name}, so that its metric and checkpoint are not known "
            "here."
        )
        return
    yield (
        f"Scored by {_metrics(now)}"
        + (f", in the columns that begin with {origin.prefix}" if origin.prefix else "")
        + "."
    )
    told = origin.captioning
    if told:
        mean, chosen = told.get("mean_of_all"), told.get("mean_of_chosen")
        rewards = "" if mean is None else f" Mean reward {mean:.3f} of all candidates, {chosen:.3f} of the chosen."
        drawn = f"{told['n']} candidates an image, {told['candidates']:,} in all"
        yield f"Written by the model {told['model']}, chosen by {told['strategy']}: {drawn}.{rewards}"


def _metrics(now: ScoredSet) -> str:
    made = (
        metric if source == "embedded" and not _looks(metric) else f"{metric} (source: {source or 'a Python object'})"
        for metric, source in now.data.origin.sources.items()
    )
    return ", ".join(made) or "nothing that is known"


def warnings_of(now: ScoredSet) -> list[str]:
    """What a reader must know before the figures."""
    data, found = now.data, []
    drawings = [metric for metric, source in data.origin.sources.items() if source == "embedded" and _looks(metric)]
    if drawings:
        found.append(
            f"The source embedded of {' and '.join(drawings)} was trained on drawings of simple scenes and knows "
            "nothing else: of photos, these scores say nothing. Score photos with a checkpoint for photos as source."
        )
    unlike, captions = data.origin.out_of_domain
    if unlike:
        found.append(
            f"{unlike:,} of {captions:,} captions, or their images, are unlike what the checkpoint was trained on: "
            "their scores mean nothing."
        )
    if data.caption is None:
        found.append(
            "No column of captions was found, so that rows are shown without them: name it with --candidate-column."
        )
    if data.image is None:
        over = f"values of {data.cluster}" if data.cluster else "rows, as if no two rows shared an image"
        found.append(
            f"No column of images was found: there are no pictures, and intervals are over {over}. Name it with "
            "--image-column."
        )
    if now.unread:
        found.append(
            f"{len(now.unread):,} pictures are left out, as they could not be read; the first: {now.unread[0]}. If the "
            "data were moved, name the folder that image paths start from with --image-root."
        )
    return found


def _looks(metric: str) -> bool:
    try:
        return metric_spec(metric).needs_image
    except ConfigError:  # of a package that is not installed here
        return False


def _unit(now: ScoredSet) -> str:
    return "images" if now.data.image else f"values of {now.data.cluster}" if now.data.cluster else "rows"


def _notes(now: ScoredSet, before: ScoredSet | None) -> Iterator[str]:
    captions = f" with {now.captions:,} candidates" if now.captions != now.rows else ""
    yield f"{now.rows:,} rows{captions}, {now.unscored:,} of them without {now.by}."
    for name, first in now.equal.items():
        yield f"{name} is not shown: it is the same as {first}."
    for one in (now, *([before] if before else [])):
        if one.sampled < one.captions:
            yield f"Distributions of {one.name} are of {one.sampled:,} of its captions, whole images drawn evenly."
    clusters = len(np.unique(now.images[np.isfinite(now.values[now.by])]))
    yield f"[low, high]: 95 % intervals over {clusters:,} {_unit(now)}."
    if now.data.image and clusters < FEW_IMAGES:
        yield few_images(clusters)
    if before is not None:
        paired = now.data.image and before.data.image
        yield (
            "Drift: difference is the mean now minus the mean before, "
            f"{'paired by images that are in both sets' if paired else 'not paired, for want of images'}. PSI: "
            "population stability index over tenths of the earlier set; below 0.1 is usually called stable, above 0.25 "
            "a large shift. KS: largest difference of the cumulative shares."
        )
    if WORDS in now.values:
        both = np.isfinite(now.values[WORDS]) & np.isfinite(now.values[now.by])
        words, scores = now.values[WORDS][both], now.values[now.by][both]
        if len(np.unique(words)) > 1 and len(np.unique(scores)) > 1:
            yield f"Spearman's correlation of {now.by} with the words of a caption: {spearman(scores, words):.3f}."


def _gain_note(now: ScoredSet, sizes: np.ndarray) -> str:
    few, most = sizes.min(), sizes.max()
    each = f"{few}" if few == most else f"{few} to {most}"
    return (
        f"Best candidate: of {len(sizes):,} images or groups with {each} scored candidates, the one with the highest "
        f"{now.by}; gain is above the mean of its candidates. capreward best-n tells the gain of fewer candidates."
    )


def _agreement_grid(pairs: Sequence[Agreement], now: ScoredSet) -> Grid:
    rows = [
        (f"{one.first} and {one.second}", f"{one.captions:,}", f"{one.images:,}", str(one.spearman), str(one.tau))
        for one in pairs
    ]
    heads = ("", "captions", _unit(now), "Spearman", "Kendall's tau-b")
    return Grid("Do the metrics agree?", heads, tuple(rows))


def _apart_gallery(pair: Agreement, now: ScoredSet) -> dict[str, Any]:
    rows, cards = now.data.rows_at([one.place for one in pair.apart]), []
    for place, first, second, count in pair.apart:
        index = int(np.searchsorted(now.places, place))
        told = (
            f"{name} {now.values[name][index]:.3f}, rank {rank:,g} of {pair.captions:,}"
            for name, rank in ((pair.first, first), (pair.second, second))
        )
        cards.append(_card({**rows[place], "count": count}, now, " · ".join(told)))
    return {"title": f"Where {pair.first} and {pair.second} disagree most, by rank", "cards": cards}


def _scores_grid(now: ScoredSet) -> Grid:
    rows = []
    for name, values in now.values.items():
        there = values[np.isfinite(values)]
        quantiles = np.quantile(there, (0, *_QUANTILES, 1)) if len(there) else np.full(7, np.nan)
        rows.append((name, f"{len(there):,}", str(mean_of(values, now.images)), *(f"{one:.3f}" for one in quantiles)))
    ends = ("min", *(f"{100 * one:g} %" for one in _QUANTILES), "max")
    return Grid("Scores", ("", "captions", "mean", *ends), tuple(rows))


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
    return Grid(title, ("", "captions", "without a score", "mean", "median"), tuple(cells))


def _error_grid(now: ScoredSet) -> Grid:
    kinds = sorted(now.errors.items(), key=lambda item: -item[1][0])
    rows = [
        (f"{kind:.300}", f"{count:,}", f"{100 * count / now.rows:.2f}", f"row {row}: {message:.300}")
        for kind, (count, row, message) in kinds[:_MOST_GROUPS]
    ]
    return Grid(
        f"Errors: {len(kinds)} kind{'s' * (len(kinds) != 1)}", ("", "rows", "% of all", "the first"), tuple(rows)
    )


def _histogram(name: str, now: ScoredSet, before: ScoredSet | None) -> str:
    """Shares of the captions in 40 bins; the earlier set as a line."""
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
    axes.set_xlabel(name, parse_math=False)
    axes.set_ylabel("% of the captions")
    return page_svg(figure)


def _card(row: Mapping[str, Any], now: ScoredSet, figures: str) -> dict[str, Any]:
    """A row on the page; a picture that cannot be read says so in its place."""
    picture, notes = None, [figures, f"row {row['row']}"]
    if row["count"] > 1:
        notes.append(f"{row['count']} rows alike")
    if row["image"] is not None:
        try:
            shown = load_image(one_image(row["image"]), root=now.root)
            shown = shown.copy()
            shown.thumbnail((_SIDE, _SIDE))
            buffer = io.BytesIO()
            shown.save(buffer, "JPEG", quality=85)
            picture = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
        except (ImageError, InvalidSampleError) as error:
            notes.append(f"no picture: {error}")
            now.unread.append(str(error))
    caption = "(no column of captions)" if now.data.caption is None else row["caption"]
    return {"picture": picture, "caption": caption, "figures": " · ".join(notes)}
