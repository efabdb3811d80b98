"""Telling captions apart: ROC AUC, average precision, verdicts with ties, and Winoground's three scores."""

from __future__ import annotations

import numpy as np

from reward.metaeval.bootstrap import checked_pair
from reward.metaeval.correlation import Classes, Concordance, Rows

__all__ = [
    "resampled_auc",
    "resampled_precision",
    "roc_auc",
    "tie_threshold",
    "verdicts",
    "winoground_scores",
]


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
    areas = np.full(len(rows.weights), np.nan)
    for part, block in rows.blocks():
        crossed = kinds.counts(block).prod(axis=0)  # pairs of an incorrect and a correct caption
        np.divide(pairs.balance(block) / 2 + crossed, 2 * crossed, out=areas[part], where=crossed > 0)
    return areas


def resampled_precision(
    scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, *, clusters: np.ndarray | None = None
) -> np.ndarray:
    """Average precision of correct captions: precision at each threshold, weighted by the recall that it adds.

    Captions with equal scores pass a threshold together, and nothing is interpolated. Correct captions are the positive
    class; with as many incorrect ones, chance is 1/2.

    Args: as for `resampled_auc`.

    Returns:
        Of R resamples, (R,); NaN for a resample without correct captions.

    Source: the published code of Nam et al., "Extract Free Dense Misalignment from CLIP", 2025, which ranks the correct
        captions of FOIL and nocaps-FOIL first.

    Example:
        >>> resampled_precision(np.array([3, 2, 1]), np.array([1, 0, 1]), np.array([[1, 1, 1], [1, 2, 0]])).round(3)
        array([0.833, 1.   ])
    """
    rows = _checked_rows(scores, labels, weights, clusters)
    downwards = Classes(rows.first.max() - rows.first)
    is_correct = rows.second[:, None] == 1
    averages = np.full(len(rows.weights), np.nan)
    for part, block in rows.blocks():
        added = downwards.counts(block * is_correct)
        precision = np.cumsum(added, axis=0) / np.maximum(np.cumsum(downwards.counts(block), axis=0), 1)
        total = added.sum(axis=0)
        np.divide((added * precision).sum(axis=0), total, out=averages[part], where=total > 0)
    return averages


def tie_threshold(differences: np.ndarray, ties: int) -> float:
    """The threshold at which a metric gives as many ties as people gave.

    Differences of equal size become ties together, so the exact number may not be possible. The threshold then gives
    the nearest possible number, and is the smaller one if two are equally near. Equal scores are always ties.

    Args:
        differences: score of the first caption minus score of the second, finite numbers (N,).
        ties: how many ties people gave, 0 to N.

    Returns:
        A number of at least 0. A battle is a tie if its difference is at most that large.

    Raises:
        ValueError: another shape, a number that is not finite, or an impossible number of ties.

    Source: Cheng et al., "CapArena", 2025, section 4.1: ties as often as in the human annotations.

    Example:
        >>> tie_threshold(np.array([0.5, -0.1, 0.2, -0.9]), ties=2)
        0.2
    """
    sizes = np.sort(np.abs(_finite(differences, "differences", ())))
    if not 0 <= ties <= len(sizes):
        raise ValueError(f"ties must be between 0 and the {len(sizes)} battles, got {ties}")
    thresholds = np.unique(np.append(sizes, 0.0))
    ties_at = np.searchsorted(sizes, thresholds, side="right")
    return float(thresholds[np.argmin(np.abs(ties_at - ties))])  # the first, so the smaller, of two equally near ones


def verdicts(differences: np.ndarray, threshold: float) -> np.ndarray:
    """What a metric says of each battle.

    Args:
        differences: score of the first caption minus score of the second, finite numbers (N,).
        threshold: see `tie_threshold`.

    Returns:
        Whole numbers (N,): 1 where the first caption is better, -1 where the second is, 0 for a tie.

    Raises:
        ValueError: another shape, a number that is not finite, or a negative threshold.

    Example:
        >>> verdicts(np.array([0.5, -0.1, 0.2, -0.9]), 0.2)
        array([ 1,  0,  0, -1])
    """
    differences = _finite(differences, "differences", ())
    if not threshold >= 0:
        raise ValueError(f"the threshold must be at least 0, got {threshold}")
    return np.where(np.abs(differences) <= threshold, 0, np.sign(differences)).astype(np.int64)


def winoground_scores(scores: np.ndarray) -> dict[str, np.ndarray]:
    """Whether a metric gets each quadruple right, in Winoground's three senses. Equal scores are wrong.

    Text: each image scores higher with its own caption. Image: each caption scores higher with its own image. Group:
    both. Chance is 1/4, 1/4 and 1/6.

    Args:
        scores: finite numbers (N, 4): caption 0 with image 0, caption 1 with image 0, caption 0 with image 1,
            caption 1 with image 1.

    Returns:
        {"text": (N,), "image": (N,), "group": (N,)}, booleans; their means are the benchmark's scores.

    Raises:
        ValueError: another shape, or a number that is not finite.

    Source: Thrush et al., "Winoground", 2022, section 3.

    Example:
        >>> {name: right.tolist() for name, right in winoground_scores(np.array([[0.9, 0.2, 0.3, 0.1]])).items()}
        {'text': [False], 'image': [False], 'group': [False]}
        >>> winoground_scores(np.array([[0.9, 0.2, 0.95, 0.97]]))["text"]
        array([ True])
    """
    own0, other0, other1, own1 = _finite(scores, "quadruples", (4,)).T  # by image: its own caption, the other's
    text = (own0 > other0) & (own1 > other1)
    image = (own0 > other1) & (own1 > other0)
    return {"text": text, "image": image, "group": text & image}


def _finite(values: np.ndarray, what: str, of_each: tuple[int, ...]) -> np.ndarray:
    """Floats (N, *of_each), N at least 1, all finite."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 + len(of_each) or values.shape[1:] != of_each or not len(values):
        wanted = ", ".join(["N", *map(str, of_each)]) + ("" if of_each else ",")
        raise ValueError(f"{what} must have shape ({wanted}) with N >= 1, got {values.shape}")
    lost = int((~np.isfinite(values)).reshape(len(values), -1).any(axis=1).sum())
    if lost:
        raise ValueError(f"{lost} of {len(values)} {what} are not finite: leave out what could not be scored")
    return values


def _checked_rows(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, clusters: np.ndarray | None) -> Rows:
    scores, labels = checked_pair(scores, labels)
    kinds = np.unique(labels).tolist()
    if kinds != [0, 1]:
        raise ValueError(f"labels must be 1 (correct) or 0 (incorrect), some of each, got {kinds[:5]}")
    return Rows.of(scores, labels, weights, clusters)
