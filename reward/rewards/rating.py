"""What a user may call a reward: `rates_captions` makes of it an object that rates captions."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reward.data.samples import CaptionSample
from reward.errors import ConfigError
from reward.rewards.metric_reward import MetricReward


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

    Example:
        >>> def short(completions, **kwargs):
        ...     return [-float(len(text)) for text in completions]
        >>> rates_captions(short).rewards([CaptionSample("A star.")])
        [-7.0]
        >>> rates_captions("length").rewards([CaptionSample("A red star.")])
        [3.0]
    """
    if isinstance(reward, type):
        raise ConfigError(f"reward must be an object, got the class {reward.__name__}: write {reward.__name__}()")
    # It may be a user's own, of which nothing else is known.
    if callable(getattr(reward, "rewards", None)):
        for part in getattr(reward, "parts", ()):  # those of a combination
            rates_captions(part)
        return reward
    is_scorer = hasattr(reward, "spec") and hasattr(reward, "score")
    if not is_scorer and not isinstance(reward, str) and not is_plain_callable(reward):
        raise ConfigError(
            f"reward must be a reward such as VelaReward(), a metric's name, a scorer or a function, got {reward!r:.80}"
        )
    return MetricReward(reward)


def strips_thinking(reward: Any) -> bool:
    """Whether captions are rated without their reasoning: by every reward, unless it or a part of it says otherwise."""
    if not getattr(reward, "strip_thinking", True):
        return False
    return all(strips_thinking(part) for part in getattr(reward, "parts", ()))


def is_plain_callable(function: Any) -> bool:
    """Whether it can be called and is neither a class nor a network."""
    # Without torch loaded there is no network to tell apart, and importing it would take seconds.
    torch = sys.modules.get("torch")
    is_network = torch is not None and isinstance(function, torch.nn.Module)
    return callable(function) and not isinstance(function, type) and not is_network


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
