"""Kendall's tau-b and tau-c between scores and ratings, and their values on many bootstrap resamples at once."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = ["Variant", "kendall_tau", "resampled_tau"]

Variant = Literal["b", "c"]
_COLUMNS = 1024  # of the matrix of pairs that are in memory at once


def kendall_tau(scores: np.ndarray, ratings: np.ndarray, *, variant: Variant = "c") -> float:
    """Kendall's rank correlation.

    tau-c divides by the largest value that the number of distinct ratings allows, tau-b by the pairs that are tied on
    neither side. LongCap-Arena and the papers on long captions report tau-c.

    Args:
        scores, ratings: finite numbers (N,), N at least 2.
        variant: "b" or "c".

    Returns:
        A float in [-1, 1]; 0 where either side is constant, since no order can then agree.

    Raises:
        ValueError: other shapes, or a number that is not finite.

    Example:
        >>> kendall_tau(np.array([0.1, 0.2, 0.9]), np.array([0.0, 0.5, 1.0]))
        1.0
    """
    from scipy.stats import kendalltau

    scores, ratings = checked_pair(scores, ratings)
    tau = float(kendalltau(scores, ratings, variant=variant).statistic)
    return 0.0 if np.isnan(tau) else tau


def resampled_tau(
    scores: np.ndarray, ratings: np.ndarray, weights: np.ndarray, *, variant: Variant = "c"
) -> np.ndarray:
    """Kendall's tau of R resamples; each value is what `kendall_tau` gives for the samples drawn.

    The signs of all N x N pairs are computed once; a resample in which sample i occurs w_i times then has
    `w @ signs @ w` more concordant than discordant (ordered) pairs, which is one matrix product for all resamples.

    Args:
        scores, ratings: finite numbers (N,).
        weights: how often each resample holds each sample, (R, N); see `bootstrap_weights`.
        variant: "b" or "c".

    Returns:
        Floats (R,); 0 for a resample that is constant on either side.

    Raises:
        ValueError: other shapes, or a number that is not finite.

    Example:
        >>> resampled_tau(np.array([1, 2, 3]), np.array([1, 2, 2]), np.array([[1, 1, 1], [0, 1, 2]])).round(3)
        array([0.889, 0.   ])
    """
    scores, ratings = checked_pair(scores, ratings)
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != len(scores):
        raise ValueError(f"weights must have shape (R, {len(scores)}), got {weights.shape}")
    balance = np.zeros(len(weights))
    for start in range(0, len(scores), _COLUMNS):
        part = slice(start, start + _COLUMNS)
        signs = np.sign(scores[:, None] - scores[part]) * np.sign(ratings[:, None] - ratings[part])
        balance += ((weights @ signs) * weights[:, part]).sum(axis=1)
    total = weights.sum(axis=1)
    if variant == "c":
        classes = np.minimum(_classes(scores, weights), _classes(ratings, weights))
        largest = total**2 * (classes - 1) / classes
    else:
        largest = np.sqrt(_untied(scores, weights) * _untied(ratings, weights))
    return np.divide(balance, largest, out=np.zeros(len(weights)), where=largest > 0)


def checked_pair(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float arrays (N,) of the same length, N at least 2, all finite.

    Raises:
        ValueError: anything else.
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        raise ValueError(f"need two arrays of one shape (N,) with N >= 2, got {first.shape} and {second.shape}")
    lost = int((~np.isfinite(first) | ~np.isfinite(second)).sum())
    if lost:
        raise ValueError(f"{lost} of {len(first)} pairs are not finite numbers: leave out what could not be scored")
    return first, second


def _class_counts(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How often each distinct value occurs in each resample, (R, K)."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return np.add.reduceat(weights[:, order], starts, axis=1)


def _classes(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return (_class_counts(values, weights) > 0).sum(axis=1)


def _untied(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Ordered pairs of different values in each resample, (R,)."""
    return weights.sum(axis=1) ** 2 - (_class_counts(values, weights) ** 2).sum(axis=1)
