"""Of rated captions: how far one rater agrees with the others, and which scores are far from the ratings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.agreement import Comparison, compare_with_raters
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.benchmarks.items import RATINGS
from reward.metaeval.bootstrap import bootstrap_weights
from reward.metaeval.correlation import Variant


def why_no_raters(benchmark: Benchmark) -> str:
    """Why a benchmark cannot tell how far one rater agrees with the others; empty if it can."""
    if benchmark.spec.form != RATINGS:
        return "no caption is rated"
    for item in benchmark.rows.itertuples():
        for aspect, ratings in item.ratings.items():
            if len(ratings) < 2:
                caption = item.captions[0]
                return f"only one rating of {aspect} is known of the caption {caption!r:.60}, perhaps a mean"
    return ""


def check_range(benchmark: Benchmark) -> None:
    """Raises DataError for ratings outside [0, 1], from which `failures` cannot tell the distance."""
    if benchmark.spec.form != RATINGS:
        raise DataError(f"--threshold needs rated captions, and {benchmark.spec.name} has none: leave it out")
    for item in benchmark.rows.itertuples():
        for aspect, ratings in item.ratings.items():
            if min(ratings) < 0 or max(ratings) > 1:
                where = f"{benchmark.spec.name}: {aspect} of the caption {item.captions[0]!r:.60}"
                raise DataError(f"{where} is rated {ratings}; --threshold needs [0, 1]: map 1 to 5 by (r - 1) / 4")


def single_rater(benchmark: Benchmark, scores: Mapping[str, Any], *, resamples: int, seed: int) -> Comparison | None:
    """One rater against the mean of the others, each left out in turn, and metrics against the same means.

    Captions count that are rated in every aspect and scored by every metric; None if there are fewer than two. Of each
    caption the first K ratings count, where K is the smallest number of ratings that a caption has.
    """
    counts = np.array([len(ratings) == len(benchmark.aspects) for ratings in benchmark.rows["ratings"]])
    columns: dict[str, dict[str, np.ndarray]] = {}
    for label, scores_of_metric in scores.items():
        columns[label] = {}
        for aspect in benchmark.aspects:
            column = _column(scores_of_metric, aspect)
            columns[label][aspect] = column
            counts &= np.isfinite(column)
    if counts.sum() < 2:
        return None
    rows = benchmark.rows[counts]
    raters: dict[str, np.ndarray] = {}
    for aspect in benchmark.aspects:
        ratings = [ratings_of_caption[aspect] for ratings_of_caption in rows["ratings"]]
        # Of a caption with more ratings the first count, so that all have as many raters.
        fewest = min(map(len, ratings))
        raters[aspect] = np.array([ratings_of_caption[:fewest] for ratings_of_caption in ratings])
        for by_aspect in columns.values():
            by_aspect[aspect] = by_aspect[aspect][counts]
    weights = bootstrap_weights(len(rows), resamples=resamples, seed=seed, clusters=rows["image_id"].tolist())
    variant: Variant = "b" if benchmark.spec.statistic == "tau-b" else "c"
    return compare_with_raters(raters, columns, weights, variant=variant)


def failures(benchmark: Benchmark, scores: Mapping[str, Any], threshold: float = 0.0) -> list[dict[str, Any]]:
    """Scores that are at least `threshold` away from the mean rating, those of each metric and aspect together.

    Metrics with a score outside [0, 1], where the ratings are, are left out.

    Source: the VELA paper, appendix E, with a threshold of 0.25.
    """
    distant = []
    for label, scores_of_metric in scores.items():
        columns = {aspect: _column(scores_of_metric, aspect) for aspect in benchmark.aspects}
        if any(((column < 0) | (column > 1)).any() for column in columns.values()):
            continue
        for aspect, column in columns.items():
            for item, score in zip(benchmark.rows.itertuples(), column, strict=True):
                rating = float(np.mean(item.ratings.get(aspect, [np.nan])))
                if abs(score - rating) >= threshold - 1e-9:  # rounding; false for NaN
                    failure = {"row": label, "aspect": aspect, "image": item.image_id, "rating": rating}
                    failure |= {"score": float(score), "candidate": item.captions[0], "references": item.references}
                    distant.append(failure)
    return distant


def _column(scores: Any, aspect: str) -> np.ndarray:
    """Scores (N,) of an aspect; of several draws the first."""
    column = np.asarray(scores[aspect] if isinstance(scores, dict) else scores, dtype=np.float64)
    return column.reshape(len(column), -1)[:, 0]
