"""Kendall's tau-b and tau-c, Spearman's and Pearson's correlation, of one sample and of many resamples at once."""

from __future__ import annotations

from typing import Literal

import numpy as np

from reward.metaeval.bootstrap import checked_pair
from reward.metaeval.resampling import Classes, Concordance, Rows, resampled_sums

__all__ = [
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
