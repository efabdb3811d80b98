"""What rewards can tell of the trainer that calls them: whether two have one name, and whether it sums several."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reward.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass
class _Called:
    """A reward that a trainer called, and whether it gave None to a row."""

    state: weakref.ref[Any]  # of the trainer
    reward: weakref.ref[Any]
    gave_none: bool = False


# A reward is told nothing of its trainer but the state, an object that all rewards of the trainer get. States are
# compared by identity, since those of two trainers may be equal.
_called: dict[str, _Called] = {}  # by name
_warned: list[weakref.ref[Any]] = []  # states of trainers


def check_one_name(reward: Any, trainer_state: Any) -> None:
    """Remembers that a trainer calls a reward.

    Args:
        reward: is being called.
        trainer_state: what the trainer hands to all its rewards; None where it hands over nothing.

    Raises:
        ConfigError: another reward of this name was called by the same trainer, which would merge their logs.
    """
    try:
        state = weakref.ref(trainer_state)
    except TypeError:  # None, or no object of a trainer
        return
    last = _called.get(reward.__name__)
    if last is not None and last.state() is trainer_state:
        if last.reward() is reward:
            return
        if last.reward() is not None:
            raise ConfigError(
                f"two rewards of this trainer are named {reward.__name__!r}, and it would merge their logs. "
                f"Give one of them another name: {type(reward).__name__}(..., name='...')"
            )
    _called.pop(reward.__name__, None)  # so that they are in the order of their first calls
    _called[reward.__name__] = _Called(state, weakref.ref(reward))


def warn_of_sums(
    reward: Any,
    trainer_state: Any,
    rewards: Sequence[float | None],
    log_extra: Callable[..., None] | None = None,
) -> None:
    """Warns once a trainer, if it has several rewards and one of them gives a row None.

    TRL then sums the others, as if this reward were 0: the row is neither left out nor fairly compared.

    Args:
        reward: was called, and `check_one_name` before.
        trainer_state: as for `check_one_name`.
        rewards: what it gives.
        log_extra: the trainer's logger, a method by which the trainer and all its rewards are found; without, only
            rewards of this library are.
    """
    call = _called.get(reward.__name__)
    if call is None or call.state() is not trainer_state:
        return
    call.gave_none = call.gave_none or None in rewards
    calls = [call for call in _called.values() if call.state() is trainer_state]
    # Parts of a combination are called by it, and are none of the trainer's own.
    parts = [part for call in calls for part in getattr(call.reward(), "parts", ())]
    calls = [call for call in calls if call.reward() not in parts]
    incomplete = [call.reward() for call in calls if call.gave_none]
    functions = getattr(getattr(log_extra, "__self__", None), "reward_funcs", None)
    if functions is None:
        functions = [call.reward() for call in calls]
    # The aspects of one metric lack the same rows, which the trainer then leaves out.
    metrics = {id(_metric_of(function)) for function in functions}
    if not incomplete or len(metrics) < 2 or any(state() is trainer_state for state in _warned):
        return
    _warned.append(weakref.ref(trainer_state))
    names = [str(getattr(function, "__name__", type(function).__name__)) for function in functions]
    logger.warning(
        "%s gave None to a row, and the trainer has several rewards: where another one gives the row a number, TRL "
        "counts None as 0. Write reward_funcs=[CombinedReward([%s])], which leaves the row out, or give each reward "
        'on_error="lowest"',
        getattr(incomplete[0], "__name__", ""),
        ", ".join(names),
    )


def _metric_of(function: Any) -> Any:
    function = getattr(function, "reward", function)  # inside an AsyncReward
    return getattr(function, "_shared", function)
