"""Kendall's tau-b and tau-c, Spearman's and Pearson's correlation, as scipy computes them."""

from __future__ import annotations

from typing import Literal

import numpy as np

Variant = Literal["b", "c"]


def kendall_tau(scores: np.ndarray, ratings: np.ndarray, *, variant: Variant = "c") -> float:
    """Kendall's rank correlation.

    tau-c divides by the largest value that the number of distinct scores or ratings allows, tau-b by the pairs that are
    tied on neither side. LongCap-Arena and the papers on long captions report tau-c.

    Args:
        scores, ratings: finite numbers (N,).
        variant: "b" or "c".

    Returns:
        A float in [-1, 1]; NaN if the scores or the ratings are constant, which no order can agree with.

    Example:
        >>> kendall_tau(np.array([0.1, 0.2, 0.9]), np.array([0.0, 0.5, 1.0]))
        1.0
    """
    from scipy.stats import kendalltau

    if _constant(scores, ratings):
        return np.nan
    return float(kendalltau(scores, ratings, variant=variant).statistic)


def spearman(scores: np.ndarray, ratings: np.ndarray) -> float:
    """Spearman's rank correlation: Pearson's of the ranks, equal values sharing the mean of their ranks.

    Args, Returns: as for `kendall_tau`.

    Example:
        >>> round(spearman(np.array([0.1, 0.2, 0.9]), np.array([0.0, 1.0, 0.5])), 3)
        0.5
    """
    from scipy.stats import spearmanr

    return np.nan if _constant(scores, ratings) else float(spearmanr(scores, ratings).statistic)


def pearson(scores: np.ndarray, ratings: np.ndarray) -> float:
    """Pearson's linear correlation.

    Args, Returns: as for `kendall_tau`.

    Example:
        >>> round(pearson(np.array([1, 2, 4]), np.array([1, 3, 3])), 3)
        0.756
    """
    from scipy.stats import pearsonr

    return np.nan if _constant(scores, ratings) else float(pearsonr(scores, ratings).statistic)


def _constant(*sides: np.ndarray) -> bool:
    return any(len(side) < 2 or not np.ptp(side) for side in sides)
