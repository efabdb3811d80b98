"""Of rated captions: how far one rater agrees with the others, and which scores are far from the ratings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from reward.errors import DataError
from reward.metaeval.agreement import Comparison, compare_with_raters
from reward.metaeval.bench_table import BenchTable
from reward.metaeval.benchmarks import Benchmark, RatedCaption
from reward.metaeval.bootstrap import bootstrap_weights
from reward.metaeval.report import Grid, percent

__all__ = ["check_people", "failure_grids", "failures", "rater_grid", "single_rater"]


def check_people(benchmark: Benchmark, *, raters: bool, threshold: float | None) -> None:
    """Raises DataError for captions of one rating (with `raters`), or ratings outside [0, 1] (with `threshold`)."""
    for item in benchmark.items if raters or threshold is not None else ():
        option = "--raters" if raters else "--threshold"
        if not isinstance(item, RatedCaption):
            raise DataError(f"{option} needs rated captions, and {benchmark.spec.name} has none: leave it out")
        for aspect, ratings in item.ratings.items():
            where = f"{benchmark.spec.name}: {aspect} of the caption {item.candidate!r:.60}"
            if raters and len(ratings) < 2:
                raise DataError(f"{where} has one rating, perhaps a mean; --raters needs the rating of each person")
            if threshold is not None and not all(0 <= rating <= 1 for rating in ratings):
                raise DataError(f"{where} is rated {ratings}; --threshold needs [0, 1]: map 1 to 5 by (r - 1) / 4")


def single_rater(table: BenchTable, *, resamples: int, seed: int) -> Comparison | None:
    """One rater against the mean of the others, each left out in turn, and the rows of a table against the same means.

    Captions count that are rated in every aspect and scored by every row; None if there are fewer than two. Of each
    caption the first K ratings count, where K is the smallest number of ratings that a caption has.
    """
    benchmark, rows = table.benchmark, [row for row in table.rows if row.scores is not None]
    every = cast("Sequence[RatedCaption]", benchmark.items)
    scores = {row.metric.label: {name: _column(row.scores, name) for name in benchmark.aspects} for row in rows}
    known = np.all([np.isfinite(column) for own in scores.values() for column in own.values()], axis=0)
    kept = np.flatnonzero(known & [len(item.ratings) == len(benchmark.aspects) for item in every])
    if len(kept) < 2:
        return None
    items = [every[int(place)] for place in kept]
    least = {aspect: min(len(item.ratings[aspect]) for item in items) for aspect in benchmark.aspects}
    raters = {aspect: np.array([item.ratings[aspect][:count] for item in items]) for aspect, count in least.items()}
    images = [item.image_id for item in items]
    weights = bootstrap_weights(len(items), resamples=resamples, seed=seed, clusters=images)
    chosen = {name: {aspect: column[kept] for aspect, column in own.items()} for name, own in scores.items()}
    return compare_with_raters(raters, chosen, weights, variant="b" if benchmark.spec.statistic == "tau-b" else "c")


def rater_grid(title: str, comparison: Comparison) -> Grid:
    """The table of `single_rater`."""
    first, *_ = comparison.agreement.values()
    rows = tuple((name, *(percent(row[each]) for each in first)) for name, row in comparison.agreement.items())
    return Grid(f"{title}: tau x 100 with the mean of all raters but one", ("", *first), rows)


def failures(table: BenchTable, threshold: float = 0.0) -> list[dict[str, Any]]:
    """Scores that are at least `threshold` away from the mean rating, those of each row and aspect together.

    Rows with a score outside [0, 1], where the ratings are, are left out.

    Source: the VELA paper, appendix E, with a threshold of 0.25.
    """
    found, items = [], cast("Sequence[RatedCaption]", table.benchmark.items)
    for row in table.rows:
        own = {} if row.scores is None else {name: _column(row.scores, name) for name in table.benchmark.aspects}
        in_range = not any(((column < 0) | (column > 1)).any() for column in own.values())
        for aspect, column in own.items() if in_range else ():
            for item, score in zip(items, column, strict=True):
                rating = np.mean(item.ratings.get(aspect, [np.nan]))
                if abs(score - rating) >= threshold - 1e-9:  # rounding; false for NaN
                    what = {"row": row.metric.label, "aspect": aspect, "image": item.image_id, "rating": float(rating)}
                    texts = {"candidate": item.candidate, "references": item.references}
                    found.append(what | {"score": float(score), **texts})
    return found


def failure_grids(title: str, table: BenchTable, threshold: float, *, listed: bool) -> list[Grid]:
    """Numbers and shares of `failures`, and with `listed` each of them, for people to sort into kinds."""
    far, columns = failures(table, threshold), (*table.benchmark.aspects, "all")
    some, all_ = (Counter((e["row"], c) for e in each for c in (e["aspect"], "all")) for each in (far, failures(table)))
    rows = []
    for label in (row.metric.label for row in table.rows):
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
    return np.asarray(scores[aspect] if isinstance(scores, dict) else scores, dtype=np.float64)[:, 0]
