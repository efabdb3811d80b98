"""Two captioners on the same images: how much better one scores, how often, and on which images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reward.errors import DataError
from reward.metaeval.bench import BenchRow, score_row
from reward.metaeval.benchmarks.items import Benchmark
from reward.metaeval.bootstrap import Interval, bootstrap_weights, mean_interval
from reward.metaeval.report import Grid, page_html, percent, picture_card, versions
from reward.registry import MetricSource
from reward.scoring.writers import write_text

_KEYS: dict[str, Any] = {"path": os.path.abspath, "file name": os.path.basename, "name": lambda path: Path(path).stem}


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
        note: how many images both have, and what has no score.
    """

    metric: str
    images: Sequence[Any]
    captions: np.ndarray
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
    **scoring: Any,
) -> Iterator[Captioners]:
    """Compares two captioners on the images that both have, by each metric.

    Images are the same if their paths are; or their file names, where these give more of them and are unambiguous.

    Args:
        sides: two, from `reward.metaeval.benchmarks.own_ratings.load_captions`.
        metrics: what scores the captions; empty takes the column `reward` that both have.
        resamples, seed: of the bootstrap, which draws images.
        scoring: see `score_benchmark`.

    Raises:
        DataError: fewer than two images are common and scored, or there is no metric and no column `reward`.
    """
    matched_by, keys = _matched(sides)
    for side in sides if not metrics else ():
        if "reward" not in side.columns:
            raise DataError(f"{side.spec.name} has no column reward: give --metric, or what `capreward score` wrote")
    rows = pd.concat([side.rows for side in sides], ignore_index=True)
    # Under its key an image of both is one, so that CIDEr counts it once.
    rows = rows.assign(image_id=[*keys[0], *keys[1]], side=np.repeat([0, 1], [len(each) for each in keys]))
    columns = {} if metrics else {"reward": np.concatenate([side.columns["reward"] for side in sides])}
    both = replace(sides[0], rows=rows, columns=columns)
    common = len({*keys[0]} & {*keys[1]})
    for metric in metrics or [MetricSource("reward", is_column=True)]:
        row = BenchRow(metric, len(rows))
        score_row(row, both, **scoring)
        scored = rows.assign(score=np.nan if row.scores is None else row.scores[:, 0])
        means = scored.groupby(["side", "image_id"], sort=False)["score"].mean().unstack("side").dropna()
        note = f"{common} images are in both, by {matched_by}; {len(means)} of them have scores of both"
        note += f"; {row.errors} captions have none, the first: {row.problem}" if row.errors else ""
        if len(means) < 2:
            raise DataError(f"{' and '.join(s.spec.name for s in sides)} cannot be compared by {metric.label}: {note}")
        first = rows.drop_duplicates(["side", "image_id"]).set_index(["side", "image_id"])
        shown = [first.loc[side].loc[means.index] for side in (0, 1)]
        scores, weights = means[[0, 1]].to_numpy().T, bootstrap_weights(len(means), resamples=resamples, seed=seed)
        yield Captioners(
            metric.name if metric.is_column else metric.label,
            [images[0] for images in shown[0]["images"]],
            np.array([[texts[0] for texts in side["captions"]] for side in shown]),
            scores,
            mean_interval(scores[0] - scores[1], weights),
            mean_interval((np.sign(scores[0] - scores[1]) + 1) / 2, weights),
            note,
        )


def _matched(sides: Sequence[Benchmark]) -> tuple[str, list[list[str]]]:
    """By what most images are the same, and the key of each caption's image; no key joins two images of a side."""
    found: dict[str, list[list[str]]] = {}
    for name, key in _KEYS.items():
        named = [list(zip(side.rows["images"], side.rows["image_id"], strict=True)) for side in sides]
        paths = [
            [str(shown[0]) if isinstance(shown[0], str) else image_id for shown, image_id in each] for each in named
        ]
        keys = [[key(path) for path in side] for side in paths]
        if name == "path" or all(len(set(k)) == len(set(p)) for k, p in zip(keys, paths, strict=True)):
            found[name] = keys
    best = max(found, key=lambda name: len(set(found[name][0]) & set(found[name][1])))
    return best, found[best]


def comparison_grid(names: Sequence[str], found: Sequence[Captioners]) -> Grid:
    """A row for each metric."""
    heads = ("", *names, f"{names[0]} - {names[1]}", f"{names[0]} wins, %", "images")
    rows = []
    for each in found:
        means = (f"{mean:.3f}" for mean in each.scores.mean(axis=1))
        difference = percent(each.difference, scale=1, digits=3, sign="+")
        rows.append((each.metric, *means, difference, percent(each.win_rate), str(len(each.images))))
    return Grid(f"{names[0]} and {names[1]} on the same images", heads, tuple(rows))


def write_comparison(output: Path, names: Sequence[str], found: Sequence[Captioners], command: str, most: int) -> Path:
    """Writes a page with the images on which the first metric sees the largest differences."""
    one, galleries = found[0], []
    for name, gains in zip(names, (one.scores[0] - one.scores[1], one.scores[1] - one.scores[0]), strict=True):
        order = [row for row in np.argsort(-gains, kind="stable").tolist() if gains[row] > 0][:most]
        cards = []
        for row in order:
            texts = zip(names, one.scores[:, row], one.captions[:, row], strict=True)
            caption = "\n".join(f"{who} ({score:.3f}): {text}" for who, score, text in texts)
            cards.append(picture_card(one.images[row], caption))
        galleries += [{"title": f"{name} is better, by {one.metric}", "cards": cards}] if cards else []
    figures = {"command": command, "versions": versions()}
    notes = [f"{each.metric}: {each.note}" for each in found]
    page = page_html("compare", " and ".join(names), figures, [comparison_grid(names, found)], notes, [], galleries)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, page)
    return output
