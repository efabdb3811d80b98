"""The bootstrap: resamples of whole images, a statistic on each of them, and confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

RESAMPLES = 1000
LEVEL = 0.95
MEAN = "mean"  # the column of the mean over aspects or categories


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
        """95 % interval between the percentiles of an estimate's bootstrap replicates, which follow it: (1 + R,).

        Replicates that are NaN are left out: the statistic cannot be computed on those resamples. If all are NaN, so
        are the ends of the interval. Infinite ones are not averaged.
        """
        replicates = values[1:][~np.isnan(values[1:])]
        if not len(replicates):
            return cls(float(values[0]), np.nan, np.nan)
        method: Literal["linear", "inverted_cdf"] = "linear"
        if not np.isfinite(replicates).all():
            method = "inverted_cdf"  # takes one of the values
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(replicates, [tail, 1 - tail], method=method)
        return cls(float(values[0]), float(low), float(high))

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies wholly on one side of 0."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if np.isnan(self.low):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


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

    Example:
        >>> bootstrap_weights(4, resamples=2, seed=1, clusters=["a", "a", "b", "b"])
        array([[1., 1., 1., 1.],
               [2., 2., 0., 0.]])
    """
    members = np.arange(n) if clusters is None else number_clusters(clusters)
    drawn = draws(int(members.max()) + 1, resamples, seed)
    return np.array([counts[members] for counts in drawn], dtype=np.float64)


def draws(count: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each resample holds each of `count` clusters, (count,); those of one seed are the same."""
    generator = np.random.default_rng(seed)
    return (generator.multinomial(count, np.full(count, 1 / count)) for _ in range(resamples))


def number_clusters(clusters: Sequence[Hashable]) -> np.ndarray:
    """Numbers 0, 1, ... of clusters in order of appearance, (N,).

    Example:
        >>> number_clusters(["b", "a", "b"])
        array([0, 1, 0])
    """
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)


def resampled(
    statistic: Callable[..., float],
    arrays: Sequence[np.ndarray],
    weights: Iterable[np.ndarray],
    clusters: np.ndarray | None = None,
) -> np.ndarray:
    """A statistic of some arrays, followed by its values on resamples of their rows.

    Args:
        statistic: called with the arrays.
        arrays: each (N,), row by row together.
        weights: how often each of R resamples holds each of K clusters, see `bootstrap_weights` and `draws`.
        clusters: number of each row's cluster, (N,); None if each row is one.

    Returns:
        Floats (1 + R,); NaN for a resample without a row.

    Example:
        >>> resampled(np.mean, [np.array([1.0, 2.0])], np.array([[1, 3], [0, 0]]))
        array([1.5 , 1.75,  nan])
    """
    numbers = np.arange(len(arrays[0]))
    values = [statistic(*arrays)]
    for counts in weights:
        if clusters is not None:
            counts = counts[clusters]  # every row of a cluster is drawn as often as the cluster
        rows = np.repeat(numbers, counts.astype(np.intp))
        value = np.nan
        if len(rows):
            value = statistic(*[array[rows] for array in arrays])
        values.append(value)
    return np.array(values, dtype=np.float64)


def with_mean(values: Mapping[str, np.ndarray], averaged: Sequence[str]) -> dict[str, np.ndarray]:
    """Puts the column "mean" behind the columns that it averages, before the others.

    Args:
        values: {column: estimate and its replicates, (1 + R,)}; NaN where a resample has nothing of a column.
        averaged: columns to average; none adds no column. Each resample averages those that it has a value of; the
            estimate is NaN if one of them is.

    Example:
        >>> with_mean({"a": np.array([1.0, 2.0]), "b": np.array([3.0, np.nan])}, ["a", "b"])["mean"]
        array([2., 2.])
    """
    if not averaged:
        return dict(values)
    columns = {name: values[name] for name in averaged}
    stacked = np.stack(list(columns.values()))
    counted = ~np.isnan(stacked)
    counted[:, 0] = True  # the estimate counts all, so that one NaN makes it NaN
    sums = np.where(counted, stacked, 0).sum(axis=0)
    counts = counted.sum(axis=0)
    mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return {**columns, MEAN: mean, **values}


def p_value(values: np.ndarray) -> float:
    """Two-sided p of a difference and its replicates (1 + R,): how often resamples have it on the other side of 0.

    It is 0.05 where the 95 % interval ends at 0, at least 2 / (1 + R), and NaN without replicates.

    Example:
        >>> p_value(np.array([0.2, 0.1, 0.3, 0.2])), p_value(np.zeros(4)), p_value(np.array([0.2]))
        (0.5, 1.0, nan)
    """
    replicates = values[1:][~np.isnan(values[1:])]
    if not len(replicates):
        return np.nan
    least = min((replicates <= 0).sum(), (replicates >= 0).sum())
    return min(1.0, 2 * float(1 + least) / (1 + len(replicates)))


def mean_interval(values: np.ndarray, weights: np.ndarray) -> Interval:
    """Mean of values (N,), with its interval; `weights` from `bootstrap_weights`.

    Of two systems on the same samples, `values` are the differences.

    Example:
        >>> mean_interval(np.array([0.5, 0.9]) - np.array([0.4, 0.6]), bootstrap_weights(2)).value.__round__(2)
        0.2
    """
    values = np.asarray(values, dtype=np.float64)
    return Interval.of(np.append(values.mean(), resampled_mean(values, weights)))


def resampled_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean of values (N,) over resamples with these weights (R, N), (R,); NaN for an empty one."""
    counts = weights.sum(axis=1)
    return np.divide(weights @ values, counts, out=np.full(len(counts), np.nan), where=counts > 0)
