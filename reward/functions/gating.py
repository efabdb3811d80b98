"""GatedReward: a reward that counts only where others reach a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reward.errors import ConfigError, InvalidSampleError
from reward.functions.combination import Call, Combination, pairs_of, range_of
from reward.weights import checked_weight

__all__ = ["GatedReward", "checked_thresholds", "logistic"]


class GatedReward(Combination):
    """A reward with a veto: a caption that falls short of any threshold ranks below every caption that does not.

    A vetoed caption gets the lowest reward minus the sum of what it falls short by, so that coming closer to a
    threshold still pays.

    The soft form multiplies what the reward has above its lowest value by `1 / (1 + exp((threshold - c) / soft))`
    for each gate c, which is 1/2 at the threshold. It vetoes nothing outright.

    Besides what every combination logs: `<name>/vetoed`, the share of captions below a threshold.

    Args:
        reward: what counts where the gates are passed.
        gates: (reward function, threshold), such as `(vela.aspect("flu"), 0.6)`; a value equal to it passes.
        soft: width of the soft form, above 0; None is the hard veto.
        lowest: lowest value of `reward`; None takes that of its metric.
        name: default: `gated` and the names of the parts.

    Raises:
        ConfigError: no gate, a threshold outside a gate's range, or a lowest value that is neither given nor known.
        InvalidSampleError: in a call, if a reward is below `lowest`.

    Example:
        >>> def score(completions, **kwargs):
        ...     return [0.75] * len(completions)
        >>> def brief(completions, **kwargs):
        ...     return [1.0 if len(text) < 9 else 0.25 for text in completions]
        >>> GatedReward(score, [(brief, 0.5)], lowest=0)(["p"] * 2, ["A star.", "A star on grass."])
        [0.75, -0.25]
    """

    def __init__(
        self,
        reward: Callable[..., Any],
        gates: Sequence[tuple[Callable[..., Any], float]],
        *,
        soft: float | None = None,
        lowest: float | None = None,
        name: str | None = None,
    ) -> None:
        guards, thresholds = pairs_of(gates, "gates", "threshold")
        if not guards:
            raise ConfigError("gates needs at least one (reward function, threshold), got none")
        super().__init__([reward, *guards], "gated", name)
        self.thresholds = checked_thresholds(self, thresholds)
        if soft is not None and not 0 < soft < math.inf:
            raise ConfigError(f"soft must be a number above 0, or None for the hard veto, got {soft!r}")
        self.soft = soft
        self.lowest = range_of(reward)[0] if lowest is None else checked_weight(lowest, "lowest")
        if not math.isfinite(self.lowest):
            raise ConfigError(f"the lowest value of {self.part_names[0]!r} is not known: give lowest=")

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where those of a part are not known."""
        deepest = sum(
            max(0.0, threshold - range_of(guard)[0])
            for guard, threshold in zip(self.parts[1:], self.thresholds, strict=True)
        )
        return float(self.lowest - (deepest if self.soft is None else 0.0)), range_of(self.parts[0])[1]

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        rewards, margins = table[:, 0], table[:, 1:] - self.thresholds
        if (rewards < self.lowest).any():
            raise InvalidSampleError(
                f"{self.__name__}: {self.part_names[0]!r} gave {rewards.min():g}, which is below lowest="
                f"{self.lowest:g}: a caption that passes would rank below one that is vetoed"
            )
        vetoed = (margins < 0).any(axis=1)
        if len(rows):
            call.log("vetoed", float(vetoed.mean()))
        if self.soft is not None:
            return self.lowest + (rewards - self.lowest) * logistic(margins / self.soft).prod(axis=1)
        return np.where(vetoed, self.lowest + np.minimum(margins, 0).sum(axis=1), rewards)


def checked_thresholds(reward: Combination, thresholds: Sequence[Any]) -> np.ndarray:
    """Thresholds of all parts but the first, (parts - 1,).

    Raises:
        WeightsError: one is not a finite number.
        ConfigError: one lies outside the range of its part, where all captions would pass, or none.
    """
    checked = []
    for part, name, threshold in zip(reward.parts[1:], reward.part_names[1:], thresholds, strict=True):
        number = checked_weight(threshold, f"the threshold of {name!r}")
        low, high = range_of(part)
        if not low < number <= high:
            raise ConfigError(
                f"the threshold of {name!r} must be above {low:g} and at most {high:g}, the range of that reward, "
                f"got {number:g}: {'every caption' if number <= low else 'no caption'} would reach it"
            )
        checked.append(number)
    return np.array(checked)


def logistic(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow.

    Example:
        >>> logistic(np.array([-1e4, 0.0])).tolist()
        [0.0, 0.5]
    """
    return (1 + np.tanh(x / 2)) / 2
