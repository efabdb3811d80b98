"""Kendall's tau-b and tau-c, Spearman's and Pearson's correlation, for one sample or many resamples at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reward.metaeval.bootstrap import CELLS, checked_pair, resampled_sums

__all__ = [
    "Classes",
    "Concordance",
    "Rows",
    "Variant",
    "kendall_tau",
    "pearson",
    "resampled_pearson",
    "resampled_spearman",
    "resampled_tau",
    "spearman",
]

Variant = Literal["b", "c"]
_ROUNDING = 1e-12  # values whose spread is smaller than this share of their squares are constant


def kendall_tau(scores: np.ndarray, ratings: np.ndarray, *, variant: Variant = "c") -> float:
    """Kendall's rank correlation.

    tau-c divides by the largest value that the number of distinct scores or ratings allows, tau-b by the pairs that are
    tied on neither side. LongCap-Arena and the papers on long captions report tau-c.

    Args:
        scores, ratings: finite numbers (N,), N at least 2.
        variant: "b" or "c".

    Returns:
        A float in [-1, 1]; 0 if the scores or the ratings are constant, because no order can then agree.

    Raises:
        ValueError: other shapes, or a number that is not finite.

    Example:
        >>> kendall_tau(np.array([0.1, 0.2, 0.9]), np.array([0.0, 0.5, 1.0]))
        1.0
    """
    return float(resampled_tau(scores, ratings, _each_once(scores), variant=variant)[0])


def resampled_tau(
    scores: np.ndarray,
    ratings: np.ndarray,
    weights: np.ndarray,
    *,
    variant: Variant = "c",
    clusters: np.ndarray | None = None,
) -> np.ndarray:
    """Kendall's tau of R resamples; each value is what `kendall_tau` gives for the samples drawn.

    All resamples are counted at once; the time grows with R N log N, see `Concordance`.

    Args:
        scores, ratings: finite numbers (N,).
        weights: how often each resample holds each sample, whole numbers (R, N); see `bootstrap_weights`. With
            `clusters`, how often it holds each cluster, (R, K).
        variant: "b" or "c".
        clusters: number of each sample's cluster, (N,) in 0..K-1.

    Returns:
        Floats (R,); 0 for a resample with constant scores or ratings, NaN for an empty one.

    Raises:
        ValueError: other shapes, or a number that is not finite.

    Example:
        >>> resampled_tau(np.array([1, 2, 3]), np.array([1, 2, 2]), np.array([[1, 1, 1], [0, 1, 2]])).round(3)
        array([0.889, 0.   ])
    """
    scores, ratings = checked_pair(scores, ratings)
    rows = Rows.of(scores, ratings, weights, clusters)
    pairs = Concordance(rows.first, rows.second)
    sides = Classes(rows.first), Classes(rows.second)
    taus = np.zeros(len(rows.weights))
    for part, block in rows.blocks():
        total = block.sum(axis=0)
        held = [side.counts(block) for side in sides]
        if variant == "c":
            classes = np.minimum(*((counts > 0).sum(axis=0) for counts in held))
            largest = total**2 * (classes - 1) / np.maximum(classes, 1)
        else:
            untied = [total**2 - (counts**2).sum(axis=0) for counts in held]
            largest = np.sqrt(untied[0] * untied[1])
        np.divide(pairs.balance(block), largest, out=taus[part], where=largest > 0)
        taus[part][total == 0] = np.nan
    return taus


def spearman(scores: np.ndarray, ratings: np.ndarray) -> float:
    """Spearman's rank correlation: Pearson's of the ranks, equal values sharing the mean of their ranks.

    Args, Returns, Raises: as for `kendall_tau`.

    Example:
        >>> round(spearman(np.array([0.1, 0.2, 0.9]), np.array([0.0, 1.0, 0.5])), 3)
        0.5
    """
    return float(resampled_spearman(scores, ratings, _each_once(scores))[0])


def pearson(scores: np.ndarray, ratings: np.ndarray) -> float:
    """Pearson's linear correlation.

    Args, Returns, Raises: as for `kendall_tau`.

    Example:
        >>> round(pearson(np.array([1, 2, 4]), np.array([1, 3, 3])), 3)
        0.756
    """
    return float(resampled_pearson(scores, ratings, _each_once(scores))[0])


def _each_once(values: np.ndarray) -> np.ndarray:
    """Weights (1, N) of the sample itself."""
    return np.ones((1, np.size(values)))


def resampled_spearman(
    scores: np.ndarray, ratings: np.ndarray, weights: np.ndarray, *, clusters: np.ndarray | None = None
) -> np.ndarray:
    """`spearman` of R resamples, (R,), ranked anew in each; arguments as for `resampled_tau`.

    Example:
        >>> resampled_spearman(np.array([1, 2, 3]), np.array([1, 2, 2]), np.array([[1, 1, 1], [0, 1, 2]])).round(3)
        array([0.866, 0.   ])
    """
    scores, ratings = checked_pair(scores, ratings)
    rows = Rows.of(scores, ratings, weights, clusters)
    sides = [(Classes(ranks), ranks) for ranks in (rows.first, rows.second)]
    correlations = np.zeros(len(rows.weights))
    for part, block in rows.blocks():
        total = block.sum(axis=0)
        deviations = []
        for side, ranks in sides:
            counts = side.counts(block)
            middles = np.cumsum(counts, axis=0) - counts / 2  # mean rank of each value, less one half
            deviations.append((middles - total / 2)[ranks])
        product, *squares = (
            np.einsum("ur,ur,ur->r", block, deviations[i], deviations[j]) for i, j in ((0, 1), (0, 0), (1, 1))
        )
        largest = np.sqrt(squares[0] * squares[1])
        np.divide(product, largest, out=correlations[part], where=largest > 0)
        correlations[part][total == 0] = np.nan
    return correlations


def resampled_pearson(
    scores: np.ndarray, ratings: np.ndarray, weights: np.ndarray, *, clusters: np.ndarray | None = None
) -> np.ndarray:
    """`pearson` of R resamples, (R,); arguments as for `resampled_tau`.

    Example:
        >>> resampled_pearson(np.array([1, 2, 3]), np.array([1, 2, 2]), np.array([[1, 1, 1], [0, 1, 2]])).round(3)
        array([0.866, 0.   ])
    """
    scores, ratings = checked_pair(scores, ratings)
    clusters = np.arange(len(scores)) if clusters is None else np.asarray(clusters)
    x, y = ((values - values.mean()) / (np.ptp(values) or 1) for values in (scores, ratings))
    terms = np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)
    n, sx, sy, sxx, syy, sxy = resampled_sums(terms, np.asarray(weights), clusters).T
    empty, n = n == 0, np.maximum(n, 1)
    spreads = np.maximum(sxx - sx * sx / n, 0), np.maximum(syy - sy * sy / n, 0)
    varied = (spreads[0] > _ROUNDING * sxx) & (spreads[1] > _ROUNDING * syy)
    largest = np.sqrt(spreads[0] * spreads[1])
    return np.divide(sxy - sx * sy / n, largest, out=np.where(empty, np.nan, 0.0), where=varied)


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
        step = max(8, CELLS // len(self.counts))
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
