"""The columns of a benchmark's table: the statistic of each column, and the rows that it is computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TypeAlias

import numpy as np

from reward.metaeval.benchmarks.items import OVERALL, Benchmark, Item, PreferencePair, Quadruple, RatedCaption
from reward.metaeval.bootstrap import MEAN, Interval, number_clusters, percentile_interval, resampled_mean, with_mean
from reward.metaeval.classification import (
    resampled_auc,
    resampled_precision,
    winoground_scores,
)
from reward.metaeval.correlation import resampled_pearson, resampled_spearman, resampled_tau

__all__ = [
    "Column",
    "Scores",
    "Table",
    "check_scores",
    "judged_rows",
    "make_table",
    "tie_rule",
]

Scores: TypeAlias = "np.ndarray | Mapping[str, np.ndarray]"

_CORRELATIONS = ("tau-c", "tau-b", "spearman", "pearson")
_TIE_RULES = {
    "tau-b": "tied pairs are neither concordant nor discordant, and tau-b leaves them out of the denominator",
    "tau-c": "tied pairs are neither concordant nor discordant, and stay in the denominator of tau-c",
    "spearman": "equal values share the mean of their ranks",
    "pearson": "ties need no rule",
    "auc": "equal scores count half",
    "ap": "equal scores stand above or below a threshold together",
}
_RESAMPLED: dict[str, Callable[..., np.ndarray]] = {
    "tau-b": partial(resampled_tau, variant="b"),
    "tau-c": partial(resampled_tau, variant="c"),
    "spearman": resampled_spearman,
    "pearson": resampled_pearson,
    "auc": resampled_auc,
    "ap": resampled_precision,
}


@dataclass(frozen=True)
class Column:
    """The rows that one statistic is computed from.

    Args:
        statistic: name of a correlation, `"auc"` or `"ap"`; or `"mean"` of the values.
        values: scores, or for a mean what each item counts, (n,).
        targets: ratings or labels, (n,); None for a mean.
        clusters: number of each row's cluster, (n,).
    """

    statistic: str
    values: np.ndarray
    targets: np.ndarray | None
    clusters: np.ndarray

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The statistic on resamples (R, K) of clusters, (R,)."""
        if self.targets is None:
            return resampled_mean(self.values, weights, self.clusters)
        return _RESAMPLED[self.statistic](self.values, self.targets, weights, clusters=self.clusters)

    def joined(self, other: Column, clusters: int) -> Column:
        """The rows of both columns; those of the other are in clusters of their own, K, K + 1, ..."""
        targets = None if self.targets is None else np.concatenate([self.targets, other.targets])
        values = np.concatenate([self.values, other.values])
        return Column(self.statistic, values, targets, np.concatenate([self.clusters, other.clusters + clusters]))


@dataclass(frozen=True)
class Table:
    """The columns of a benchmark for one metric.

    Args:
        columns: {name: its rows}.
        averaged: names of the columns whose mean is the column "mean"; empty where there is none.
        headline: name of the column to rank by.
        strata: of each of the K clusters, the columns that it occurs in.
        scored: number of items that count.
        counts: {column: judgments, pairs or quadruples}.
        ties: {column: share of ties}.
        details: {column: {statistic: rows}}.
    """

    columns: dict[str, Column]
    averaged: tuple[str, ...]
    headline: str
    strata: tuple[tuple[str, ...], ...]
    scored: int
    counts: dict[str, int]
    ties: dict[str, float]
    details: dict[str, dict[str, Column]]

    def resampled(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Each column's statistic on resamples (R, K) of clusters, (R,)."""
        return with_mean({name: column.resampled(weights) for name, column in self.columns.items()}, self.averaged)

    def intervals(self, values: Mapping[str, np.ndarray]) -> dict[str, Interval]:
        """From each column's estimate and replicates (1 + R,); a column of a single image has no interval (NaN)."""
        single = {name for name, column in self.columns.items() if len(np.unique(column.clusters)) == 1}
        if len(self.strata) == 1:
            single.add(MEAN)
        return {
            name: percentile_interval(column[0], column[1:] if name not in single else column[:0])
            for name, column in values.items()
        }


def tie_rule(benchmark: Benchmark) -> str:
    """How ties count in the statistic of a benchmark, in words."""
    if benchmark.spec.form is Quadruple:
        return "comparisons are strict: equal scores are wrong"
    if benchmark.spec.statistic == "accuracy":
        return "equal scores count half" if benchmark.spec.ties == "half" else "equal scores are wrong"
    return _TIE_RULES[benchmark.spec.statistic]


def check_scores(benchmark: Benchmark, scores: Scores, what: str = "scores") -> dict[str, np.ndarray]:
    """{aspect: scores (N, K)}, or {"overall": scores} of pairs and quadruples; NaN means no score.

    Raises:
        ValueError: another shape, an aspect is missing, or an infinite score.
    """
    aspects = benchmark.aspects or (OVERALL,)
    given = scores if isinstance(scores, Mapping) else dict.fromkeys(aspects, scores)
    missing = [name for name in aspects if name not in given]
    if missing:
        raise ValueError(f"{what} lack the aspect {missing[0]!r}; they have: {', '.join(given) or 'none'}")
    shape = (len(benchmark.items), benchmark.captions_per_item)
    arrays = {}
    for name in aspects:
        array = np.asarray(given[name], dtype=np.float64)
        if array.shape == (shape[0],) and shape[1] == 1:
            array = array[:, None]
        if array.shape != shape:
            raise ValueError(f"{what} must have shape {shape}: a row per item, a column per caption; got {array.shape}")
        if np.isinf(array).any():
            raise ValueError(f"{what} hold {int(np.isinf(array).sum())} infinite numbers; use NaN for no score")
        arrays[name] = array
    return arrays


def judged_rows(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{aspect: whether each rated caption has a rating of it and a score, (N,)}."""
    captions = [item for item in benchmark.items if isinstance(item, RatedCaption)]
    return {
        aspect: np.isfinite(values[:, 0]) & np.array([aspect in item.ratings for item in captions])
        for aspect, values in scores.items()
    }


def make_table(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> Table:
    """The columns of a benchmark, of the items that have all their scores.

    Args:
        scores: see `check_scores`.

    Raises:
        ValueError: too few items have scores.
    """
    make = {RatedCaption: _of_ratings, PreferencePair: _of_pairs, Quadruple: _of_quadruples}[benchmark.spec.form]
    return make(benchmark, scores)


def _of_ratings(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> Table:
    captions = [item for item in benchmark.items if isinstance(item, RatedCaption)]
    judged = judged_rows(benchmark, scores)
    for aspect, rows in judged.items():
        if rows.sum() < 2:
            raise ValueError(
                f"{rows.sum()} captions of {benchmark.spec.title} have a score and a rating of {aspect!r}; "
                "a correlation needs at least 2"
            )
    if MEAN in judged and len(judged) > 1:
        raise ValueError(f"no aspect may be named {MEAN!r}: the mean over the aspects has that name")
    kept = np.logical_or.reduce(list(judged.values()))
    clusters = np.full(len(kept), -1)
    clusters[kept] = _clusters(list(compress(captions, kept)))
    columns, details, counts, ties = {}, {}, {}, {}
    for aspect, rows in judged.items():
        places = np.flatnonzero(rows)
        ratings = [item.ratings[aspect] for item in compress(captions, rows)]
        if benchmark.spec.judgments == "mean":
            targets = np.array([np.mean(given) for given in ratings])
        else:  # each rating is a judgment of its own, and the score is repeated
            places = np.repeat(places, [len(given) for given in ratings])
            targets = np.concatenate(ratings)
        columns[aspect] = Column(benchmark.spec.statistic, scores[aspect][places, 0], targets, clusters[places])
        details[aspect] = {name: replace(columns[aspect], statistic=name) for name in _CORRELATIONS}
        counts[aspect] = len(places)
        ties[aspect] = _share_of_equal(scores[aspect][rows, 0])
    averaged = tuple(columns) if len(columns) > 1 else ()
    if benchmark.spec.statistics and not averaged:
        (own,) = columns.values()
        assert own.targets is not None
        if not np.ptp(own.values) or not np.ptp(own.targets):  # nothing can be said of equal scores
            own = replace(own, values=np.full(len(own.values), np.nan), targets=None)
        columns = {name: replace(own, statistic=statistic) for name, statistic in benchmark.spec.statistics.items()}
    return Table(
        columns=columns,
        averaged=averaged,
        headline=MEAN if averaged else next(iter(columns)),
        strata=_cluster_strata(columns, int(clusters.max()) + 1),
        scored=int(kept.sum()),
        counts=counts,
        ties=ties,
        details=details,
    )


def _of_pairs(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> Table:
    pairs = [item for item in benchmark.items if isinstance(item, PreferencePair)]
    counted = [item.label is not None for item in pairs]
    kept = np.isfinite(scores[OVERALL]).all(axis=1) & np.array(counted)
    items = list(compress(pairs, kept))
    if not items:
        raise ValueError(f"no pair of {benchmark.spec.title} that counts has both its scores")
    categories = sorted({item.category for item in items} - {""})
    every = {item.category for item in compress(pairs, counted)}
    lost = sorted(every - {*categories, ""})
    if lost:  # a mean over fewer categories would stand beside that of other metrics
        raise ValueError(f"no pair of the category {lost[0]!r} of {benchmark.spec.title} has both its scores")
    if reserved := {MEAN, OVERALL}.intersection(categories):
        raise ValueError(f"no category may be named {min(reserved)!r}: another column has that name")
    clusters, both = _clusters(items), scores[OVERALL][kept]
    better = np.array([0 if item.label is None else 1 - 2 * item.label for item in items])
    groups = {name: np.flatnonzero([item.category == name for item in items]) for name in categories}
    # Which columns there are is the same for all metrics, whatever they have scored.
    parts = groups if len(every) == 1 and categories else {**groups, OVERALL: np.arange(len(items))}
    tied = both[:, 0] == both[:, 1]
    details = _pair_columns(both, better, parts, clusters, ties=benchmark.spec.ties)
    columns = {name: kinds[benchmark.spec.statistic] for name, kinds in details.items()}
    averaged = tuple(groups) if len(groups) > 1 else ()
    return Table(
        columns=columns,
        averaged=averaged,
        headline=benchmark.spec.headline if averaged else list(columns)[-1],
        strata=_cluster_strata({name: columns[name] for name in groups}, int(clusters.max()) + 1),
        scored=len(items),
        counts={name: len(rows) for name, rows in parts.items()},
        ties={name: float(tied[rows].mean()) for name, rows in parts.items()},
        details=details,
    )


def _of_quadruples(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> Table:
    kept = np.isfinite(scores[OVERALL]).all(axis=1)
    if not kept.any():
        raise ValueError(f"no quadruple of {benchmark.spec.title} has all four scores")
    clusters, four = _clusters(list(compress(benchmark.items, kept))), scores[OVERALL][kept]
    columns = {
        name: Column("mean", right.astype(np.float64), None, clusters)
        for name, right in winoground_scores(four).items()
    }
    text = (four[:, 0] == four[:, 1]) | (four[:, 2] == four[:, 3])
    image = (four[:, 0] == four[:, 2]) | (four[:, 1] == four[:, 3])
    ties = {"text": text, "image": image, "group": text | image}
    return Table(
        columns=columns,
        averaged=(),
        headline=benchmark.spec.statistic,
        strata=_cluster_strata(columns, int(clusters.max()) + 1),
        scored=len(four),
        counts=dict.fromkeys(columns, len(four)),
        ties={name: float(tied.mean()) for name, tied in ties.items()},
        details={name: {name: column} for name, column in columns.items()},
    )


def _pair_columns(
    scores: np.ndarray, better: np.ndarray, groups: Mapping[str, np.ndarray], clusters: np.ndarray, *, ties: str
) -> dict[str, dict[str, Column]]:
    """{name: {"accuracy", "auc" or "ap": its rows}} of pairs, whose scores are (N, 2).

    `better` is 1 where the first caption is the correct one, -1 where the second is, else 0; `groups` has the places of
    each column's pairs.
    """
    signs = np.sign(scores[:, 0] - scores[:, 1])
    right = np.where(signs == 0, 0.5 if ties == "half" else 0.0, signs == better)
    labels = np.stack([better == 1, better == -1], axis=1).astype(np.float64)
    columns = {}
    for name, rows in groups.items():
        auc = Column("auc", scores[rows].ravel(), labels[rows].ravel(), np.repeat(clusters[rows], 2))
        accuracy = Column("mean", right[rows], None, clusters[rows])
        columns[name] = {"accuracy": accuracy, "auc": auc, "ap": replace(auc, statistic="ap")}
    return columns


def _clusters(items: Sequence[Item]) -> np.ndarray:
    """Number of each item's image, or one of its own where no image is named."""
    return number_clusters([item.image_id or (place,) for place, item in enumerate(items)])


def _cluster_strata(columns: Mapping[str, Column], clusters: int) -> tuple[tuple[str, ...], ...]:
    """Of each of so many clusters, the names of the columns that it occurs in."""
    names: list[list[str]] = [[] for _ in range(clusters)]
    for name, column in columns.items():
        for cluster in np.unique(column.clusters):
            names[cluster].append(name)
    return tuple(map(tuple, names))


def _share_of_equal(values: np.ndarray) -> float:
    """Share of the pairs of captions whose scores are equal."""
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((counts**2 - counts).sum() / (len(values) ** 2 - len(values)))
