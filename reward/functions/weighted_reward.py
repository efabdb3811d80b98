"""WeightedReward: several reward functions as one, by a weighted mean of what they give."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reward.errors import InvalidSampleError
from reward.functions.names import check_one_name
from reward.functions.rating import function_name, is_asynchronous, rates_captions
from reward.samples import CaptionSample
from reward.weights import checked_weight, sum_to_one

__all__ = ["WeightedReward"]


class WeightedReward:
    """The weighted mean of several reward functions, as one reward function.

    Weights are divided by their sum: 0.7 and 0.3 give 0.7 a + 0.3 b, and 7 and 3 the same. Unless one is negative,
    which is allowed, the result lies in the range that the parts share. A trainer that is given the parts as separate
    `reward_funcs` with `reward_weights` sums them without dividing, and may normalise each by itself first.

    A completion gets None if any part of weight other than zero gives it None or a number that is not finite: a mean
    over fewer parts is on another scale than its neighbours', and in a group it would count as a high or low
    reward. A part of weight zero is called and logged, and changes nothing.

    Args:
        parts: (reward function, weight), at least one. A part is anything with a trainer's call: `VelaReward()`, one of
            `MetricReward(...).aspects()`, a plain function that takes `**kwargs`, another WeightedReward. All columns
            and loggers are passed on to every part.
        name: the name in the trainer's logs (`__name__`). Default: `weighted` and the names of the parts, as in
            `weighted_vela_length`. Two rewards of one trainer must not share a name.

    Raises:
        WeightsError: no parts, a weight that is not a finite number, or a sum that is not positive.
        TypeError: a part cannot be called, is asynchronous, or is a network: trainers call those in other ways, so they
            must be given to the trainer itself.

    Example:
        >>> from reward.functions.metric_reward import MetricReward
        >>> def polite(completions, **kwargs):
        ...     return [float("please" in text) for text in completions]
        >>> reward = WeightedReward([(MetricReward("length"), 1), (polite, 3)])
        >>> reward(prompts=["Describe."] * 2, completions=["A star, please.", "A star."])
        [1.5, 0.5]
    """

    __name__: str  # trainers read it from the instance

    def __init__(self, parts: Sequence[tuple[Callable[..., Any], float]], *, name: str | None = None) -> None:
        self.parts: list[Any] = []
        weights = []
        if not isinstance(parts, Sequence):
            raise TypeError(f"parts must be a list of (reward function, weight), got {parts!r:.80}")
        for place, entry in enumerate(parts):
            part, weight = _checked_entry(entry, place)
            self.parts.append(part)
            weights.append(weight)
        self.weights = sum_to_one(weights)
        self.part_names = _different([function_name(part) for part in self.parts])
        self.__name__ = name or "_".join(["weighted", *self.part_names])

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Rewards of the completions, one each, in order.

        Args:
            prompts, completions, completion_ids, columns: as the trainer gives them; each part gets them all.
            log_extra, log_metric: a trainer's loggers, which each part gets as well. The mean of each part is logged as
                `<name>/<part>`, and the share of rows without a reward as `<name>/unscored`.

        Raises:
            InvalidSampleError: a part gave another number of rewards than there are completions.
            ConfigError: another reward of this trainer has the same name.
        """
        check_one_name(self, columns.get("trainer_state"))
        loggers = {"log_extra": log_extra, "log_metric": log_metric}
        # only what there is: a trainer without loggers does not name them either
        options = {**columns, **{key: value for key, value in loggers.items() if value is not None}}
        given = [
            part(prompts=prompts, completions=completions, completion_ids=completion_ids, **options)
            for part in self.parts
        ]
        table = self._table(given, len(completions))
        combined = self._combine(table)
        if log_metric is not None and len(combined):
            for part_name, column in zip(self.part_names, table.T, strict=True):
                if np.isfinite(column).any():  # a mean of nothing would spoil the mean over processes
                    log_metric(f"{self.__name__}/{part_name}", float(column[np.isfinite(column)].mean()))
            log_metric(f"{self.__name__}/unscored", sum(value is None for value in combined) / len(combined))
        return combined

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of valid samples, in order, as `BestOfN` and `rerank` ask for them.

        Raises:
            ConfigError: a part is a function that needs what captions do not have, see `rates_captions`.
        """
        given = [rates_captions(part).rewards(samples) for part in self.parts]
        return self._combine(self._table(given, len(samples)))

    def reason(self, sample: CaptionSample) -> str | None:
        """Why a sample has no reward, as the first part says that says so; None if no part does."""
        for part, part_name in zip(self.parts, self.part_names, strict=True):
            reason = part.reason(sample) if hasattr(part, "reason") else None
            if reason is not None:
                return f"{part_name}: {reason}"
        return None

    def _table(self, given: Sequence[Sequence[float | None]], count: int) -> np.ndarray:
        """Rewards (N, parts), NaN for None."""
        for part_name, rewards in zip(self.part_names, given, strict=True):
            if len(rewards) != count:
                raise InvalidSampleError(
                    f"{self.__name__}: the part {part_name!r} gave {len(rewards)} rewards for {count} completions"
                )
        columns = [[math.nan if value is None else float(value) for value in rewards] for rewards in given]
        table = np.array(columns, dtype=np.float64).reshape(len(self.parts), count).T
        return np.where(np.isfinite(table), table, math.nan)

    def _combine(self, table: np.ndarray) -> list[float | None]:
        used = self.weights != 0  # a part without weight must not spread its NaN
        combined = table[:, used] @ self.weights[used]
        return [float(value) if math.isfinite(value) else None for value in combined]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {weight:.4g}" for name, weight in zip(self.part_names, self.weights, strict=True))
        return f"{type(self).__name__}(name={self.__name__!r}, {parts})"


def _checked_entry(entry: Any, place: int) -> tuple[Callable[..., Any], float]:
    if not isinstance(entry, (tuple, list)) or len(entry) != 2:
        raise TypeError(f"parts[{place}] must be (reward function, weight), got {entry!r:.80}")
    part, weight = entry
    torch = sys.modules.get("torch")  # without torch loaded there is no network to tell apart
    if not callable(part) or isinstance(part, type) or (torch is not None and isinstance(part, torch.nn.Module)):
        raise TypeError(
            f"parts[{place}] must be a reward function, got {part!r:.80}; give networks and their names to the trainer"
        )
    if is_asynchronous(part):
        raise TypeError(
            f"parts[{place}] is asynchronous: give it to the trainer itself, in reward_funcs, which awaits it"
        )
    return part, checked_weight(weight, f"the weight of parts[{place}]")


def _different(names: list[str]) -> list[str]:
    """The names, with `_2`, `_3`, ... where one comes again, since logs of one key are merged."""
    return [name if names.index(name) == i else f"{name}_{names[: i + 1].count(name)}" for i, name in enumerate(names)]
