"""Percentile bootstrap intervals of correlations and means, and of paired differences between two systems."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from reward.metaeval.correlation import Variant, checked_pair, kendall_tau, resampled_tau
from reward.metaeval.resampling import number_clusters

__all__ = [
    "Interval",
    "bootstrap_weights",
    "mean_difference",
    "mean_interval",
    "percentile_interval",
    "tau_difference",
    "tau_interval",
]

RESAMPLES = 1000
LEVEL = 0.95


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

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of 0."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap_weights(
    n: int, *, resamples: int = RESAMPLES, seed: int = 0, clusters: Sequence[Hashable] | None = None
) -> np.ndarray:
    """How often each bootstrap resample holds each of n samples; the same weights for two systems pair them.

    Args:
        n: number of samples.
        resamples: number R of resamples.
        seed: of the draws.
        clusters: what each sample belongs to, such as its image: then whole clusters are drawn, because samples of one
            image are not independent. None draws single samples.

    Returns:
        Whole numbers as floats, (R, n).

    Raises:
        ValueError: n or resamples below 1, or another number of clusters than samples.

    Example:
        >>> bootstrap_weights(4, resamples=2, seed=1, clusters=["a", "a", "b", "b"])
        array([[1., 1., 1., 1.],
               [2., 2., 0., 0.]])
    """
    if n < 1 or resamples < 1:
        raise ValueError(f"need at least one sample and one resample, got n={n}, resamples={resamples}")
    if clusters is None:
        member = np.arange(n)
    else:
        if len(clusters) != n:
            raise ValueError(f"got {len(clusters)} clusters for {n} samples")
        member = number_clusters(clusters)
    count = int(member.max()) + 1
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=resamples)
    return draws[:, member].astype(np.float64)


def percentile_interval(value: float, replicates: np.ndarray, *, level: float = LEVEL) -> Interval:
    """Interval between the percentiles of bootstrap replicates (R,) of a statistic whose value is `value`.

    Replicates that are NaN, of resamples that the statistic cannot be computed of, are left out; NaN if all are.
    """
    tail = (1 - level) / 2
    replicates = replicates[~np.isnan(replicates)]
    if not len(replicates):
        return Interval(float(value), np.nan, np.nan)
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return Interval(float(value), float(low), float(high))


def tau_interval(
    scores: np.ndarray, ratings: np.ndarray, weights: np.ndarray, *, variant: Variant = "c", level: float = LEVEL
) -> Interval:
    """Kendall's tau of scores with ratings, both (N,), with its interval; `weights` from `bootstrap_weights`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> ratings = rng.normal(size=200)
        >>> found = tau_interval(ratings + rng.normal(size=200), ratings, bootstrap_weights(200))
        >>> found.low < found.value < found.high
        True
    """
    replicates = resampled_tau(scores, ratings, weights, variant=variant)
    return percentile_interval(kendall_tau(scores, ratings, variant=variant), replicates, level=level)


def tau_difference(
    first: np.ndarray,
    second: np.ndarray,
    ratings: np.ndarray,
    weights: np.ndarray,
    *,
    variant: Variant = "c",
    level: float = LEVEL,
) -> Interval:
    """Tau of the first scores minus tau of the second, with the interval of the paired difference.

    Both metrics are evaluated on the same resamples, so that what makes a resample easy for both cancels out.

    Args:
        first, second: scores (N,) of two metrics for the same samples.
        ratings: (N,).
        weights: (R, N), see `bootstrap_weights`.
        variant: "b" or "c".
        level: of confidence.

    Example:
        >>> ratings = np.arange(50.0)
        >>> tau_difference(ratings, -ratings, ratings, bootstrap_weights(50)).excludes_zero
        True
    """
    value = kendall_tau(first, ratings, variant=variant) - kendall_tau(second, ratings, variant=variant)
    replicates = resampled_tau(first, ratings, weights, variant=variant)
    replicates = replicates - resampled_tau(second, ratings, weights, variant=variant)
    return percentile_interval(value, replicates, level=level)


def mean_interval(values: np.ndarray, weights: np.ndarray, *, level: float = LEVEL) -> Interval:
    """Mean of values (N,), with its interval; `weights` from `bootstrap_weights`."""
    values = np.asarray(values, dtype=np.float64)
    return percentile_interval(float(values.mean()), weights @ values / weights.sum(axis=1), level=level)


def mean_difference(first: np.ndarray, second: np.ndarray, weights: np.ndarray, *, level: float = LEVEL) -> Interval:
    """Mean of the first minus mean of the second, with the interval of the paired difference.

    Args:
        first, second: values (N,) of two systems for the same samples.
        weights: (R, N), see `bootstrap_weights`.
        level: of confidence.

    Raises:
        ValueError: other shapes, or a number that is not finite.

    Example:
        >>> mean_difference(np.array([0.5, 0.9]), np.array([0.4, 0.6]), bootstrap_weights(2)).value.__round__(2)
        0.2
    """
    first, second = checked_pair(first, second)
    return mean_interval(first - second, weights, level=level)
