"""ROC AUC and average precision: how well a score tells correct captions from incorrect ones, on many resamples."""

from __future__ import annotations

import numpy as np

from reward.metaeval.correlation import checked_pair
from reward.metaeval.resampling import Classes, Concordance, Rows

__all__ = ["average_precision", "resampled_auc", "resampled_precision", "roc_auc"]


def roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Probability that a correct caption scores higher than an incorrect one; equal scores count half.

    Args:
        scores: finite numbers (N,).
        labels: 1 for a correct caption, 0 for an incorrect one, (N,), some of each.

    Raises:
        ValueError: other shapes, a number that is not finite, another label, or captions of one kind only.

    Example:
        >>> roc_auc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([1, 1, 0, 0]))
        0.875
    """
    return float(resampled_auc(scores, labels, np.ones((1, len(scores))))[0])


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Average precision of correct captions: precision at each threshold, weighed by the recall it adds.

    Captions of equal scores stand above or below a threshold together, and nothing is interpolated. The positive class
    is that of correct captions, which score high; with as many incorrect ones, chance is 1/2.

    Args, Raises: as for `roc_auc`.

    Source: the published code of Nam et al., "Extract Free Dense Misalignment from CLIP", 2025, which ranks the correct
        captions of FOIL and nocaps-FOIL first.

    Example:
        >>> round(average_precision(np.array([0.9, 0.4, 0.4, 0.1]), np.array([1, 1, 0, 0])), 3)
        0.833
    """
    return float(resampled_precision(scores, labels, np.ones((1, len(scores))))[0])


def resampled_auc(
    scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, *, clusters: np.ndarray | None = None
) -> np.ndarray:
    """`roc_auc` of R resamples, (R,); NaN for a resample with captions of one kind only.

    Args:
        scores, labels: as for `roc_auc`.
        weights, clusters: as for `resampled_tau`.

    Example:
        >>> resampled_auc(np.array([3, 2, 1]), np.array([1, 0, 1]), np.array([[1, 1, 1], [1, 2, 0]]))
        array([0.5, 1. ])
    """
    rows = _checked_rows(scores, labels, weights, clusters)
    pairs, kinds = Concordance(rows.first, rows.second), Classes(rows.second)
    found = np.full(len(rows.weights), np.nan)
    for part, block in rows.blocks():
        crossed = kinds.counts(block).prod(axis=0)  # incorrect times correct captions
        np.divide(pairs.balance(block) / 2 + crossed, 2 * crossed, out=found[part], where=crossed > 0)
    return found


def resampled_precision(
    scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, *, clusters: np.ndarray | None = None
) -> np.ndarray:
    """`average_precision` of R resamples, (R,); NaN for a resample without correct captions.

    Args:
        scores, labels: as for `roc_auc`.
        weights, clusters: as for `resampled_tau`.

    Example:
        >>> resampled_precision(np.array([3, 2, 1]), np.array([1, 0, 1]), np.array([[1, 1, 1], [1, 2, 0]])).round(3)
        array([0.833, 1.   ])
    """
    rows = _checked_rows(scores, labels, weights, clusters)
    downwards = Classes(rows.first.max() - rows.first)
    is_correct = rows.second[:, None] == 1
    found = np.full(len(rows.weights), np.nan)
    for part, block in rows.blocks():
        added = downwards.counts(block * is_correct)
        precision = np.cumsum(added, axis=0) / np.maximum(np.cumsum(downwards.counts(block), axis=0), 1)
        total = added.sum(axis=0)
        np.divide((added * precision).sum(axis=0), total, out=found[part], where=total > 0)
    return found


def _checked_rows(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, clusters: np.ndarray | None) -> Rows:
    scores, labels = checked_pair(scores, labels)
    kinds = np.unique(labels).tolist()
    if kinds != [0, 1]:
        raise ValueError(f"labels must be 1 (correct) or 0 (incorrect), some of each, got {kinds[:5]}")
    return Rows.of(scores, labels, weights, clusters)
