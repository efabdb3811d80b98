"""FLEUR's score smoothing: from the probabilities of the digits to one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# The probabilities of a half-precision softmax may add up to slightly more than 1.
_ROUNDING = 0.01


def smoothed_score(first: Sequence[float], second: Sequence[float], *, dtype: Any = np.float64) -> float:
    """Expected value of the first two decimals of an answer 0.xx: sum over j of 10^-j, sum over i of i p(i, j).

    The probabilities at the two places are those over the whole vocabulary. They are not normalised: other tokens than
    digits count as the digit 0, as in the paper (in its worked example, the digits of the second place have 0.74).

    Source: section 3.2 of the FLEUR paper.

    Args:
        first: ten probabilities, of the digits 0 to 9 as first decimal.
        second: the same of the second decimal.
        dtype: of the sum. The authors used half precision: `np.float16` gives the 0.80664 of the paper's worked
            example, whose exact sum is 0.80617.

    Returns:
        A number from 0 to 0.99.

    Raises:
        ValueError: there are not ten numbers, one is outside [0, 1], or their sum is above 1.

    Example:
        >>> certain_of = lambda digit: [float(digit == i) for i in range(10)]
        >>> round(smoothed_score(certain_of(8), certain_of(5)), 6)
        0.85
    """
    kind = np.dtype(dtype).type
    total = kind(0)
    for place, probabilities in ((0.1, _digits(first, "first")), (0.01, _digits(second, "second"))):
        for digit, probability in enumerate(probabilities):
            total = total + kind(probability) * kind(digit) * kind(place)
    return float(total)


def smoothed_units(zero: float, one: float) -> float:
    """Score of an answer 1.0, which has no decimals to smooth: 0.9 p(0) + 1.0 p(1) at the units place.

    The paper assumes that a 0 at the units place would have been followed by .9 (appendix B).

    Args:
        zero, one: probabilities of the digits 0 and 1 at the units place.

    Raises:
        ValueError: one outside [0, 1], or a sum above 1.

    Example:
        >>> smoothed_units(0.25, 0.75)
        0.975
    """
    probabilities = _checked([zero, one], "zero and one")
    return float(min(1.0, 0.9 * probabilities[0] + probabilities[1]))


def _digits(probabilities: Sequence[float], name: str) -> np.ndarray:
    array = _checked(probabilities, name)
    if array.shape != (10,):
        raise ValueError(f"{name} must hold ten probabilities, of the digits 0 to 9, got shape {array.shape}")
    return array


def _checked(probabilities: Sequence[float], name: str) -> np.ndarray:
    array = np.asarray(probabilities, dtype=np.float64)
    if not (np.isfinite(array).all() and (array >= 0).all() and array.sum() <= 1 + _ROUNDING):
        raise ValueError(f"{name} must be probabilities (none negative, sum at most 1), got {array.tolist()}")
    return array
