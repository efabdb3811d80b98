"""Weights that turn the aspects of a metric into one number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from reward.errors import WeightsError


def normalise_weights(
    weights: Mapping[str, float] | None, aspects: Sequence[str], aliases: Mapping[str, str] | None = None
) -> np.ndarray:
    """Aspect weights as a vector of shape (A,) that sums to 1.

    Args:
        weights: {aspect or alias: weight}; aspects left out weigh 0; None gives equal weights.
        aspects: the metric's aspects.
        aliases: {alias: aspect}.

    Raises:
        WeightsError: an unknown or repeated name, a weight that is not a finite number, or a sum that is not positive.

    Example:
        >>> normalise_weights({"rel": 3, "flu": 1}, ["relevance", "fluency"], {"rel": "relevance", "flu": "fluency"})
        array([0.75, 0.25])
    """
    if weights is None:
        return np.full(len(aspects), 1 / len(aspects))
    if not isinstance(weights, Mapping):
        raise WeightsError(f"weights must be a dict {{aspect: number}}, got {type(weights).__name__}")
    aliases = aliases or {}
    vector = np.zeros(len(aspects))
    names: dict[str, str] = {}
    for name, weight in weights.items():
        aspect = aliases.get(name, name)
        if aspect not in aspects:
            raise WeightsError(f"weights name an unknown aspect {name!r}; known: {list_names(aspects, aliases)}")
        if aspect in names:
            raise WeightsError(f"weights give aspect {aspect!r} twice, as {names[aspect]!r} and {name!r}")
        names[aspect] = name
        vector[aspects.index(aspect)] = checked_weight(weight, f"weight of aspect {name!r}")
    return sum_to_one(vector)


def parse_weights(text: str) -> dict[str, float]:
    """Parses the weights of a command line or an environment variable.

    Example:
        >>> parse_weights("desc=1, rel=0.5")
        {'desc': 1.0, 'rel': 0.5}
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        name = name.strip()
        try:
            if not equals or not name or name in weights:
                raise ValueError
            weights[name] = float(number)
        except ValueError:
            raise WeightsError(f"{part.strip()!r} is not of the form NAME=NUMBER, as in desc=1,rel=2") from None
    return weights


def checked_weight(weight: Any, what: str) -> float:
    """A weight as a float."""
    try:
        number = float(weight) if isinstance(weight, Real) and not isinstance(weight, bool) else math.nan
    except OverflowError:  # a whole number above all floats
        number = math.inf
    if not math.isfinite(number):
        raise WeightsError(f"{what} must be a finite number, got {weight!r:.80}")
    return number


def sum_to_one(weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Weights divided by their sum.

    Example:
        >>> sum_to_one([3, 1]).tolist()
        [0.75, 0.25]
    """
    vector = np.asarray(weights, dtype=np.float64)
    total = vector.sum()
    if not 0 < total < math.inf:
        raise WeightsError(f"weights must sum to a positive number, got {vector.tolist()!r} with sum {total:g}")
    return vector / total


def list_names(aspects: Sequence[str], aliases: Mapping[str, str]) -> str:
    """Aspects and their aliases, for a message."""
    short_names = [alias for alias, aspect in aliases.items() if aspect in aspects]
    return ", ".join([*aspects, *short_names])
