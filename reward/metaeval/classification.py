"""Telling captions apart: ROC AUC, average precision, verdicts with ties, and Winoground's three scores."""

from __future__ import annotations

import numpy as np


def roc_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Probability that a correct caption scores higher than an incorrect one; equal scores count half.

    Args:
        scores: finite numbers (N,).
        labels: 1 for a correct caption, 0 for an incorrect one, (N,).

    Returns:
        A float in [0, 1]; NaN for captions of one kind only.

    Example:
        >>> roc_auc(np.array([0.9, 0.4, 0.4, 0.1]), np.array([1, 1, 0, 0]))
        0.875
    """
    from scipy.stats import mannwhitneyu

    scores, correct = np.asarray(scores), np.asarray(labels) == 1
    if correct.all() or not correct.any():
        return np.nan
    wins = mannwhitneyu(scores[correct], scores[~correct], method="asymptotic").statistic
    return float(wins / correct.sum() / (~correct).sum())


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Average precision of correct captions: precision at each threshold, weighted by the recall that it adds.

    Captions with equal scores pass a threshold together, and nothing is interpolated. Correct captions are the positive
    class; with as many incorrect ones, chance is 1/2.

    Args: as for `roc_auc`.

    Returns:
        A float in [0, 1]; NaN without correct captions.

    Source: the published code of Nam et al., "Extract Free Dense Misalignment from CLIP", 2025, which ranks the correct
        captions of FOIL and nocaps-FOIL first.

    Example:
        >>> round(average_precision(np.array([3, 2, 1]), np.array([1, 0, 1])), 3)
        0.833
    """
    _, ranks = np.unique(-np.asarray(scores), return_inverse=True)
    passed, correct = np.bincount(ranks), np.bincount(ranks, np.asarray(labels) == 1)
    precision = np.cumsum(correct) / np.cumsum(passed)
    return float((precision * correct).sum() / correct.sum()) if correct.any() else np.nan


def tie_threshold(differences: np.ndarray, ties: int) -> float:
    """The threshold at which a metric gives as many ties as people gave.

    Differences of equal size become ties together, so the exact number may not be possible. The threshold then gives
    the nearest possible number, and is the smaller one if two are equally near. Equal scores are always ties.

    Args:
        differences: score of the first caption minus score of the second, finite numbers (N,).
        ties: how many ties people gave, 0 to N.

    Returns:
        A number of at least 0. A battle is a tie if its difference is at most that large.

    Source: Cheng et al., "CapArena", 2025, section 4.1: ties as often as in the human annotations.

    Example:
        >>> tie_threshold(np.array([0.5, -0.1, 0.2, -0.9]), ties=2)
        0.2
    """
    sizes = np.sort(np.abs(differences))
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

    Example:
        >>> verdicts(np.array([0.5, -0.1, 0.2, -0.9]), 0.2)
        array([ 1,  0,  0, -1])
    """
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

    Source: Thrush et al., "Winoground", 2022, section 3.

    Example:
        >>> {name: right.tolist() for name, right in winoground_scores(np.array([[0.9, 0.2, 0.3, 0.1]])).items()}
        {'text': [False], 'image': [False], 'group': [False]}
        >>> winoground_scores(np.array([[0.9, 0.2, 0.95, 0.97]]))["text"]
        array([ True])
    """
    own0, other0, other1, own1 = np.asarray(scores).T  # by image: its own caption, the other's
    text = (own0 > other0) & (own1 > other1)
    image = (own0 > other1) & (own1 > other0)
    return {"text": text, "image": image, "group": text & image}
