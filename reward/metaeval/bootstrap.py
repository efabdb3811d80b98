"""The bootstrap: weights of resamples, sums and means over resamples, and confidence intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = [
    "LEVEL",
    "MEAN",
    "RESAMPLES",
    "Interval",
    "bootstrap_weights",
    "checked_pair",
    "draw_clusters",
    "mean_difference",
    "mean_interval",
    "number_clusters",
    "percentile_interval",
    "resampled_mean",
    "resampled_sums",
    "whole_first",
    "with_mean",
]

RESAMPLES = 1000
LEVEL = 0.95
MEAN = "mean"  # the column of the mean over aspects or categories
CELLS = 2**20  # of a block of weights, rows times resamples: 8 MB
SMALL_STRATUM = 20  # fewer clusters, drawn among themselves, would vary too little


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    Example:
        >>> str(Interval(0.412, 0.35, 0.47)), Interval(0.412, 0.35, 0.47).excludes_zero
        ('0.412 [0.350, 0.470]', True)
    """

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> Interval:
        """95 % percentile interval from an estimate followed by its bootstrap replicates, (1 + R,)."""
        return percentile_interval(values[0], values[1:])

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of 0."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        ends = "" if np.isnan(self.low) else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{ends}"


def bootstrap_weights(
    n: int, *, resamples: int = RESAMPLES, seed: int = 0, clusters: Sequence[Hashable] | None = None
) -> np.ndarray:
    """How often each bootstrap resample holds each of n samples; use the same weights for two systems to pair them.

    Args:
        n: number of samples.
        resamples: number R of resamples.
        seed: of the draws.
        clusters: what each sample belongs to, such as its image. Whole clusters are then drawn, because samples of one
            image are not independent. With None, single samples are drawn.

    Returns:
        Whole numbers as floats, (R, n).

    Raises:
        ValueError: n or resamples below 1, or `clusters` does not have n entries.

    Example:
        >>> bootstrap_weights(4, resamples=2, seed=1, clusters=["a", "a", "b", "b"])
        array([[1., 1., 1., 1.],
               [2., 2., 0., 0.]])
    """
    if n < 1 or resamples < 1:
        raise ValueError(f"need at least one sample and one resample, got n={n}, resamples={resamples}")
    if clusters is not None and len(clusters) != n:
        raise ValueError(f"got {len(clusters)} clusters for {n} samples")
    members = np.arange(n) if clusters is None else number_clusters(clusters)
    return _drawn(int(members.max()) + 1, resamples, seed)[:, members].astype(np.float64)


def number_clusters(clusters: Sequence[Hashable]) -> np.ndarray:
    """Numbers 0, 1, ... of clusters in order of appearance, (N,).

    Example:
        >>> number_clusters(["b", "a", "b"])
        array([0, 1, 0])
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)


def draw_clusters(strata: Sequence[tuple[str, ...]], *, resamples: int, seed: int) -> np.ndarray:
    """How often each bootstrap resample holds each of K clusters.

    Every resample holds as many clusters of a stratum as there are, if these are 20 or more. Smaller strata are drawn
    together, because n clusters drawn among themselves vary by only 1 - 1/n of what they should. A resample may
    therefore hold nothing of a small stratum.

    Args:
        strata: one for each cluster, such as the categories that it occurs in.
        resamples: number R of resamples.
        seed: of the draws.

    Returns:
        Small whole numbers, (R, K).

    Raises:
        ValueError: no cluster, or resamples below 1.

    Example:
        >>> draw_clusters([("a",)] * 30 + [("b",)] * 20, resamples=3, seed=0)[:, :30].sum(axis=1).tolist()
        [30, 30, 30]
    """
    if not strata or resamples < 1:
        raise ValueError(f"need at least one cluster and one resample, got {len(strata)} and {resamples}")
    weights = np.empty((resamples, len(strata)), dtype=np.int16)  # a cluster is drawn once on average
    sizes = Counter(strata)
    of_stratum: dict[tuple[str, ...], list[int]] = {}
    for cluster, stratum in enumerate(strata):
        of_stratum.setdefault(stratum if sizes[stratum] >= SMALL_STRATUM else (), []).append(cluster)
    for number, (_, members) in enumerate(sorted(of_stratum.items())):
        own_seed = int(np.random.default_rng((seed, number)).integers(2**32))
        weights[:, members] = _drawn(len(members), resamples, own_seed)
    return weights


def _drawn(count: int, resamples: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)


def whole_first(weights: np.ndarray) -> np.ndarray:
    """Weights (R, K) after one row of ones, on which a statistic is the estimate itself: (1 + R, K)."""
    return np.concatenate([np.ones_like(weights[:1]), weights])


def with_mean(values: Mapping[str, np.ndarray], averaged: Sequence[str]) -> dict[str, np.ndarray]:
    """Adds the column "mean" after the columns that it averages.

    Args:
        values: {column: one value a resample, (R,)}; NaN where a resample has nothing of a column.
        averaged: names of the columns to average. Each resample averages those that it has a value of.

    Example:
        >>> with_mean({"a": np.array([1.0, 2.0]), "b": np.array([3.0, np.nan])}, ["a", "b"])["mean"]
        array([2., 2.])
    """
    if not averaged:
        return dict(values)
    stacked = np.stack([values[name] for name in averaged])
    known = ~np.isnan(stacked)
    numbers = known.sum(axis=0)
    sums = np.where(known, stacked, 0).sum(axis=0)
    mean = np.divide(sums, numbers, out=np.full(len(sums), np.nan), where=numbers > 0)
    return {**{name: values[name] for name in averaged}, MEAN: mean, **values}


def resampled_sums(values: np.ndarray, weights: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Sums of values over each resample.

    Args:
        values: (N, M).
        weights: how often each resample holds each cluster, (R, K).
        clusters: number of each row's cluster, (N,).

    Returns:
        Floats (R, M).

    Example:
        >>> resampled_sums(np.array([[1.0], [2.0], [4.0]]), np.array([[1, 1], [2, 0]]), np.array([0, 0, 1]))
        array([[7.],
               [6.]])
    """
    totals = np.stack([np.bincount(clusters, column, weights.shape[1]) for column in values.T], axis=1)
    step = max(8, CELLS // len(totals))
    parts = [weights[start : start + step] for start in range(0, len(weights), step)]
    return np.concatenate([part.astype(np.float64) @ totals for part in parts])


def resampled_mean(values: np.ndarray, weights: np.ndarray, clusters: np.ndarray | None = None) -> np.ndarray:
    """Mean of values (N,) over each resample, (R,); NaN for an empty resample.

    Args:
        weights: (R, K) with `clusters` (N,), as for `resampled_sums`. Without clusters each value is one: (R, N).

    Example:
        >>> resampled_mean(np.array([1.0, 2.0]), np.array([[1, 3], [0, 0]]))
        array([1.75,  nan])
    """
    clusters = np.arange(len(values)) if clusters is None else clusters
    sums, counts = resampled_sums(np.stack([values, np.ones(len(values))], axis=1), weights, clusters).T
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def percentile_interval(value: float, replicates: np.ndarray) -> Interval:
    """95 % interval between the percentiles of bootstrap replicates (R,) of a statistic whose value is `value`.

    Replicates that are NaN are left out: the statistic cannot be computed on those resamples. If all are NaN, so are
    the ends of the interval.
    """
    tail = (1 - LEVEL) / 2
    replicates = replicates[~np.isnan(replicates)]
    if not len(replicates):
        return Interval(float(value), np.nan, np.nan)
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return Interval(float(value), float(low), float(high))


def mean_interval(values: np.ndarray, weights: np.ndarray) -> Interval:
    """Mean of values (N,), with its interval; `weights` from `bootstrap_weights`."""
    values = np.asarray(values, dtype=np.float64)
    return percentile_interval(float(values.mean()), weights @ values / weights.sum(axis=1))


def mean_difference(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> Interval:
    """Mean of the first minus mean of the second, with the interval of the paired difference.

    Args:
        first, second: values (N,) of two systems for the same samples.
        weights: (R, N), see `bootstrap_weights`.

    Raises:
        ValueError: other shapes, or a number that is not finite.

    Example:
        >>> mean_difference(np.array([0.5, 0.9]), np.array([0.4, 0.6]), bootstrap_weights(2)).value.__round__(2)
        0.2
    """
    first, second = checked_pair(first, second)
    return mean_interval(first - second, weights)


def checked_pair(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float arrays (N,) of the same length, N at least 2, all finite.

    Raises:
        ValueError: anything else.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        raise ValueError(f"need two arrays of one shape (N,) with N >= 2, got {first.shape} and {second.shape}")
    lost = int((~np.isfinite(first) | ~np.isfinite(second)).sum())
    if lost:
        raise ValueError(f"{lost} of {len(first)} pairs are not finite numbers: leave out what could not be scored")
    return first, second
