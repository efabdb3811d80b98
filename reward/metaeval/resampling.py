"""Rows of scores and ratings, how often each of many resamples holds them, and what can be counted of all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Classes", "Concordance", "Rows", "column_mean", "draw_clusters", "number_clusters", "resampled_sums"]

SMALL = 20  # clusters: fewer, drawn among themselves, would vary too little
_CELLS = 2**20  # of a block of weights: rows times resamples, 8 MB


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

    A stratum of 20 clusters or more keeps its number of them. Smaller strata are drawn together: n clusters drawn among
    themselves vary by 1 - 1/n of what they should, and a single one not at all. So a resample may lack them all.

    Args:
        strata: of each cluster, such as the categories that it occurs in.
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
        of_stratum.setdefault(stratum if sizes[stratum] >= SMALL else (), []).append(cluster)
    for number, (_, members) in enumerate(sorted(of_stratum.items())):
        own_seed = int(np.random.default_rng((seed, number)).integers(2**32))
        count = len(members)
        draws = np.random.default_rng(own_seed).multinomial(count, np.full(count, 1 / count), size=resamples)
        weights[:, members] = draws
    return weights


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
    step = max(8, _CELLS // len(totals))
    parts = [weights[start : start + step] for start in range(0, len(weights), step)]
    return np.concatenate([part.astype(np.float64) @ totals for part in parts])


def column_mean(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Mean over columns (R,), on each resample over those that it has a value of; NaN where it has none, (R,).

    Example:
        >>> column_mean([np.array([1.0, 2.0]), np.array([3.0, np.nan])])
        array([2., 2.])
    """
    values = np.stack(columns)
    known = ~np.isnan(values)
    numbers = known.sum(axis=0)
    sums = np.where(known, values, 0).sum(axis=0)
    return np.divide(sums, numbers, out=np.full(len(sums), np.nan), where=numbers > 0)


@dataclass(frozen=True)
class Rows:
    """Different rows of two values each, in clusters.

    Args:
        first, second: ranks 0, 1, ... of the values among the different ones, (U,).
        clusters: number of each row's cluster, (U,).
        counts: how often the row occurs in its cluster, (U,).
        weights: how often each resample holds each cluster, (R, K).
    """

    first: np.ndarray
    second: np.ndarray
    clusters: np.ndarray
    counts: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, weights: np.ndarray, clusters: np.ndarray | None = None) -> Rows:
        """Of values (N,) each; equal rows of a cluster become one. Without clusters, weights are those of the rows.

        Raises:
            ValueError: weights or clusters have other shapes.
        """
        weights = np.asarray(weights)
        if clusters is None:
            if weights.ndim != 2 or weights.shape[1] != len(first):
                raise ValueError(f"weights must have shape (R, {len(first)}), got {weights.shape}")
            clusters = np.arange(len(first))
        clusters = np.asarray(clusters)
        if clusters.shape != np.shape(first):
            raise ValueError(f"clusters must have shape ({len(first)},), got {clusters.shape}")
        if weights.ndim != 2 or weights.shape[1] <= clusters.max(initial=-1):
            raise ValueError(f"weights must have shape (R, K) with K > {clusters.max()}, got {weights.shape}")
        ranks = [np.unique(values, return_inverse=True)[1] for values in (first, second)]
        keys = (clusters.astype(np.int64) * (ranks[0].max() + 1) + ranks[0]) * (ranks[1].max() + 1) + ranks[1]
        _, places, counts = np.unique(keys, return_index=True, return_counts=True)
        return cls(ranks[0][places], ranks[1][places], clusters[places], counts.astype(np.float64), weights)

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Some resamples at a time, and how often each row occurs in them, (U, r)."""
        step = max(8, _CELLS // len(self.counts))
        for start in range(0, len(self.weights), step):
            part = slice(start, min(start + step, len(self.weights)))
            by_cluster = np.ascontiguousarray(self.weights[part].T, dtype=np.float64)
            yield part, by_cluster[self.clusters] * self.counts[:, None]


class Concordance:
    """Counts the concordant less the discordant pairs of rows, each row weighed, for many weights at once.

    Two different ranks differ first in one bit. For each bit, the rows whose ranks agree in all higher bits form a
    group, and the pairs of a group that differ in this bit are those of an upper and a lower row. How many lower rows
    have smaller or larger values on the other side is read off a running sum in their order, so that all pairs cost
    one pass over the rows for each bit, whatever the weights.

    Args:
        first, second: ranks from 0 on, (U,).
    """

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        if first.max() < second.max():
            first, second = second, first  # the fewer different ranks, the fewer bits
        width = int(first.max()) + 1
        self._splits = []
        for bit in range(int(second.max()).bit_length()):
            group, is_upper = second >> (bit + 1), (second >> bit) & 1 == 1
            keys = group * width + first
            lower, upper = (np.flatnonzero(side) for side in (~is_upper, is_upper))
            lower, upper = (rows[np.argsort(keys[rows], kind="stable")] for rows in (lower, upper))
            ordered, base = keys[lower], group[upper] * width
            bounds = (
                np.searchsorted(ordered, keys[upper], side="left"),
                np.searchsorted(ordered, keys[upper], side="right"),
                np.searchsorted(ordered, base),
                np.searchsorted(ordered, base + width),
            )
            self._splits.append((lower, upper, bounds))

    def balance(self, weights: np.ndarray) -> np.ndarray:
        """Sum over ordered pairs of rows i, j of w_i w_j sign(first_i - first_j) sign(second_i - second_j).

        Args:
            weights: (U, r).

        Returns:
            Floats (r,), exact for whole weights.
        """
        found = np.zeros(weights.shape[1])
        for lower, upper, (left, right, start, end) in self._splits:
            running = np.zeros((len(lower) + 1, weights.shape[1]))
            np.cumsum(weights[lower], axis=0, out=running[1:])
            below_less_above = running[left] + running[right] - running[start] - running[end]
            found += np.einsum("ur,ur->r", weights[upper], below_less_above)
        return 2 * found


class Classes:
    """Counts how often each different value occurs in resamples.

    Args:
        ranks: of the rows' values among the different ones, from 0 on, none left out, (U,).
    """

    def __init__(self, ranks: np.ndarray) -> None:
        self._order = np.argsort(ranks, kind="stable")
        ordered = ranks[self._order]
        self._starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])

    def counts(self, weights: np.ndarray) -> np.ndarray:
        """Sum of the weights (U, r) of the rows of each value, (C, r)."""
        ordered = weights[self._order]
        return ordered if len(self._starts) == len(ordered) else np.add.reduceat(ordered, self._starts, axis=0)
