"""What rewards can tell of the trainer that calls them: whether two have one name, and whether it sums several."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from reward.errors import ConfigError

logger = logging.getLogger(__name__)

_warned_trainers: weakref.WeakSet[Any] = weakref.WeakSet()


def check_one_name(reward: Any, log_extra: Callable[..., None] | None) -> None:
    """Refuses a reward whose name another reward of the same trainer has: the trainer would merge their logs.

    Args:
        reward: the reward that is called, by the trainer or by another reward.
        log_extra: the trainer's logger. As a method of the trainer it leads to the list of its rewards; of None or
            another function nothing is checked.
    """
    for other in _rewards_of(getattr(log_extra, "__self__", None)):
        if other is not reward and getattr(other, "__name__", "") == reward.__name__:
            raise ConfigError(
                f"two rewards of this trainer are named {reward.__name__!r}, and it would merge their logs. "
                f"Give one of them another name: {type(reward).__name__}(..., name='...')"
            )


def warn_of_sums(reward: Any, rewards: Sequence[float | None], log_extra: Callable[..., None] | None) -> None:
    """Warns once a trainer, if it has several rewards and one of them gives a row None.

    TRL then sums the others, as if this reward were 0: the row is neither left out nor fairly compared.

    Args:
        reward: the reward that was called. If it is a part of a combination, this leaves such rows out: no warning.
        rewards: what it gives, one a row.
        log_extra: the trainer's logger, as for `check_one_name`.
    """
    trainer = getattr(log_extra, "__self__", None)
    functions = _rewards_of(trainer)
    is_of_trainer = any(function is reward for function in functions)
    if None not in rewards or not is_of_trainer or trainer in _warned_trainers:
        return
    # Rewards of one metric's aspects, which have one `_shared`, give None to the same rows, and TRL leaves out a row to
    # which all rewards give None.
    metrics = {id(getattr(function, "_shared", function)) for function in functions}
    if len(metrics) < 2:
        return
    _warned_trainers.add(trainer)
    names = [getattr(function, "__name__", type(function).__name__) for function in functions]
    logger.warning(
        "%s gave None to a row, and the trainer has several rewards: where another one gives the row a number, TRL "
        "counts None as 0. Write reward_funcs=[CombinedReward([%s])], which leaves the row out, or give each reward "
        'on_error="lowest"',
        reward.__name__,
        ", ".join(names),
    )


def _rewards_of(trainer: Any) -> list[Any]:
    """The trainer's reward functions; in place of an `AsyncReward`, or another that wraps one, the wrapped one."""
    functions = []
    for function in getattr(trainer, "reward_funcs", ()):
        while hasattr(function, "reward"):
            function = function.reward
        functions.append(function)
    return functions
