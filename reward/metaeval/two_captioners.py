"""Two captioners on the same images: how much better one scores, how often, and on which images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from reward.errors import DataError, InvalidSampleError
from reward.metaeval.bench import score_row
from reward.metaeval.bench_table import BenchRow
from reward.metaeval.benchmarks.items import Benchmark, RatedCaption
from reward.metaeval.bootstrap import Interval, bootstrap_weights, mean_difference, mean_interval
from reward.metaeval.report import Grid, page_html, percent, versions
from reward.metaeval.scored import small_picture
from reward.registry import MetricSource
from reward.scoring.writers import write_text

__all__ = ["Captioners", "compare_captioners", "comparison_grid", "write_comparison"]

_KEYS: dict[str, Any] = {"path": os.path.abspath, "file name": os.path.basename, "name": lambda path: Path(path).stem}


@dataclass(frozen=True, eq=False)
class Captioners:
    """Two captioners by one metric.

    Args:
        metric: its label.
        items: for each image that both have a score for, a caption of each captioner.
        scores: (2, N) mean score of each captioner's captions of these images.
        difference: mean of first minus second, with its 95 % interval over images.
        win_rate: share of images on which the first scores higher; equal scores count half.
        note: how many images both have, and what has no score.
    """

    metric: str
    items: Sequence[tuple[RatedCaption, RatedCaption]]
    scores: np.ndarray
    difference: Interval
    win_rate: Interval
    note: str


def compare_captioners(
    sides: Sequence[Benchmark],
    metrics: Sequence[MetricSource] = (),
    *,
    resamples: int = 1000,
    seed: int = 0,
    **options: Any,
) -> Iterator[Captioners]:
    """Compares two captioners on the images that both have, by each metric.

    Images are the same if their paths are; or their file names, where these give more of them and are unambiguous.

    Args:
        sides: two, from `reward.metaeval.benchmarks.own_ratings.load_captions`.
        metrics: what scores the captions; empty takes the column `reward` that both have.
        resamples, seed: of the bootstrap, which draws images.
        options: see `score_benchmark`.

    Raises:
        DataError: fewer than two images are common and scored, or there is no metric and no column `reward`.
    """
    matched_by, keys = _matched(sides)
    common = [key for key in dict.fromkeys(keys[0]) if key in set(keys[1])]
    first: list[dict[str, Any]] = [
        dict(zip(reversed(k), reversed(s.items), strict=True)) for k, s in zip(keys, sides, strict=True)
    ]
    for side in sides if not metrics else ():
        if "reward" not in side.column_names:
            raise DataError(f"{side.spec.name} has no column reward: give --metric, or what `capreward score` wrote")
    both = replace(sides[0], items=[item for side in sides for item in side.items])
    for metric in metrics or [MetricSource("reward", is_column=True)]:
        row = BenchRow(metric, len(both.items))
        score_row(row, both, **options)
        scores = np.full((row.captions, 1), np.nan) if row.scores is None else row.scores
        halves = np.split(scores[:, 0], [len(keys[0])])
        means = np.array([_means(k, half, common) for k, half in zip(keys, halves, strict=True)]).reshape(2, -1)
        scored = np.flatnonzero(np.isfinite(means).all(axis=0))
        note = f"{len(common)} images are in both, by {matched_by}; {len(scored)} of them have scores of both"
        note += f"; {row.errors} captions have none, the first: {row.problem}" if row.errors else ""
        if len(scored) < 2:
            raise DataError(f"{' and '.join(s.spec.name for s in sides)} cannot be compared by {metric.label}: {note}")
        means, weights = means[:, scored], bootstrap_weights(len(scored), resamples=resamples, seed=seed)
        yield Captioners(
            metric.name if metric.is_column else metric.label,
            [(first[0][common[place]], first[1][common[place]]) for place in scored],
            means,
            mean_difference(means[0], means[1], weights),
            mean_interval((np.sign(means[0] - means[1]) + 1) / 2, weights),
            note,
        )


def _matched(sides: Sequence[Benchmark]) -> tuple[str, list[list[str]]]:
    """By what most images are the same, and the key of each caption's image; no key joins two images of a side."""
    found: dict[str, list[list[str]]] = {}
    for name, key in _KEYS.items():
        items = [cast("Sequence[RatedCaption]", side.items) for side in sides]
        paths = [[str(each.image) if isinstance(each.image, str) else each.image_id for each in side] for side in items]
        keys = [[key(path) for path in side] for side in paths]
        if name == "path" or all(len(set(k)) == len(set(p)) for k, p in zip(keys, paths, strict=True)):
            found[name] = keys
    best = max(found, key=lambda name: len(set(found[name][0]) & set(found[name][1])))
    return best, found[best]


def _means(keys: Sequence[str], scores: np.ndarray, images: Sequence[str]) -> list[float]:
    """Mean score of each image's captions that have one; NaN without any."""
    known: dict[str, list[float]] = {}
    for key, score in zip(keys, scores.tolist(), strict=True):
        known.setdefault(key, []).extend([score] if np.isfinite(score) else [])
    return [float(np.mean(known[image])) if known[image] else float("nan") for image in images]


def comparison_grid(names: Sequence[str], found: Sequence[Captioners]) -> Grid:
    """A row for each metric."""
    heads = ("", *names, f"{names[0]} - {names[1]}", f"{names[0]} wins, %", "images")
    rows = []
    for each in found:
        means = (f"{mean:.3f}" for mean in each.scores.mean(axis=1))
        difference = percent(each.difference, scale=1, digits=3, sign="+")
        rows.append((each.metric, *means, difference, percent(each.win_rate), str(len(each.items))))
    return Grid(f"{names[0]} and {names[1]} on the same images", heads, tuple(rows))


def write_comparison(output: Path, names: Sequence[str], found: Sequence[Captioners], command: str, most: int) -> Path:
    """Writes a page with the images on which the first metric sees the largest differences.

    Raises:
        OutputError: it cannot be written.
    """
    one, galleries = found[0], []
    for name, sign in zip(names, (1, -1), strict=True):
        gains = sign * (one.scores[0] - one.scores[1])
        order = [row for row in np.argsort(-gains, kind="stable").tolist() if gains[row] > 0][:most]
        cards = [_card(names, one.items[row], one.scores[:, row]) for row in order]
        galleries += [{"title": f"{name} is better, by {one.metric}", "cards": cards}] if cards else []
    figures = {"command": command, "versions": versions()}
    notes = [f"{each.metric}: {each.note}" for each in found]
    page = page_html("compare", " and ".join(names), figures, [comparison_grid(names, found)], notes, [], galleries)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, page)
    return output


def _card(names: Sequence[str], items: Sequence[RatedCaption], scores: np.ndarray) -> dict[str, Any]:
    texts = [f"{name} ({score:.3f}): {item.candidate}" for name, score, item in zip(names, scores, items, strict=True)]
    try:
        picture, what = small_picture(items[0].image), items[0].image_id
    except InvalidSampleError as error:
        picture, what = None, f"no picture: {error}"
    return {"picture": picture, "caption": "\n".join(texts), "figures": what}
