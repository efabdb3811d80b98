"""Sums, means and concordant pairs of rows, counted on many weighted resamples at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["Classes", "Concordance", "Rows", "resampled_mean", "resampled_sums"]

_CELLS = 2**20  # of a block of weights: rows times resamples, 8 MB


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


@dataclass(frozen=True)
class Rows:
    """The distinct rows of two values each, in clusters.

    Args:
        first, second: ranks 0, 1, ... of the values among the distinct ones, (U,).
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
        """Makes rows of two arrays of values (N,); equal rows of a cluster become one.

        Without clusters, weights (R, N) are those of the rows.

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
        """Slices of the resamples, each with how often every row occurs in them, (U, r)."""
        step = max(8, _CELLS // len(self.counts))
        for start in range(0, len(self.weights), step):
            part = slice(start, min(start + step, len(self.weights)))
            by_cluster = np.ascontiguousarray(self.weights[part].T, dtype=np.float64)
            yield part, by_cluster[self.clusters] * self.counts[:, None]


class Concordance:
    """Counts concordant minus discordant pairs of weighted rows, for many weights at once.

    Two distinct ranks differ first in one bit. For each bit, the rows whose ranks agree in all higher bits form a
    group, and the pairs of a group that differ in this bit are those of an upper and a lower row. A running sum over
    the lower rows, ordered by their other value, gives how many of them are smaller or larger. All pairs therefore
    cost one pass over the rows for each bit, whatever the weights.

    Args:
        first, second: ranks from 0 on, (U,).
    """

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        if first.max() < second.max():
            first, second = second, first  # fewer distinct ranks have fewer bits
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
        total = np.zeros(weights.shape[1])
        for lower, upper, (left, right, start, end) in self._splits:
            running = np.zeros((len(lower) + 1, weights.shape[1]))
            np.cumsum(weights[lower], axis=0, out=running[1:])
            below_less_above = running[left] + running[right] - running[start] - running[end]
            total += np.einsum("ur,ur->r", weights[upper], below_less_above)
        return 2 * total


class Classes:
    """Counts how often each distinct value occurs in resamples.

    Args:
        ranks: of the rows' values among the distinct ones, from 0 on without gaps, (U,).
    """

    def __init__(self, ranks: np.ndarray) -> None:
        self._order = np.argsort(ranks, kind="stable")
        ordered = ranks[self._order]
        self._starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])

    def counts(self, weights: np.ndarray) -> np.ndarray:
        """Sum of the weights (U, r) of the rows of each value, (C, r)."""
        ordered = weights[self._order]
        return ordered if len(self._starts) == len(ordered) else np.add.reduceat(ordered, self._starts, axis=0)
