"""ScoreTable: the output of every metric, and the weights that turn its aspects into one number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reward.errors import ConfigError, WeightsError

__all__ = ["ScoreTable", "checked_weight", "normalise_weights", "parse_weights", "sum_to_one"]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of N samples on A aspects, in the order of the samples; larger is better.

    Args:
        scores: float array (N, A); NaN where a sample could not be scored.
        aspects: A names, in the order of the columns.
        errors: {row: message} for every row that holds NaN.
        truncated: bool array (N,): True where some text of the sample was cut to fit the model.
        aliases: {short name: aspect}, accepted by `column` and `combine`. A metric's tables have those of its `spec`.

    Example:
        >>> table = ScoreTable(np.array([[0.2, 0.8]]), ("descriptiveness", "relevance"), aliases={"rel": "relevance"})
        >>> float(table.combine({"rel": 1.0})[0]), float(table.column("rel")[0])
        (0.8, 0.8)
    """

    scores: np.ndarray
    aspects: tuple[str, ...]
    errors: dict[int, str] = field(default_factory=dict)
    truncated: np.ndarray = None  # type: ignore[assignment]  # __post_init__ makes it an array
    aliases: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != len(self.aspects):
            raise ValueError(f"scores must have shape (N, {len(self.aspects)}), got {scores.shape}")
        object.__setattr__(self, "scores", scores)
        none_cut = np.zeros(len(scores), dtype=bool)
        truncated = none_cut if self.truncated is None else np.asarray(self.truncated, dtype=bool)
        if truncated.shape != (len(scores),):
            raise ValueError(f"truncated must have shape ({len(scores)},), got {truncated.shape}")
        object.__setattr__(self, "truncated", truncated)

    def __len__(self) -> int:
        return len(self.scores)

    def column(self, aspect: str) -> np.ndarray:
        """Scores of one aspect, by its name or its short name, shape (N,).

        Raises:
            ConfigError: no such aspect.
        """
        name = self.aliases.get(aspect, aspect)
        if name not in self.aspects:
            raise ConfigError(f"no aspect is named {aspect!r}; known: {_listed(self.aspects, self.aliases)}")
        return self.scores[:, self.aspects.index(name)]

    def combine(self, weights: Mapping[str, float] | None = None) -> np.ndarray:
        """Weighted mean over the aspects, shape (N,); NaN where a weighted aspect is NaN.

        Args:
            weights: {aspect or short name: weight}; None weighs all alike. See `normalise_weights`.
        """
        vector = normalise_weights(weights, self.aspects, self.aliases)
        used = vector != 0  # an aspect without weight must not spread its NaN
        return self.scores[:, used] @ vector[used]


def normalise_weights(
    weights: Mapping[str, float] | None, aspects: Sequence[str], aliases: Mapping[str, str] | None = None
) -> np.ndarray:
    """Aspect weights as a vector of shape (A,) that sums to 1.

    Args:
        weights: {aspect or alias: weight}; aspects left out weigh 0; None gives equal weights.
        aspects: the metric's aspects.
        aliases: {alias: aspect}.

    Raises:
        WeightsError: unknown or doubled name, a weight that is not a finite number, or a sum that is not positive.

    Example:
        >>> normalise_weights({"rel": 3, "flu": 1}, ["relevance", "fluency"], {"rel": "relevance", "flu": "fluency"})
        array([0.75, 0.25])
    """
    aspects = list(aspects)
    if weights is None:
        return np.full(len(aspects), 1 / len(aspects))
    if not isinstance(weights, Mapping):
        raise WeightsError(f"weights must be a dict {{aspect: number}}, got {type(weights).__name__}")
    aliases = aliases or {}
    vector = np.zeros(len(aspects))
    seen: dict[str, str] = {}
    for name, weight in weights.items():
        aspect = aliases.get(name, name)
        if aspect not in aspects:
            raise WeightsError(f"weights name an unknown aspect {name!r}; known: {_listed(aspects, aliases)}")
        if aspect in seen:
            raise WeightsError(f"weights give aspect {aspect!r} twice, as {seen[aspect]!r} and {name!r}")
        seen[aspect] = name
        vector[aspects.index(aspect)] = checked_weight(weight, f"weight of aspect {name!r}")
    return sum_to_one(vector)


def parse_weights(text: str) -> dict[str, float]:
    """Reads weights as command lines and environment variables give them.

    Raises:
        WeightsError: not of the form aspect=number,aspect=number, or an aspect is there twice.

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
            raise WeightsError(f"{part.strip()!r} is not of the form aspect=number, as in desc=1,rel=2,flu=1") from None
    return weights


def checked_weight(weight: Any, what: str) -> float:
    """A weight as a float.

    Raises:
        WeightsError: no finite number; the message starts with `what`.
    """
    is_number = isinstance(weight, (int, float, np.integer, np.floating)) and not isinstance(weight, bool)
    try:
        number = float(weight) if is_number else math.nan
    except OverflowError:  # a whole number above all floats
        number = math.nan
    if not math.isfinite(number):
        raise WeightsError(f"{what} must be a finite number, got {weight!r:.80}")
    return number


def sum_to_one(weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Weights divided by their sum.

    Raises:
        WeightsError: the sum is not positive.

    Example:
        >>> sum_to_one([1e308, 3e307, 1e308, 7e307]).round(3).tolist()
        [0.333, 0.1, 0.333, 0.233]
    """
    vector = np.asarray(weights, dtype=np.float64)
    with np.errstate(over="ignore"):
        total = vector.sum()
    if not math.isfinite(total):  # the sum of very large weights overflows, that of their ratios cannot
        vector = vector / np.abs(vector).max()
        total = vector.sum()
    if not total > 0:
        raise WeightsError(
            f"weights must sum to a positive number, got {np.asarray(weights).tolist()!r} with sum {total:g}"
        )
    return vector / total


def _listed(aspects: Sequence[str], aliases: Mapping[str, str]) -> str:
    return ", ".join([*aspects, *(alias for alias, target in aliases.items() if target in aspects)])
