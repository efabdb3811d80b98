"""Of rated captions: how far one rater agrees with the others, and which scores are far from the ratings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.agreement import Comparison, compare_with_raters
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.benchmarks.items import RATINGS
from reward.metaeval.bootstrap import bootstrap_weights
from reward.metaeval.report import Grid, percent


def why_no_raters(benchmark: Benchmark) -> str:
    """Why a benchmark cannot tell how far one rater agrees with the others; empty if it can."""
    if benchmark.spec.form != RATINGS:
        return "no caption is rated"
    for captions, by_aspect in zip(benchmark.rows["captions"], benchmark.rows["ratings"], strict=True):
        for aspect, ratings in by_aspect.items():
            if len(ratings) < 2:
                return f"only one rating of {aspect} is known of the caption {captions[0]!r:.60}, perhaps a mean"
    return ""


def check_range(benchmark: Benchmark) -> None:
    """Raises DataError for ratings outside [0, 1], from which `failures` cannot tell the distance."""
    if benchmark.spec.form != RATINGS:
        raise DataError(f"--threshold needs rated captions, and {benchmark.spec.name} has none: leave it out")
    for captions, by_aspect in zip(benchmark.rows["captions"], benchmark.rows["ratings"], strict=True):
        for aspect, ratings in by_aspect.items():
            if not all(0 <= rating <= 1 for rating in ratings):
                where = f"{benchmark.spec.name}: {aspect} of the caption {captions[0]!r:.60}"
                raise DataError(f"{where} is rated {ratings}; --threshold needs [0, 1]: map 1 to 5 by (r - 1) / 4")


def single_rater(benchmark: Benchmark, scores: Mapping[str, Any], *, resamples: int, seed: int) -> Comparison | None:
    """One rater against the mean of the others, each left out in turn, and metrics against the same means.

    Captions count that are rated in every aspect and scored by every metric; None if there are fewer than two. Of each
    caption the first K ratings count, where K is the smallest number of ratings that a caption has.
    """
    aspects = benchmark.aspects
    given = {label: {name: _column(each, name) for name in aspects} for label, each in scores.items()}
    known = [np.isfinite(column) for own in given.values() for column in own.values()]
    whole = np.array([len(each) == len(aspects) for each in benchmark.rows["ratings"]])
    kept = np.flatnonzero(np.all([*known, whole], axis=0))
    if len(kept) < 2:
        return None
    rows = benchmark.rows.iloc[kept]
    least = {name: min(len(each[name]) for each in rows["ratings"]) for name in aspects}
    raters = {name: np.array([each[name][: least[name]] for each in rows["ratings"]]) for name in aspects}
    weights = bootstrap_weights(len(kept), resamples=resamples, seed=seed, clusters=rows["image_id"].tolist())
    chosen = {label: {name: column[kept] for name, column in own.items()} for label, own in given.items()}
    return compare_with_raters(raters, chosen, weights, variant="b" if benchmark.spec.statistic == "tau-b" else "c")


def rater_grid(title: str, comparison: Comparison) -> Grid:
    """The table of `single_rater`."""
    first, *_ = comparison.agreement.values()
    rows = tuple((name, *(percent(row[each]) for each in first)) for name, row in comparison.agreement.items())
    return Grid(f"{title}: tau x 100 with the mean of all raters but one", ("", *first), rows)


def failures(benchmark: Benchmark, scores: Mapping[str, Any], threshold: float = 0.0) -> list[dict[str, Any]]:
    """Scores that are at least `threshold` away from the mean rating, those of each metric and aspect together.

    Metrics with a score outside [0, 1], where the ratings are, are left out.

    Source: the VELA paper, appendix E, with a threshold of 0.25.
    """
    found = []
    for label, each in scores.items():
        own = {name: _column(each, name) for name in benchmark.aspects}
        in_range = not any(((column < 0) | (column > 1)).any() for column in own.values())
        for aspect, column in own.items() if in_range else ():
            for item, score in zip(benchmark.rows.itertuples(), column, strict=True):
                rating = np.mean(item.ratings.get(aspect, [np.nan]))
                if abs(score - rating) >= threshold - 1e-9:  # rounding; false for NaN
                    what = {"row": label, "aspect": aspect, "image": item.image_id, "rating": float(rating)}
                    texts = {"candidate": item.captions[0], "references": item.references}
                    found.append(what | {"score": float(score), **texts})
    return found


def failure_grids(
    title: str, benchmark: Benchmark, scores: Mapping[str, Any], threshold: float, *, listed: bool
) -> list[Grid]:
    """Numbers and shares of `failures`, and with `listed` each of them, for people to sort into kinds."""
    far, columns = failures(benchmark, scores, threshold), (*benchmark.aspects, "all")
    some, all_ = (
        Counter((each["row"], column) for each in found for column in (each["aspect"], "all"))
        for found in (far, failures(benchmark, scores))
    )
    rows = []
    for label in scores:
        keys = [(label, column) for column in columns]
        rows.append((label, *(f"{some[k]} ({100 * some[k] / all_[k]:.1f} %)" if all_[k] else "-" for k in keys)))
    words = f"{title}: scores at least {threshold:g} away from the mean rating"
    grids = [Grid(words, ("", *columns), tuple(rows))]
    if listed:
        heads = ("row", "aspect", "image", "rating", "score", "candidate")
        cells = [tuple(f"{v:.2f}" if isinstance(v, float) else v for v in (each[h] for h in heads)) for each in far]
        grids.append(Grid(f"{words}, each", heads, tuple(cells)))
    return grids


def _column(scores: Any, aspect: str) -> np.ndarray:
    column = np.asarray(scores[aspect] if isinstance(scores, dict) else scores, dtype=np.float64)
    return column.reshape(len(column), -1)[:, 0]
