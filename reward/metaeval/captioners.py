"""Captioners on the same images: how much better the best one scores, how often each wins, and on which images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reward.errors import DataError
from reward.metaeval.bench import BenchRow, score_row
from reward.metaeval.benchmarks.items import Benchmark
from reward.metaeval.bootstrap import Interval, bootstrap_weights, mean_interval
from reward.metaeval.score_records import ScoreRecord, columns_to_compare
from reward.registry import MetricSource

_REWARD = MetricSource("reward", is_column=True)
# By what an image of one captioner is the same as one of another, the strictest first.
_KEYS: dict[str, Callable[[str], str]] = {
    "path": os.path.abspath,
    "file name": os.path.basename,
    "name": lambda path: Path(path).stem,
}


@dataclass(frozen=True, eq=False)
class Captioners:
    """Captioners by one metric.

    Args:
        metric: its label.
        images: N images that all K captioners have a score for.
        captions: (K, N) a caption of each captioner.
        scores: (K, N) mean score of each captioner's captions of these images.
        best: number of the captioner with the highest mean score, the first of equal ones.
        differences: of each captioner, its mean score minus that of the best, with the 95 % interval of the paired
            bootstrap, which draws images.
        wins: of each captioner, the share of images on which it scores highest, with its interval; captioners with
            equal scores share an image.
        unscored: how many captions of each have no score.
        note: where the scores are from, how many images all have, and what has no score.
    """

    metric: str
    images: Sequence[Any]
    captions: np.ndarray
    scores: np.ndarray
    best: int
    differences: Sequence[Interval]
    wins: Sequence[Interval]
    unscored: Sequence[int]
    note: str


def compare_captioners(
    captioners: Mapping[str, Benchmark],
    metrics: Sequence[MetricSource] = (),
    *,
    records: Mapping[str, Mapping[str, ScoreRecord]] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    **scoring: Any,
) -> Iterator[Captioners]:
    """Compares captioners on the images that all of them have, by each metric.

    Images are the same if their paths are; or their file names, where these give more of them and are unambiguous.

    Args:
        captioners: {name: captions} of at least two, from `reward.metaeval.benchmarks.own_captions.load_captions`.
        metrics: what scores the captions, or scored all files; empty takes the column `reward` that all have.
        records: {name: what made the scores}, from `reward.metaeval.score_records.score_records`.
        resamples, seed: of the bootstrap, which draws images.
        scoring: see `score_benchmark`.

    Raises:
        DataError: fewer than two images are common and scored, there is no metric and no column `reward`, or the
            scores are by different metrics or checkpoints.
    """
    sides = list(captioners.values())
    matched_by, keys = _match_images(sides)
    # Under its key an image of all captioners is one, so that CIDEr counts it once.
    rows = pd.concat([side.rows for side in sides], ignore_index=True)
    names = np.repeat(list(captioners), [len(of_side) for of_side in keys])
    rows = rows.assign(image_id=np.concatenate(keys), captioner=names)
    # Before anything is scored, which may take hours.
    chosen = [(metric, columns_to_compare(metric, captioners, records or {})) for metric in metrics or [_REWARD]]
    for metric, columns_and_origin in chosen:
        if columns_and_origin is None:
            row = BenchRow(metric, len(rows))
            score_row(row, replace(sides[0], rows=rows, columns={}), **scoring)
            scores = np.full(len(rows), np.nan)
            if row.scores is not None:
                scores = row.scores[:, 0]
            remark = f"the first: {row.problem}" if row.errors else ""
        else:
            columns, remark = columns_and_origin
            scores = np.concatenate([side.columns[name][:, 0] for side, name in zip(sides, columns, strict=True)])
        label = metric.label
        if metric.is_column and all(other.name != metric.name for other in metrics if other != metric):
            label = metric.name
        note = f"{len(_common(keys))} images are in all, by {matched_by}; "
        yield _compare(label, rows.assign(score=scores), list(captioners), note, remark, resamples, seed)


def _compare(
    metric: str, rows: pd.DataFrame, names: Sequence[str], note: str, remark: str, resamples: int, seed: int
) -> Captioners:
    """The figures of rows with captioner, image_id, images, captions and score; `note` and `remark` go around its own.

    Raises:
        DataError: fewer than two images have scores of all.
    """
    # An image counts where all have a score of it, by the mean of its captions that have one.
    means = rows.groupby(["captioner", "image_id"], sort=False)["score"].mean().unstack("captioner").dropna()
    note += f"{len(means)} of them have scores of all"
    unscored = rows["score"].isna().groupby(rows["captioner"]).sum()
    if unscored.any():
        counts = [f"{unscored[name]} of {name}" for name in names if unscored[name]]
        note += f"; captions without a score, which do not count: {', '.join(counts)}"
    if remark:
        note += f"; {remark}"
    if len(means) < 2:
        raise DataError(f"{' and '.join(names)} cannot be compared by {metric}: {note}")

    scores = means[names].to_numpy().T
    best = int(np.argmax(scores.mean(axis=1)))
    is_highest = scores == scores.max(axis=0)
    shares = is_highest / is_highest.sum(axis=0)
    weights = bootstrap_weights(len(means), resamples=resamples, seed=seed)
    first_rows = rows.drop_duplicates(["captioner", "image_id"]).set_index(["captioner", "image_id"])
    captions = []
    for name in names:
        captions.append([texts[0] for texts in first_rows.loc[name].loc[means.index]["captions"]])
    return Captioners(
        metric=metric,
        images=[images[0] for images in first_rows.loc[names[0]].loc[means.index]["images"]],
        captions=np.array(captions),
        scores=scores,
        best=best,
        differences=[mean_interval(of_captioner - scores[best], weights) for of_captioner in scores],
        wins=[mean_interval(of_captioner, weights) for of_captioner in shares],
        unscored=[int(unscored[name]) for name in names],
        note=note,
    )


def _match_images(sides: Sequence[Benchmark]) -> tuple[str, list[list[str]]]:
    """By what most images are the same, and the key of each caption's image; no key joins two of one captioner."""
    paths: list[list[str]] = []
    for side in sides:
        paths_of_side = []
        for (image,), image_id in zip(side.rows["images"], side.rows["image_id"], strict=True):
            paths_of_side.append(image if isinstance(image, str) else image_id)
        paths.append(paths_of_side)
    keys_by: dict[str, list[list[str]]] = {}
    for name, key in _KEYS.items():
        keys = [list(map(key, names)) for names in paths]
        # A file name that two images of one side share would join them.
        joins_images = any(len(set(new)) < len(set(old)) for new, old in zip(keys, paths, strict=True))
        if name == "path" or not joins_images:
            keys_by[name] = keys
    best = max(keys_by, key=lambda name: len(_common(keys_by[name])))
    return best, keys_by[best]


def _common(keys: Sequence[Sequence[str]]) -> set[str]:
    """The images that all captioners have."""
    return set.intersection(*map(set, keys))
