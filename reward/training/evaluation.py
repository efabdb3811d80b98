"""Agreement of scores with human ratings during training: Kendall's tau-c per aspect and its mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["agreement", "kendall_tau_c"]


def kendall_tau_c(scores: np.ndarray, targets: np.ndarray) -> float:
    """Kendall's tau-c; 0 where either side is constant, since no order can then agree.

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
    from scipy.stats import kendalltau

    tau = float(kendalltau(scores, targets, variant="c").statistic)
    return 0.0 if math.isnan(tau) else tau


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
        ValueError: a score is NaN, so the training has diverged.

    Example:
        >>> agreement(np.array([0.1, 0.9]), np.array([0.0, 1.0]), np.array([0, 0]), ["relevance"])["tau_c"]
        1.0
    """
    scores, targets = np.asarray(scores, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    lost = int(np.isnan(scores).sum())
    if lost:
        raise ValueError(f"{lost} of {len(scores)} scores are NaN: lower learning_rate, or use precision bf16 or fp32")
    found = {}
    for place, aspect in enumerate(aspects):
        rows = np.asarray(aspect_ids) == place
        if rows.any():
            found[f"tau_c_{aspect}"] = kendall_tau_c(scores[rows], targets[rows])
    mean = sum(found.values()) / len(found)
    return {"tau_c": mean, **found, "mse": float(np.mean((scores - targets) ** 2))}
