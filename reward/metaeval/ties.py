"""Ties of a metric in an arena: a threshold below which two scores are as good as equal."""

from __future__ import annotations

import numpy as np

__all__ = ["tie_threshold", "verdicts"]


def tie_threshold(differences: np.ndarray, ties: int) -> float:
    """The threshold with which a metric gives as many ties as people gave.

    Equal differences stand or fall together, so the number may be missed: then it is the nearest one that can be had,
    of two equally near ones the smaller. Equal scores are ties whatever the number.

    Args:
        differences: score of the first caption minus score of the second, finite numbers (N,).
        ties: how many ties people gave, 0 to N.

    Returns:
        A number of at least 0: a battle is a tie if the size of its difference is at most that.

    Raises:
        ValueError: another shape, a number that is not finite, or an impossible number of ties.

    Source: Cheng et al., "CapArena", 2025, section 4.1: ties as often as in the human annotations.

    Example:
        >>> tie_threshold(np.array([0.5, -0.1, 0.2, -0.9]), ties=2)
        0.2
    """
    sizes = np.sort(np.abs(_checked(differences)))
    if not 0 <= ties <= len(sizes):
        raise ValueError(f"ties must be between 0 and the {len(sizes)} battles, got {ties}")
    values = np.unique(np.append(sizes, 0.0))
    given = np.searchsorted(sizes, values, side="right")
    return float(values[np.argmin(np.abs(given - ties))])  # the first, so the smaller, of equally near ones


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
    differences = _checked(differences)
    if not threshold >= 0:
        raise ValueError(f"the threshold must be at least 0, got {threshold}")
    return np.where(np.abs(differences) <= threshold, 0, np.sign(differences)).astype(np.int64)


def _checked(differences: np.ndarray) -> np.ndarray:
    differences = np.asarray(differences, dtype=np.float64)
    if differences.ndim != 1 or not len(differences):
        raise ValueError(f"differences must have shape (N,) with N >= 1, got {differences.shape}")
    lost = int((~np.isfinite(differences)).sum())
    if lost:
        raise ValueError(f"{lost} of {len(differences)} differences are not finite: leave out what could not be scored")
    return differences
