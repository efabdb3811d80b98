"""Figures of scored data sets: means over images, drift, agreement of metrics, and what ranking gains."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from reward.errors import DataError
from reward.metaeval.bootstrap import RESAMPLES, Interval, draw_clusters, whole_first
from reward.metaeval.correlation import resampled_spearman, resampled_tau
from reward.metaeval.scored import WORDS, ScoredSet
from reward.metaeval.scored_captions import REWARDS

__all__ = [
    "Agreement",
    "Apart",
    "Drift",
    "Gain",
    "agreements",
    "candidate_gains",
    "drift",
    "mean_of",
    "population_stability_index",
]

PAIRED = 20_000  # captions of which two metrics are compared; of more, whole images are drawn


def mean_of(values: np.ndarray, clusters: np.ndarray) -> Interval:
    """Mean with its 95 % interval; values of one cluster, such as captions of one image, are not independent.

    The interval is normal, by the variance of the clusters' sums. NaN is left out.

    Example:
        >>> str(mean_of(np.array([0.2, 0.2, 0.6, 0.6]), np.array([1, 1, 2, 2])))
        '0.400 [0.008, 0.792]'
    """
    return _difference(values, clusters, values[:0], clusters[:0])


def _difference(first: np.ndarray, of_first: np.ndarray, second: np.ndarray, of_second: np.ndarray) -> Interval:
    """Mean of the first minus mean of the second; clusters in both pair them."""
    value, influences, clusters = 0.0, [], []
    for sign, values, keys in ((1, first, of_first), (-1, second, of_second)):
        there = np.isfinite(values)
        if there.any():
            mean = values[there].mean()
            value += sign * mean
            influences.append(sign * (values[there] - mean) / there.sum())
            clusters.append(keys[there])
    if not influences:
        return Interval(np.nan, np.nan, np.nan)
    _, places = np.unique(np.concatenate(clusters), return_inverse=True)
    sums = np.bincount(places, np.concatenate(influences))
    half = 1.96 * (len(sums) / (len(sums) - 1) * (sums**2).sum()) ** 0.5 if len(sums) > 1 else np.nan
    return Interval(float(value), float(value - half), float(value + half))


@dataclass(frozen=True)
class Drift:
    """How far a column differs between two sets.

    Args:
        difference: mean minus the earlier set's mean, paired by images that are in both, with its 95 % interval.
        psi: population stability index over tenths of the earlier set; below 0.1 is usually called stable, above 0.25
            a large shift.
        ks: Kolmogorov-Smirnov statistic: largest difference of the cumulative shares, 0 to 1.
    """

    difference: Interval
    psi: float
    ks: float


def drift(now: ScoredSet, before: ScoredSet) -> dict[str, Drift]:
    """{column: drift} of the columns that both sets have.

    Raises:
        DataError: they share no column.
    """
    from scipy.stats import ks_2samp

    shared = [name for name in now.values if name in before.values]
    if not set(shared) - {WORDS}:
        raise DataError(f"{now.name} and {before.name} share no column of scores: {', '.join(before.values)}")
    found = {}
    for name in shared:
        new, old = (one.values[name][np.isfinite(one.values[name])] for one in (now, before))
        if len(new) and len(old):
            difference = _difference(now.values[name], now.images, before.values[name], before.images)
            statistic = float(ks_2samp(new, old, method="asymp").statistic)
            found[name] = Drift(difference, population_stability_index(old, new), statistic)
    return found


def population_stability_index(expected: np.ndarray, actual: np.ndarray, *, bins: int = 10) -> float:
    """Sum of (q - p) ln(q / p) over the quantile bins of the expected values; an empty bin counts as half a value.

    Args:
        expected: values (N,) that the bins are made of, finite.
        actual: values (M,), finite.
        bins: how many, fewer where values are equal.

    Example:
        >>> round(population_stability_index(np.arange(100.0), np.arange(100.0) + 20), 2)
        0.79
    """
    edges = np.unique(np.quantile(expected, np.arange(1, bins) / bins))
    shares = []
    for values in (expected, actual):
        counts = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)
        shares.append(np.maximum(counts, 0.5) / len(values))
    return float(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum())


class Apart(NamedTuple):
    """A caption that two metrics rank differently; rank 1 is the highest score, equal scores share their mean rank.

    Args:
        place: number of the caption in the set, from 0.
        first, second: its rank by each metric.
        alike: rows of the same image with the same ranks.
    """

    place: int
    first: float
    second: float
    alike: int


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far two metrics order captions alike.

    Args:
        first, second: columns.
        captions: that both have scored, and that are compared.
        images: of these captions.
        spearman, tau: Spearman's correlation and Kendall's tau-b, with 95 % intervals of a bootstrap over images.
        apart: captions that the two rank most differently, those first.
    """

    first: str
    second: str
    captions: int
    images: int
    spearman: Interval
    tau: Interval
    apart: tuple[Apart, ...]


def agreements(now: ScoredSet, *, examples: int = 6) -> list[Agreement]:
    """Agreement of each two metrics of a set: of its main score and all other columns that end with `reward`.

    The mean of several metrics is not compared with them. Two metrics of which one gives all captions the same score
    are left out: they have no order in common.

    Args:
        now: see `read_scored`.
        examples: how many captions to name on which two metrics disagree.
    """
    from scipy.stats import rankdata

    found = []
    origin = now.data.origin
    means = [origin.prefix + name for name in REWARDS] if len(origin.sources) > 1 else []
    names = [name for name in now.values if name not in means and (name == now.by or name.endswith(REWARDS))]
    for first, second in combinations(names, 2):
        x, y = now.values[first], now.values[second]
        rows = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        rows = rows[np.sort(np.argsort(now.images[rows], kind="stable")[:PAIRED])]
        x, y = x[rows], y[rows]
        if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
            continue
        keys, images = np.unique(now.images[rows], return_inverse=True)
        weights = whole_first(draw_clusters([()] * len(keys), resamples=RESAMPLES, seed=0))
        rho = Interval.of(resampled_spearman(x, y, weights, clusters=images))
        tau = Interval.of(resampled_tau(x, y, weights, variant="b", clusters=images))
        ranks = np.stack([rankdata(-x), rankdata(-y)], axis=1)
        different, firsts, counts = np.unique(np.c_[images, ranks], axis=0, return_index=True, return_counts=True)
        distance = np.abs(different[:, 1] - different[:, 2])
        apart = [
            Apart(int(now.places[rows[firsts[each]]]), different[each, 1], different[each, 2], counts[each])
            for each in np.lexsort((firsts, -distance))[:examples].tolist()
            if distance[each] > 0
        ]
        found.append(Agreement(first, second, len(rows), len(keys), rho, tau, tuple(apart)))
    return found


@dataclass(frozen=True)
class Gain:
    """What choosing the candidate with the highest main score is worth, in one column.

    Args:
        mean: of all candidates of a pool, averaged over the pools.
        chosen: of the chosen ones.
        gain: of the chosen one over the mean of its pool, with a 95 % interval over images.
    """

    mean: float
    chosen: float
    gain: Interval


def candidate_gains(now: ScoredSet) -> tuple[np.ndarray, dict[str, Gain]]:
    """Scored candidates of each pool, (P,), and {column: gain}; both are empty where nothing was ranked."""
    there = np.flatnonzero(np.isfinite(now.values[now.by])) if len(now.pools) else np.empty(0, np.intp)
    if not len(there):
        return there, {}
    rows = there[np.lexsort((-now.values[now.by][there], now.pools[there]))]
    _, starts, sizes = np.unique(now.pools[rows], return_index=True, return_counts=True)
    found = {}
    for name, values in now.values.items():
        chosen, means = values[rows][starts], np.add.reduceat(values[rows], starts) / sizes
        gain = mean_of(chosen - means, now.images[rows][starts])
        found[name] = Gain(float(np.nanmean(means)), float(np.nanmean(chosen)), gain)
    return sizes, found
