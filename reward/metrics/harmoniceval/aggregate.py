"""HarmonicEval's formulas: rating probabilities to criterion scores, and these to one score by harmonic weighting."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np

RATINGS = (1, 2, 3, 4, 5)

# A distribution with all its mass on one rating has variance 0 and would get an infinite weight. Variances below this
# floor count as equal.
VARIANCE_FLOOR = 1e-12


class Aggregate(NamedTuple):
    """Output of `aggregate`; for one sample `overall` is a number, and the others have shape (criteria,).

    Args:
        overall: weighted mean of the criterion scores, in [1, 5].
        scores: expected rating of each criterion, in [1, 5].
        variances: variance of the rating of each criterion, in [0, 4].
        weights: weight of each criterion; they sum to 1.
    """

    overall: Any
    scores: np.ndarray
    variances: np.ndarray
    weights: np.ndarray


def aggregate(probabilities: Any, gamma: float = 0.75) -> Aggregate:
    """Turns the probabilities of the ratings 1 to 5 on each criterion into one score.

    s_c = sum_r r P_c(r), var_c = sum_r (r - s_c)^2 P_c(r), w_c proportional to var_c^(-(1 - gamma) / gamma), and the
    overall score is sum_c w_c s_c. Criteria of variance 0 share all the weight, which is the limit of the formula.

    Source: section 2.2 of the HarmonicEval paper.

    Args:
        probabilities: array (criteria, 5), or (..., criteria, 5) for many samples at once. Each row of five is divided
            by its sum, because a model gives some probability to tokens that are not ratings.
        gamma: from 0 to 1. 1 weighs all criteria alike, 0.5 weighs by the inverse variance, 0 uses only the
            criteria of the smallest variance.

    Raises:
        ValueError: the shape is another, a number is negative or not finite, a row sums to 0, or gamma is outside
            [0, 1].

    Example:
        >>> result = aggregate([[0, 0, 0, 0.5, 0.5], [0.5, 0, 0, 0, 0.5]], gamma=0.5)
        >>> result.scores.tolist(), result.variances.tolist()
        ([4.5, 3.0], [0.25, 4.0])
        >>> result.weights.round(4).tolist(), round(result.overall, 4)
        ([0.9412, 0.0588], 4.4118)
    """
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim < 2 or array.shape[-1] != len(RATINGS) or array.shape[-2] == 0:
        raise ValueError(f"probabilities must have shape (criteria, {len(RATINGS)}), got {array.shape}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError("probabilities must be finite and not negative")
    total = array.sum(axis=-1, keepdims=True)
    if not (total > 0).all():
        raise ValueError("every criterion needs some probability on the ratings 1 to 5, but one has none")
    array = array / total
    ratings = np.array(RATINGS, dtype=np.float64)
    scores = np.clip(array @ ratings, RATINGS[0], RATINGS[-1])  # rounding
    variances = ((ratings - scores[..., None]) ** 2 * array).sum(axis=-1)
    weights = harmonic_weights(variances, gamma)
    overall = np.clip((weights * scores).sum(axis=-1), RATINGS[0], RATINGS[-1])
    return Aggregate(float(overall) if overall.ndim == 0 else overall, scores, variances, weights)


def harmonic_weights(variances: np.ndarray, gamma: float) -> np.ndarray:
    """Weights (..., criteria), proportional to variance^(-(1 - gamma) / gamma), which sum to 1.

    Raises:
        ValueError: gamma outside [0, 1].

    Example:
        >>> harmonic_weights(np.array([1.0, 4.0]), gamma=0.5).tolist()
        [0.8, 0.2]
    """
    if isinstance(gamma, bool) or not isinstance(gamma, Real) or not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be a number from 0 to 1, got {gamma!r}")
    # In logarithms relative to the smallest variance, because a small gamma is a large exponent, which would overflow.
    exponent = np.inf if gamma == 0 else (1 - gamma) / gamma
    logs = np.log(np.maximum(variances, VARIANCE_FLOOR))
    excess = logs - logs.min(axis=-1, keepdims=True)
    relative = np.where(excess == 0, 1.0, np.exp(-exponent * np.where(excess == 0, 1.0, excess)))
    weights: np.ndarray = relative / relative.sum(axis=-1, keepdims=True)
    return weights
