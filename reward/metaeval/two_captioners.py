"""Two captioners on the same images: how much better one scores, how often, and on which images."""

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
# By what an image of one side is the same as one of the other, the strictest first.
_KEYS: dict[str, Callable[[str], str]] = {
    "path": os.path.abspath,
    "file name": os.path.basename,
    "name": lambda path: Path(path).stem,
}


@dataclass(frozen=True, eq=False)
class Captioners:
    """Two captioners by one metric.

    Args:
        metric: its label.
        images: N images that both have a score for.
        captions: (2, N) a caption of each captioner.
        scores: (2, N) mean score of each captioner's captions of these images.
        difference: mean of first minus second, with its 95 % interval over images.
        win_rate: share of images on which the first scores higher; equal scores count half.
        unscored: how many captions of each have no score.
        note: where the scores are from, how many images both have, and what has no score.
    """

    metric: str
    images: Sequence[Any]
    captions: np.ndarray
    scores: np.ndarray
    difference: Interval
    win_rate: Interval
    unscored: tuple[int, int]
    note: str


def compare_captioners(
    sides: Sequence[Benchmark],
    metrics: Sequence[MetricSource] = (),
    *,
    records: Sequence[Mapping[str, ScoreRecord]] = ({}, {}),
    resamples: int = 1000,
    seed: int = 0,
    **scoring: Any,
) -> Iterator[Captioners]:
    """Compares two captioners on the images that both have, by each metric.

    Images are the same if their paths are; or their file names, where these give more of them and are unambiguous.

    Args:
        sides: two, from `reward.metaeval.benchmarks.own_captions.load_captions`.
        metrics: what scores the captions, or scored both files; empty takes the column `reward` that both have.
        records: what made the scores of each side, from `reward.metaeval.score_records.score_records`.
        resamples, seed: of the bootstrap, which draws images.
        scoring: see `score_benchmark`.

    Raises:
        DataError: fewer than two images are common and scored, there is no metric and no column `reward`, or the
            scores of the two sides are by different metrics or checkpoints.
    """
    matched_by, keys = _match_images(sides)
    shared = len({*keys[0]} & {*keys[1]})
    # Under its key an image of both is one, so that CIDEr counts it once.
    rows = pd.concat([side.rows for side in sides], ignore_index=True)
    rows = rows.assign(image_id=[*keys[0], *keys[1]], side=np.repeat([0, 1], [len(names) for names in keys]))
    # Before anything is scored, which may take hours.
    chosen = [(metric, columns_to_compare(metric, sides, records)) for metric in metrics or [_REWARD]]
    for metric, columns_and_origin in chosen:
        label = metric.name if metric.is_column else metric.label
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
        scored = rows.assign(score=scores)
        unscored = scored["score"].isna().groupby(scored["side"]).sum()
        # An image counts where both have a score of it, by the mean of its captions that have one.
        means = scored.groupby(["side", "image_id"], sort=False)["score"].mean().unstack("side").dropna()
        notes = [f"{shared} images are in both, by {matched_by}; {len(means)} of them have scores of both"]
        if unscored.any():
            names = f"{unscored[0]} captions of {sides[0].spec.name} and {unscored[1]} of {sides[1].spec.name}"
            notes.append(f"{names} have no score, and do not count")
        if remark:
            notes.append(remark)
        note = "; ".join(notes)
        if len(means) < 2:
            raise DataError(f"{' and '.join(side.spec.name for side in sides)} cannot be compared by {label}: {note}")
        first_rows = rows.drop_duplicates(["side", "image_id"]).set_index(["side", "image_id"])
        shown = [first_rows.loc[side].loc[means.index] for side in (0, 1)]
        pairs = means[[0, 1]].to_numpy().T
        gains = pairs[0] - pairs[1]
        weights = bootstrap_weights(len(means), resamples=resamples, seed=seed)
        yield Captioners(
            label,
            [images[0] for images in shown[0]["images"]],
            np.array([[texts[0] for texts in side["captions"]] for side in shown]),
            pairs,
            mean_interval(gains, weights),
            mean_interval((np.sign(gains) + 1) / 2, weights),
            (int(unscored[0]), int(unscored[1])),
            note,
        )


def _match_images(sides: Sequence[Benchmark]) -> tuple[str, list[list[str]]]:
    """By what most images are the same, and the key of each caption's image; no key joins two images of a side."""
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
    best = max(keys_by, key=lambda name: len(set(keys_by[name][0]) & set(keys_by[name][1])))
    return best, keys_by[best]
