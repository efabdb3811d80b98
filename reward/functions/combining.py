"""WeightedReward, CombinedReward and EnsembleReward: one number of several rewards."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from reward.errors import ConfigError, InvalidSampleError
from reward.functions.combination import UNKNOWN_RANGE, Call, Combination, pairs_of, range_of
from reward.functions.metric_reward import MetricReward
from reward.metric_source import MetricSource
from reward.scoring.several import Several, check_one_number, scoring_of
from reward.weights import checked_weight, sum_to_one, weighted_range

__all__ = ["CombinedReward", "EnsembleReward", "Ramp", "WeightedReward"]


class WeightedReward(Combination):
    """The weighted mean of several reward functions, as one reward function.

    Weights are divided by their sum: 0.7 and 0.3 give 0.7 a + 0.3 b, and 7 and 3 the same. Unless one is negative,
    which is allowed, the result lies in the range that the parts share. A trainer that is given the parts as separate
    `reward_funcs` with `reward_weights` sums them without dividing, and may normalise each by itself first.

    A completion gets None if any part of weight other than zero gives it None or a number that is not finite: a mean
    over fewer parts is on another scale than its neighbours', and in a group it would count as a high or low
    reward. A part of weight zero is called and logged, and changes nothing.

    A weight may be a function of the progress of training, 0 to 1 (`global_step / max_steps`), such as `Ramp(0, 0.5)`.
    Such weights are logged as `<name>/weight_<part>`. Outside a trainer, the weights at the end of training are used.

    Args:
        parts: (reward function, weight), at least one; see `Combination`.
        name: default: `weighted` and the names of the parts, as in `weighted_vela_length`.

    Raises:
        WeightsError: no parts, a weight that is not a finite number, or a sum that is not positive.
        TypeError: see `Combination`.
        ConfigError: in a call, if weights change with the progress of training and the trainer does not report it.

    Example:
        >>> from reward import MetricReward
        >>> def polite(completions, **kwargs):
        ...     return [float("please" in text) for text in completions]
        >>> reward = WeightedReward([(MetricReward("length"), 1), (polite, 3)])
        >>> reward(prompts=["Describe."] * 2, completions=["A star, please.", "A star."])
        [1.5, 0.5]
    """

    def __init__(
        self, parts: Sequence[tuple[Callable[..., Any], float | Callable[[float], float]]], *, name: str | None = None
    ) -> None:
        rewards, self._given = pairs_of(parts, "parts", "weight")
        for place, weight in enumerate(self._given):
            for progress in (0.0, 0.5, 1.0) if callable(weight) else (0.0,):
                value = weight(progress) if callable(weight) else weight
                checked_weight(value, f"the weight of parts[{place}]")
        self._changes = any(map(callable, self._given))
        for progress in (0.0, 0.5, 1.0):
            self.weights = self.weights_at(progress)
        super().__init__(rewards, "weighted", name)

    def weights_at(self, progress: float) -> np.ndarray:
        """Weights (parts,), which sum to 1, at a progress of training from 0 to 1.

        Raises:
            WeightsError: a weight that is not a finite number, or a sum that is not positive.
        """
        given = [weight(progress) if callable(weight) else weight for weight in self._given]
        return sum_to_one([checked_weight(weight, f"the weight of parts[{i}]") for i, weight in enumerate(given)])

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward; not known while weights change."""
        return UNKNOWN_RANGE if self._changes else weighted_range(self.weights, list(map(range_of, self.parts)))

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        weights = self._weights(call)
        if self._changes:
            for part_name, weight in zip(self.part_names, weights.tolist(), strict=True):
                call.log(f"weight_{part_name}", weight)
        return table[:, weights != 0] @ weights[weights != 0]  # a part without weight must not spread its NaN

    def _counts(self, call: Call) -> np.ndarray:
        return self._weights(call) != 0

    def _weights(self, call: Call) -> np.ndarray:
        if not self._changes or call.columns is None:
            return self.weights
        state = call.trainer_state
        if state is None or not state.max_steps > 0:
            raise ConfigError(
                f"{self.__name__}: its weights change with the progress of training, and this trainer does not say "
                "how far it is (trainer_state with max_steps). Give numbers as weights"
            )
        return self.weights_at(min(1.0, state.global_step / state.max_steps))

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {weight:.4g}" for name, weight in zip(self.part_names, self.weights, strict=True))
        return f"{type(self).__name__}(name={self.__name__!r}, {parts})"


def reward_of(
    metric: str | Sequence[str],
    source: str | os.PathLike[str] = "embedded",
    weights: Mapping[str, float] | None = None,
    **options: Any,
) -> MetricReward | WeightedReward:
    """The reward of a metric, or the weighted mean of several, as `rerank_dataset` orders by.

    Args:
        metric, source, weights: as for `rerank_dataset`.
        options: further arguments of each `MetricReward`.

    Example:
        >>> reward_of(["vela:3", "length:1"])
        WeightedReward(name='weighted_vela_length', vela: 0.75, length: 0.25)
    """
    if isinstance(metric, str):
        return MetricReward(metric, source, weights, **options)
    several = scoring_of(metric, source)
    assert isinstance(several, Several)
    check_one_number(several.spec)
    given = several.spec.split_weights(weights)
    rewards = []
    for part in several.parts:
        own = given.get(part.spec.name)
        if isinstance(part, MetricSource):
            rewards.append(MetricReward(part.name, part.source, own, revision=part.revision, **options))
        else:
            rewards.append(MetricReward(part, weights=own, **options))
    return WeightedReward(list(zip(rewards, several.shares or (), strict=True)))


@dataclass(frozen=True)
class Ramp:
    """A weight that goes in a straight line from `first` to `last`, and stays level before `begin` and after `end`.

    Args:
        first, last: weights.
        begin, end: progress of training, 0 <= begin <= end <= 1; if they are equal, the weight jumps there.

    Example:
        >>> [Ramp(0.0, 0.5, end=0.5)(progress) for progress in (0, 0.25, 1)]
        [0.0, 0.25, 0.5]
    """

    first: float
    last: float
    begin: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.end <= 1:
            raise ConfigError(f"a Ramp needs 0 <= begin <= end <= 1, got begin={self.begin}, end={self.end}")

    def __call__(self, progress: float) -> float:
        if self.begin == self.end:
            return self.first if progress < self.begin else self.last
        share = min(1.0, max(0.0, (progress - self.begin) / (self.end - self.begin)))
        return self.first + share * (self.last - self.first)


Way = Literal["product", "min", "harmonic", "geometric"]
_WAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "product": lambda table: table.prod(axis=1),
    "min": lambda table: table.min(axis=1),
    "harmonic": lambda table: table.shape[1] / (1 / table).sum(axis=1),
    "geometric": lambda table: np.exp(np.log(table).mean(axis=1)),
}


class CombinedReward(Combination):
    """Product, minimum, harmonic or geometric mean of rewards: a low part cannot be made up for by a high one.

    On [0, 1]: product <= min <= harmonic <= geometric <= (weighted) mean. Equal parts give their value, save in the
    product. All but the minimum need parts that are never negative.

    Args:
        parts: reward functions, see `Combination`.
        how: `"product"`, `"min"`, `"harmonic"` or `"geometric"`.
        name: default: `how` and the names of the parts.

    Raises:
        ConfigError: no parts, an unknown way, or a part whose metric can be negative.
        InvalidSampleError: in a call, if a part is negative where it must not be.

    Example:
        >>> def constant(value):
        ...     return lambda completions, **kwargs: [value] * len(completions)
        >>> [CombinedReward([constant(0.5), constant(1.0)], how)(["p"], ["c"])[0] for how in ("product", "min")]
        [0.5, 0.5]
    """

    def __init__(self, parts: Sequence[Callable[..., Any]], how: Way, *, name: str | None = None) -> None:
        if how not in _WAYS:
            raise ConfigError(f"how must be one of {', '.join(_WAYS)}, got {how!r}; for the mean take WeightedReward")
        super().__init__(parts, how, name)
        self.how = how
        for part, part_name in zip(self.parts, self.part_names, strict=True):
            low, high = range_of(part)
            if how != "min" and -math.inf < low < 0:
                raise ConfigError(
                    f'how="{how}" needs rewards that are never negative, and {part_name!r} lies in [{low:g}, {high:g}]'
                )

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where those of a part are not known."""
        ends = np.array([range_of(part) for part in self.parts]).T
        if self.how != "min" and (ends[0] < 0).any():
            return UNKNOWN_RANGE
        low, high = self._apply(ends).tolist()
        return low, high

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        if self.how != "min" and (table < 0).any():
            row, part = np.argwhere(table < 0)[0]
            raise InvalidSampleError(
                f'{self.__name__}: how="{self.how}" needs rewards that are never negative, and '
                f"{self.part_names[part]!r} gave {table[row, part]:g}"
            )
        return self._apply(table)

    def _apply(self, table: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", over="ignore"):  # a part of 0 makes all of them 0
            return _WAYS[self.how](table)


class EnsembleReward(Combination):
    """Mean of several rewards minus k times their spread, so that captions on which they disagree get less.

    The members should measure the same quality: metrics, checkpoints of one metric trained with different seeds, or
    aspects. Put them on one scale first, see `StandardisedReward`. Members that share a backbone also share its errors,
    on which they will not disagree.

    Args:
        parts: at least two reward functions, see `Combination`.
        k: at least 0; 0 gives the mean.
        spread: `"std"`, the standard deviation over the members (divided by their number, not one less), or
            `"variance"`, its square, as in "Reward Model Ensembles Help Mitigate Overoptimization" (2023).
        name: default: `ensemble` and the names of the parts.

    Raises:
        ConfigError: fewer than two parts, a bad k or spread, or ranges that differ.

    Example:
        >>> def constant(value):
        ...     return lambda completions, **kwargs: [value] * len(completions)
        >>> EnsembleReward([constant(0.25), constant(0.75)], k=1)(["p"], ["c"])
        [0.25]
    """

    def __init__(
        self,
        parts: Sequence[Callable[..., Any]],
        *,
        k: float = 1.0,
        spread: Literal["std", "variance"] = "std",
        name: str | None = None,
    ) -> None:
        super().__init__(parts, "ensemble", name)
        if len(self.parts) < 2:
            raise ConfigError("an ensemble needs at least two rewards: one alone has no spread")
        if not 0 <= k < math.inf:
            raise ConfigError(f"k must be a number of at least 0, got {k!r}")
        if spread not in ("std", "variance"):
            raise ConfigError(f'spread must be "std" or "variance", got {spread!r}')
        self.k, self.spread = k, spread
        known = {range_of(part) for part in self.parts} - {UNKNOWN_RANGE}
        if len(known) > 1:
            raise ConfigError(
                f"the members of an ensemble must be on one scale, and their ranges are {sorted(known)}. "
                "Wrap each in StandardisedReward"
            )

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where those of a part are not known."""
        low, high = min(range_of(part)[0] for part in self.parts), max(range_of(part)[1] for part in self.parts)
        if not math.isfinite(high - low):
            return UNKNOWN_RANGE
        most = (high - low) / 2
        return low - self.k * (most if self.spread == "std" else most**2), high

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        spread = table.std(axis=1) if self.spread == "std" else table.var(axis=1)
        if len(spread):
            call.log(self.spread, float(spread.mean()))
        return table.mean(axis=1) - self.k * spread
