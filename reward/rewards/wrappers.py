"""AsyncReward for rewards that wait; and `rates_captions`, which takes whatever a user calls a reward."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from reward.errors import ConfigError
from reward.rewards.metric_reward import MetricReward
from reward.samples import CaptionSample

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "AsyncReward",
    "RatesCaptions",
    "function_name",
    "is_asynchronous",
    "load_reward",
    "rates_captions",
    "strips_thinking",
]


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
        if not callable(reward) or is_asynchronous(reward):
            raise TypeError(f"AsyncReward needs a plain reward function, got {reward!r:.80}")
        self.reward = reward
        self.__name__ = getattr(reward, "__name__", type(reward).__name__)

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **arguments: Any) -> Any:
        """Calls the reward function with the same arguments, in a thread of its own."""
        return await asyncio.to_thread(self.reward, prompts=prompts, completions=completions, **arguments)

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rewards of samples, waited for; see `rates_captions`."""
        return rates_captions(self.reward).rewards(samples)

    def load(self) -> Self:
        """Loads the reward's model now, see `MetricReward.load`."""
        load_reward(self.reward)
        return self

    # TRL before 1.14 asks `inspect.iscoroutinefunction` about the instance. With these it passes for a function.
    __code__, __defaults__, __kwdefaults__ = __call__.__code__, __call__.__defaults__, __call__.__kwdefaults__

    def __repr__(self) -> str:
        return f"AsyncReward({self.reward!r})"


class RatesCaptions(Protocol):
    """What chooses among captions: MetricReward and its aspects, combinations, or any object with this method.

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
            - a function of samples, or a reward function with a trainer's call that needs no more than captions have,
              becomes one as well, see `reward.metrics.function.FunctionScorer`.

    Raises:
        ConfigError: none of these, a class instead of an object, or a function that needs what captions do not have.
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
        for part in getattr(reward, "parts", ()):  # those of a combination
            rates_captions(part)
        return reward
    is_scorer = hasattr(reward, "spec") and hasattr(reward, "score")
    is_network = torch is not None and isinstance(reward, torch.nn.Module) and not is_scorer
    if is_network or not (is_scorer or callable(reward) or isinstance(reward, str)):
        raise ConfigError(
            f"reward must be a reward such as VelaReward(), a metric's name, a scorer or a function, got {reward!r:.80}"
        )
    return MetricReward(reward)


def strips_thinking(reward: Any) -> bool:
    """Whether captions are rated without their reasoning: by every reward, unless it or a part of it says otherwise.

    Example:
        >>> strips_thinking(MetricReward("length")), strips_thinking(MetricReward("length", strip_thinking=False))
        (True, False)
    """
    parts = [*getattr(reward, "parts", ()), *filter(None, [getattr(reward, "whole", None)])]  # of an aspect, the whole
    return bool(getattr(reward, "strip_thinking", True)) and all(map(strips_thinking, parts))


def load_reward(reward: Any) -> None:
    """Loads the model of a reward, if it has one."""
    if callable(getattr(reward, "load", None)):
        reward.load()


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine, also that of a `functools.partial` or of an object."""
    function = _inner(function)
    call = getattr(function, "__call__", None)  # noqa: B004  # the method itself tells whether it is asynchronous
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function, of what a `functools.partial` calls, or of the class of an object."""
    function = _inner(function)
    return str(getattr(function, "__name__", type(function).__name__))


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function
