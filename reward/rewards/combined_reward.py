"""Reward functions made of others: CombinedReward, several as one, and AsyncReward, beside which a trainer goes on."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reward.aspect_weights import checked_weight, sum_to_one
from reward.data.samples import CaptionSample
from reward.errors import ConfigError, InvalidSampleError
from reward.metrics.function_forms import looks_at_images
from reward.metrics.function_places import names_function
from reward.registry import list_metrics
from reward.rewards.logs import different_names, log_rows
from reward.rewards.rating import function_name, is_asynchronous, is_plain_callable, rates_captions
from reward.rewards.trainers import check_one_name, warn_of_sums

if TYPE_CHECKING:
    from typing_extensions import Self

Way = Literal["mean", "harmonic", "geometric", "product", "min"]
_WAYS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": lambda table, weights: table @ weights,
    "harmonic": lambda table, weights: 1 / ((1 / table) @ weights),
    "geometric": lambda table, weights: np.exp(np.log(table) @ weights),
    "product": lambda table, _: table.prod(axis=1),
    "min": lambda table, _: table.min(axis=1),
}
_MEANS = ("mean", "harmonic", "geometric")
_WITHOUT_NEGATIVES = ("harmonic", "geometric", "product")


class CombinedReward:
    """Several reward functions as one: their mean, or another number that is made of theirs.

    On [0, 1]: product <= min <= harmonic <= geometric <= mean. In a mean, a high part makes up for a low one; in the
    others less so, or not at all. Weights are divided by their sum: 0.7 and 0.3 give 0.7 a + 0.3 b, and 7 and 3 the
    same. A trainer that is given the parts as separate `reward_funcs` with `reward_weights` sums them without dividing,
    and may normalise each by itself first.

    A completion gets None if any part of weight other than zero gives it None or a number that is not finite: a mean
    over fewer parts is on another scale than its neighbours', and in a group it would count as a high or low reward. A
    part of weight zero is called and logged, and changes nothing.

    With a trainer's loggers, the mean of each part is logged as `<name>/<part>`, and the share of rows without a reward
    as `<name>/unscored`; parts log what they log.

    Args:
        parts: reward functions, at least one. A reward function is anything with a trainer's call: `VelaReward()`, an
            aspect such as `VelaReward().aspect("flu")`, a plain function that takes `**kwargs`, another combination;
            or the name of a metric, or a function of samples. All columns and loggers are passed on to every part.
        how: `"mean"`, `"harmonic"`, `"geometric"`, `"product"` or `"min"`; all but the mean and the minimum need parts
            that are never negative. Or a function of the parts' numbers, a float array (N, parts), which gives N
            numbers; it is called for the rows of which every part has one.
        weights: one number a part, for a mean; a negative one is a penalty. None weighs them alike.
        name: the name in the trainer's logs (`__name__`); two rewards of one trainer must not share it. Default: `how`
            and the names of the parts, as in `min_vela_length`.

    Example:
        >>> def polite(completions, **kwargs):
        ...     return [float("please" in text) for text in completions]
        >>> captions = {"prompts": ["Describe."] * 2, "completions": ["A star, please.", "A star."]}
        >>> CombinedReward(["length", polite], weights=[1, 3])(**captions)
        [1.5, 0.5]
        >>> CombinedReward(["length", polite], "min")(**captions)
        [1.0, 0.0]
    """

    __name__: str  # trainers read it from the instance

    def __init__(
        self,
        parts: Sequence[Callable[..., Any] | str],
        how: Way | Callable[[np.ndarray], np.ndarray] = "mean",
        *,
        weights: Sequence[float] | None = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(parts, (list, tuple)):
            raise TypeError(f"parts must be a list of reward functions, got {parts!r:.80}")
        if not parts:
            raise ConfigError(f"{type(self).__name__} needs at least one reward function, got none")
        if not callable(how) and how not in _WAYS:
            raise ConfigError(f"how must be one of {', '.join(_WAYS)}, or a function of an array, got {how!r}")
        self.parts: list[Any] = [_reward_function(part, position) for position, part in enumerate(parts)]
        self.part_names = different_names([function_name(part) for part in self.parts])
        self.how = how
        self.weights = self._weigh(weights)
        self.__name__ = name or "_".join([function_name(how) if callable(how) else how, *self.part_names])
        for part, part_name in zip(self.parts, self.part_names, strict=True):
            # Of a function nothing is known until it is called: `_combine` looks at its numbers.
            low, high = getattr(part, "range", (0.0, 0.0))
            if how in _WITHOUT_NEGATIVES and -math.inf < low < 0:
                raise ConfigError(
                    f'{self.__name__}: how="{how}" needs rewards that are never negative, and {part_name!r} lies in '
                    f"[{low:g}, {high:g}]"
                )

    def _weigh(self, weights: Sequence[float] | None) -> np.ndarray:
        """Weights of the parts, which sum to 1."""
        if weights is None:
            return sum_to_one([1.0] * len(self.parts))
        if self.how not in _MEANS:
            raise ConfigError(f"weights are for a mean ({', '.join(_MEANS)}), and not for how={self.how!r}")
        if isinstance(weights, Mapping) or len(weights) != len(self.parts):
            raise ConfigError(
                f"weights must be a list of one number for each of {len(self.parts)} parts, got {weights!r:.80}"
            )
        return sum_to_one([checked_weight(weight, f"weights[{index}]") for index, weight in enumerate(weights)])

    def __call__(
        self,
        prompts: Sequence[Any] | None = None,
        completions: Sequence[Any] = (),
        completion_ids: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Rewards of the completions, one each, in order; each part gets all arguments."""
        check_one_name(self, log_extra)
        call = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids, **columns}
        # A part may be a function that takes no loggers: it gets those that the trainer gives.
        if log_extra is not None:
            call["log_extra"] = log_extra
        if log_metric is not None:
            call["log_metric"] = log_metric
        table = self._table([part(**call) for part in self.parts], len(completions))
        rewards = self._combine(table)
        if log_metric is not None:
            for part_name, column in zip(self.part_names, table.T, strict=True):
                log_rows(log_metric, f"{self.__name__}/{part_name}", column[np.isfinite(column)])
            log_rows(log_metric, f"{self.__name__}/unscored", [reward is None for reward in rewards])
        warn_of_sums(self, rewards, log_extra)
        return rewards

    def load(self) -> Self:
        """Loads the models of all parts now, see `MetricReward.load`."""
        for part in self.parts:
            if hasattr(part, "load"):
                part.load()
        return self

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of valid samples, in order, as `BestOfN` and `rerank` ask for them; see `rates_captions`."""
        rewards_of_parts = [rates_captions(part).rewards(samples) for part in self.parts]
        return self._combine(self._table(rewards_of_parts, len(samples)))

    def reason(self, sample: CaptionSample) -> str | None:
        """Why a sample has no reward, from the first part that gives one; None if no part does."""
        for part, part_name in zip(self.parts, self.part_names, strict=True):
            reason = part.reason(sample) if hasattr(part, "reason") else None
            if reason is not None:
                return f"{part_name}: {reason}"
        return None

    @property
    def needs_image(self) -> bool:
        """Whether one of the parts looks at pictures."""
        return any(looks_at_images(part) for part in self.parts)

    def _table(self, rewards_of_parts: Sequence[Sequence[float | None]], count: int) -> np.ndarray:
        """Rewards (N, parts), NaN for what is not finite."""
        table = np.full((count, len(self.parts)), math.nan)
        for column, (part_name, rewards) in enumerate(zip(self.part_names, rewards_of_parts, strict=True)):
            if len(rewards) != count:
                raise InvalidSampleError(
                    f"{self.__name__}: the part {part_name!r} gave {len(rewards)} rewards for {count} completions"
                )
            for row, reward in enumerate(rewards):
                if reward is not None and math.isfinite(reward):
                    table[row, column] = reward
        return table

    def _combine(self, table: np.ndarray) -> list[float | None]:
        """One number for each row (N, parts) of which all parts that count have one; None for the others."""
        used = np.flatnonzero(self.weights)  # a part without weight must not spread its NaN
        rows = np.isfinite(table[:, used]).all(axis=1)
        numbers = table[rows][:, used]
        if self.how in _WITHOUT_NEGATIVES and (numbers < 0).any():
            row, column = np.argwhere(numbers < 0)[0]
            raise InvalidSampleError(
                f'{self.__name__}: how="{self.how}" needs rewards that are never negative, and '
                f"{self.part_names[used[column]]!r} gave {numbers[row, column]:g}"
            )
        combined = np.full(len(table), math.nan)
        with np.errstate(divide="ignore", over="ignore"):  # a part of 0 makes all of them 0
            if callable(self.how):
                values = np.asarray(self.how(numbers), dtype=np.float64)
            else:
                values = _WAYS[self.how](numbers, self.weights[used])
        if values.shape != (len(numbers),):
            raise InvalidSampleError(
                f"{self.__name__}: how must give one number for each of {len(numbers)} rows, an array of shape "
                f"({len(numbers)},), and gave one of shape {values.shape}: take the mean over the parts with axis=1"
            )
        combined[rows] = values
        return [float(value) if math.isfinite(value) else None for value in combined]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {weight:.4g}" for name, weight in zip(self.part_names, self.weights, strict=True))
        return f"{type(self).__name__}(name={self.__name__!r}, how={self.how!r}, {parts})"


class AsyncReward:
    """Runs a reward function in a thread of its own and lets a trainer go on meanwhile.

    TRL's GRPO and RLOO trainers call plain reward functions one after the other, and then all asynchronous ones at the
    same time. So make those asynchronous that mostly wait, such as rewards by a judge behind a server; two rewards that
    compute on the same GPU gain nothing. Each MetricReward still serves one call at a time.

    Args:
        reward: a reward function with a trainer's call that may be called from any thread, as every `MetricReward` may.
            Its name in the logs stays.

    Example:
        >>> from reward import MetricReward
        >>> words = AsyncReward(MetricReward("length", name="words"))
        >>> words.__name__, asyncio.run(words(completions=["A red star."]))
        ('words', [3.0])
    """

    __name__: str  # trainers read it from the instance

    def __init__(self, reward: Callable[..., Sequence[float | None]]) -> None:
        if not callable(reward) or is_asynchronous(reward):
            raise TypeError(f"AsyncReward needs a plain reward function, got {reward!r:.80}")
        self.reward = reward
        self.__name__ = getattr(reward, "__name__", type(reward).__name__)

    async def __call__(self, *arguments: Any, **columns: Any) -> Any:
        """Calls the reward function with the same arguments, in a thread of its own."""
        return await asyncio.to_thread(self.reward, *arguments, **columns)

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of samples, waited for; see `rates_captions`."""
        return rates_captions(self.reward).rewards(samples)

    @property
    def needs_image(self) -> bool:
        """Whether the reward looks at pictures."""
        return looks_at_images(self.reward)

    def load(self) -> Self:
        """Loads the reward's model now, see `MetricReward.load`."""
        if hasattr(self.reward, "load"):
            self.reward.load()
        return self

    # TRL before 1.14 asks `inspect.iscoroutinefunction` about the instance. With these it passes for a function.
    __code__, __defaults__, __kwdefaults__ = __call__.__code__, __call__.__defaults__, __call__.__kwdefaults__

    def __repr__(self) -> str:
        return f"AsyncReward({self.reward!r})"


def _reward_function(part: Any, position: int) -> Any:
    """A part as trainers call it; the name of a metric and a function of samples become a MetricReward."""
    if isinstance(part, str) and (names_function(part) or part in list_metrics()):  # else perhaps a network's
        return rates_captions(part)
    if not is_plain_callable(part):
        raise TypeError(
            f"parts[{position}] must be a reward function, got {part!r:.80}; give networks and their names to the "
            "trainer"
        )
    if is_asynchronous(part):
        raise TypeError(
            f"parts[{position}] is asynchronous: give it to the trainer itself, in reward_funcs, which awaits it"
        )
    try:
        inspect.signature(part).bind_partial(prompts=(), completions=())
    except TypeError:  # no call of a trainer
        return rates_captions(part)
    except ValueError:  # some of those written in C have no signature
        pass
    return part
