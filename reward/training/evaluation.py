"""How good scores are during training: Kendall's tau-c with ratings, and accuracy on pairs of captions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reward.errors import TrainingError
from reward.metaeval.classification import roc_auc
from reward.metaeval.correlation import kendall_tau

__all__ = ["agreement", "kendall_tau_c", "pair_accuracy"]


def kendall_tau_c(scores: np.ndarray, targets: np.ndarray) -> float:
    """Kendall's tau-c; 0 for a single row, or if the scores or the targets are constant.

    Args:
        scores, targets: floats (N,).

    Returns:
        A float in [-1, 1].

    Example:
        >>> kendall_tau_c(np.array([0.1, 0.2, 0.9]), np.array([0.0, 0.5, 1.0]))
        1.0
        >>> kendall_tau_c(np.zeros(3), np.array([0.0, 0.5, 1.0]))
        0.0
    """
    return kendall_tau(scores, targets) if len(scores) > 1 else 0.0


def agreement(
    scores: np.ndarray, targets: np.ndarray, aspect_ids: np.ndarray, aspects: Sequence[str]
) -> dict[str, float]:
    """Tau-c of each aspect that occurs, and their mean, by which training stops.

    Args:
        scores, targets: floats (N,).
        aspect_ids: integers (N,), the place in `aspects` of what each row rates.
        aspects: names of the metric's aspects.

    Returns:
        {"tau_c": mean, "tau_c_<aspect>": ..., "mse": mean squared error}.

    Raises:
        TrainingError: a score is not finite, so the training has diverged.

    Example:
        >>> agreement(np.array([0.1, 0.9]), np.array([0.0, 1.0]), np.array([0, 0]), ["relevance"])["tau_c"]
        1.0
    """
    scores, targets = _checked(scores), np.asarray(targets, dtype=np.float64)
    found = {}
    for place, aspect in enumerate(aspects):
        rows = np.asarray(aspect_ids) == place
        if rows.any():
            found[f"tau_c_{aspect}"] = kendall_tau_c(scores[rows], targets[rows])
    mean = sum(found.values()) / len(found)
    return {"tau_c": mean, **found, "mse": float(np.mean((scores - targets) ** 2))}


def pair_accuracy(
    scores: np.ndarray, targets: np.ndarray, kinds: np.ndarray, pairs: np.ndarray, categories: Sequence[str]
) -> dict[str, float]:
    """Share of pairs of each kind whose correct caption has the higher score, and their mean.

    Equal scores count as wrong.

    Args:
        scores: floats (N,), of both captions of N / 2 pairs, in any order.
        targets: 1 for correct and 0 for incorrect captions (N,).
        kinds: place in `categories` of each caption's kind of error (N,).
        pairs: number of each caption's pair (N,).
        categories: names of the kinds.

    Returns:
        {"accuracy": mean over the kinds, "accuracy_<category>": ..., "auc": area under the ROC curve of all captions}.

    Raises:
        TrainingError: a score is not finite, so the training has diverged.

    Example:
        >>> pair_accuracy(np.array([0.9, 0.1]), np.array([1, 0]), np.array([0, 0]), np.array([7, 7]), ["noun"])
        {'accuracy': 1.0, 'accuracy_noun': 1.0, 'auc': 1.0}
    """
    scores, correct = _checked(scores), np.asarray(targets) > 0.5
    order = np.lexsort((~correct, np.asarray(pairs)))  # pair by pair, the correct caption first
    first, second = scores[order][::2], scores[order][1::2]
    right, kinds = first > second, np.asarray(kinds)[order][::2]
    found = {
        f"accuracy_{name}": float(right[kinds == place].mean())
        for place, name in enumerate(categories)
        if (kinds == place).any()
    }
    return {"accuracy": sum(found.values()) / len(found), **found, "auc": roc_auc(scores, correct)}


def _checked(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64)
    lost = int((~np.isfinite(scores)).sum())
    if lost:
        raise TrainingError(
            f"{lost} of {len(scores)} scores are not finite: lower learning_rate, or use precision bf16 or fp32"
        )
    return scores
