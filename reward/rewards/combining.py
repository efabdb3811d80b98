"""WeightedReward and CombinedReward: one number of several rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from reward.aspect_weights import checked_weight, sum_to_one, weighted_range
from reward.errors import ConfigError, InvalidSampleError
from reward.rewards.combination import UNKNOWN_RANGE, Combination, range_of

__all__ = ["CombinedReward", "WeightedReward"]


class WeightedReward(Combination):
    """The weighted mean of several reward functions, as one reward function.

    Weights are divided by their sum: 0.7 and 0.3 give 0.7 a + 0.3 b, and 7 and 3 the same. Unless one is negative,
    which is allowed, the result lies in the range that the parts share. A trainer that is given the parts as separate
    `reward_funcs` with `reward_weights` sums them without dividing, and may normalise each by itself first.

    A completion gets None if any part of weight other than zero gives it None or a number that is not finite: a mean
    over fewer parts is on another scale than its neighbours', and in a group it would count as a high or low
    reward. A part of weight zero is called and logged, and changes nothing.

    With a trainer's loggers, the mean of each part is logged as `<name>/<part>`, and the share of rows without a reward
    as `<name>/unscored`; parts log what they log.

    Args:
        parts: (reward function, weight), in either order, at least one. A reward function is anything with a trainer's
            call: `VelaReward()`, an aspect such as `VelaReward().aspect("flu")`, a plain function that takes
            `**kwargs`, another combination. All columns and loggers are passed on to every part.
        name: the name in the trainer's logs (`__name__`); two rewards of one trainer must not share it. Default:
            `weighted` and the names of the parts, as in `weighted_vela_length`.

    Raises:
        WeightsError: no parts, a weight that is not a finite number, or a sum that is not positive.
        TypeError: a part cannot be called, is asynchronous, or is a network: trainers call those in other ways, so they
            must be given to the trainer itself.

    Example:
        >>> from reward import MetricReward
        >>> def polite(completions, **kwargs):
        ...     return [float("please" in text) for text in completions]
        >>> reward = WeightedReward([(MetricReward("length"), 1), (polite, 3)])
        >>> reward(prompts=["Describe."] * 2, completions=["A star, please.", "A star."])
        [1.5, 0.5]
    """

    def __init__(self, parts: Sequence[tuple[Callable[..., Any], float]], *, name: str | None = None) -> None:
        if not isinstance(parts, Sequence):
            raise TypeError(f"parts must be a list of (reward function, weight), got {parts!r:.80}")
        for place, entry in enumerate(parts):
            if not isinstance(entry, (tuple, list)) or len(entry) != 2:
                raise TypeError(f"parts[{place}] must be (reward function, weight), got {entry!r:.80}")
        in_order: list[Any] = [part[::-1] if callable(part[1]) and not callable(part[0]) else part for part in parts]
        self.weights = sum_to_one(
            [checked_weight(weight, f"the weight of parts[{i}]") for i, (_, weight) in enumerate(in_order)]
        )
        super().__init__([reward for reward, _ in in_order], "weighted", name)

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the reward, infinite where those of a part are not known."""
        return weighted_range(self.weights, list(map(range_of, self.parts)))

    def combine(self, table: np.ndarray) -> np.ndarray:
        """See `Combination`."""
        used = self._counts()
        return table[:, used] @ self.weights[used]  # a part without weight must not spread its NaN

    def _counts(self) -> np.ndarray:
        return self.weights != 0

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {weight:.4g}" for name, weight in zip(self.part_names, self.weights, strict=True))
        return f"{type(self).__name__}(name={self.__name__!r}, {parts})"


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
        parts: reward functions, see `WeightedReward`.
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

    def combine(self, table: np.ndarray) -> np.ndarray:
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
