"""Reward functions made of others: WeightedReward, AsyncReward, and `rates_captions` for use outside a trainer."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from reward.errors import ConfigError, InvalidSampleError
from reward.functions.metric_reward import MetricReward, check_one_name
from reward.samples import CaptionSample
from reward.weights import checked_weight, sum_to_one

__all__ = ["AsyncReward", "RatesCaptions", "WeightedReward", "rates_captions"]

_GIVEN = ("prompts", "completions", "image", "images", "references")


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
        self.part_names = _different([_function_name(part) for part in self.parts])
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
        # pass only the loggers that the trainer gave
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
        """Why a sample has no reward, from the first part that gives one; None if no part does."""
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
    if _is_asynchronous(part):
        raise TypeError(
            f"parts[{place}] is asynchronous: give it to the trainer itself, in reward_funcs, which awaits it"
        )
    return part, checked_weight(weight, f"the weight of parts[{place}]")


def _different(names: list[str]) -> list[str]:
    """The names, with `_2`, `_3`, ... where one comes again, since logs of one key are merged."""
    return [name if names.index(name) == i else f"{name}_{names[: i + 1].count(name)}" for i, name in enumerate(names)]


class AsyncReward:
    """Runs a reward function in a thread of its own and lets a trainer go on meanwhile.

    TRL's GRPO and RLOO trainers call plain reward functions one after the other, and then all asynchronous ones at the
    same time. So make those asynchronous that mostly wait, such as rewards by a judge behind a server; two rewards that
    compute on the same GPU gain nothing. Each MetricReward still serves one call at a time.

    Args:
        reward: a reward function with a trainer's call that may be called from any thread, as every `MetricReward` may.
            Its name in the logs stays.

    Raises:
        TypeError: not callable, or asynchronous already.

    Example:
        >>> words = AsyncReward(MetricReward("length", name="words"))
        >>> words.__name__, asyncio.run(words(prompts=["Describe."], completions=["A red star."]))
        ('words', [3.0])
    """

    __name__: str  # trainers read it from the instance

    def __init__(self, reward: Callable[..., Sequence[float | None]]) -> None:
        if not callable(reward) or _is_asynchronous(reward):
            raise TypeError(f"AsyncReward needs a plain reward function, got {reward!r:.80}")
        self.reward = reward
        self.__name__ = getattr(reward, "__name__", type(reward).__name__)

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **arguments: Any) -> Any:
        """Calls the reward function with the same arguments, in a thread of its own."""
        return await asyncio.to_thread(self.reward, prompts=prompts, completions=completions, **arguments)

    # TRL before 1.14 asks `inspect.iscoroutinefunction` about the instance. With these it passes for a function.
    __code__, __defaults__, __kwdefaults__ = __call__.__code__, __call__.__defaults__, __call__.__kwdefaults__

    def __repr__(self) -> str:
        return f"AsyncReward({self.reward!r})"


class RatesCaptions(Protocol):
    """What chooses among captions: MetricReward and its aspects, WeightedReward, or any object with this method.

    It may also have `reason(sample)`, which says why a sample has no reward.
    """

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """One number per sample, in order, None where there is none; larger is better."""
        ...


def rates_captions(reward: Any) -> RatesCaptions:
    """Gives an object that rates captions, made of whatever a user calls a reward.

    Args:
        reward: one of these:

            - an object with `rewards(samples)`, such as `VelaReward()`, is given back;
            - a metric's name or a scorer, such as `"vela"` or `load_scorer("vela")`, becomes a `MetricReward`, which
              weighs the aspects as the metric does by default;
            - a reward function with a trainer's call gets `completions` (strings), `images` (lists of one), `image` and
              `references`, as far as its signature takes them. `prompts` are None: nobody asked for the captions. A
              function that needs other columns, or token ids, is refused.

    Raises:
        ConfigError: none of these, a class instead of an object, or a function that is asynchronous or needs what
            captions do not have.
        UnknownMetricError: no metric has that name.

    Example:
        >>> def short(completions, **kwargs):
        ...     return [-float(len(text)) for text in completions]
        >>> rates_captions(short).rewards([CaptionSample("A star.")])
        [-7.0]
        >>> rates_captions("length").rewards([CaptionSample("A red star.")])
        [3.0]
    """
    torch = sys.modules.get("torch")  # without torch loaded there is no network to tell apart
    if isinstance(reward, type):
        raise ConfigError(f"reward must be an object, got the class {reward.__name__}: write {reward.__name__}()")
    if callable(getattr(reward, "rewards", None)):
        for part in getattr(reward, "parts", ()):  # those of a WeightedReward
            rates_captions(part)
        return reward
    if isinstance(reward, str) or (hasattr(reward, "spec") and hasattr(reward, "score")):
        return MetricReward(reward)
    if not callable(reward) or (torch is not None and isinstance(reward, torch.nn.Module)):
        raise ConfigError(
            "reward must be a reward such as VelaReward(), a metric's name, a scorer or a reward function, "
            f"got {reward!r:.80}"
        )
    if _is_asynchronous(reward):
        raise ConfigError(f"reward {reward!r:.80} is asynchronous, which only trainers await: give a plain function")
    return _RewardFunction(reward)


def _is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine, also that of a `functools.partial` or of an object."""
    function = _inner(function)
    call = getattr(function, "__call__", None)  # noqa: B004  # the method itself tells whether it is asynchronous
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _function_name(function: Callable[..., Any]) -> str:
    """The name of a function, of what a `functools.partial` calls, or of the class of an object."""
    function = _inner(function)
    return str(getattr(function, "__name__", type(function).__name__))


class _RewardFunction:
    """Calls a trainer's reward function for captions."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = inspect.signature(function).parameters.values()
        named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        needed = [
            p.name
            for p in parameters
            if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in _GIVEN
        ]
        if needed:
            raise ConfigError(
                f"the reward function {_function_name(function)} needs {', '.join(needed)}, and captions come with "
                f"{', '.join(_GIVEN)} only. Give an object with a method rewards(samples) that knows the rest"
            )
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.function = function
        self.columns = [name for name in _GIVEN if takes_all or name in named]

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        given: dict[str, list[Any]] = {
            "prompts": [None] * len(samples),
            "completions": [sample.candidate for sample in samples],
            "image": [sample.image for sample in samples],
            "images": [[] if sample.image is None else [sample.image] for sample in samples],
            "references": [list(sample.references) for sample in samples],
        }
        values = self.function(**{name: given[name] for name in self.columns})
        return [None if value is None else float(value) for value in values]


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function
