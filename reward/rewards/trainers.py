"""What rewards can tell of the trainer that calls them: whether two have one name, and whether it sums several."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reward.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass
class _Trainer:
    """A trainer, by its state: an object that all its rewards get, and all that they are told of it."""

    state: weakref.ref[Any]
    rewards: dict[str, weakref.ref[Any]] = field(default_factory=dict)  # by name, in the order of their first calls
    incomplete: list[str] = field(default_factory=list)  # names of rewards that gave None to a row
    is_warned: bool = False

    def summed(self, log_extra: Callable[..., None] | None) -> list[Any]:
        """The rewards that the trainer sums.

        A trainer's logger is one of its methods, by which its own list is found. Without a logger only those rewards
        are known that asked; the parts of a combination are called by it, and are none of the trainer's own.
        """
        trainer = getattr(log_extra, "__self__", None)
        functions = getattr(trainer, "reward_funcs", None)
        if functions is not None:
            return list(functions)
        called = [reward() for reward in self.rewards.values()]
        parts = [part for reward in called for part in getattr(reward, "parts", ())]
        return [reward for reward in called if reward is not None and reward not in parts]


_trainers: list[_Trainer] = []


def _trainer_of(trainer_state: Any) -> _Trainer | None:
    """The trainer with this state; None where a caller is no trainer.

    States are compared by identity, since those of two trainers may be equal.
    """
    _trainers[:] = [trainer for trainer in _trainers if trainer.state() is not None]
    for trainer in _trainers:
        if trainer.state() is trainer_state:
            return trainer
    try:
        state = weakref.ref(trainer_state)
    except TypeError:  # None, or a plain value
        return None
    _trainers.append(_Trainer(state))
    return _trainers[-1]


def check_one_name(reward: Any, trainer_state: Any) -> None:
    """Remembers that the trainer of a state calls a reward.

    Raises:
        ConfigError: another reward of this name was called by the same trainer, which would merge their logs.
    """
    trainer = _trainer_of(trainer_state)
    if trainer is None:
        return
    same_name = trainer.rewards.get(reward.__name__)
    other = same_name() if same_name is not None else None
    if other is not None and other is not reward:
        raise ConfigError(
            f"two rewards of this trainer are named {reward.__name__!r}, and it would merge their logs. "
            f"Give one of them another name: {type(reward).__name__}(..., name='...')"
        )
    trainer.rewards[reward.__name__] = weakref.ref(reward)


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
        trainer_state: what a trainer hands to all its rewards.
        rewards: what it gives.
        log_extra: the trainer's logger.
    """
    trainer = _trainer_of(trainer_state)
    if trainer is None or trainer.is_warned:
        return
    if None in rewards and reward.__name__ not in trainer.incomplete:
        trainer.incomplete.append(reward.__name__)
    if not trainer.incomplete:
        return
    functions = trainer.summed(log_extra)
    # The aspects of one metric lack the same rows, which the trainer then leaves out.
    metrics = set()
    for function in functions:
        function = getattr(function, "reward", function)  # inside an AsyncReward
        metrics.add(id(getattr(function, "_shared", function)))
    if len(metrics) < 2:
        return
    names = [getattr(function, "__name__", type(function).__name__) for function in functions]
    incomplete = [name for name in trainer.incomplete if name in names]
    if not incomplete:  # a part of a combination, which has dealt with it
        return
    trainer.is_warned = True
    logger.warning(
        "%s gave None to a row, and the trainer has several rewards: where another one gives the row a number, TRL "
        "counts None as 0. Write reward_funcs=[CombinedReward([%s])], which leaves the row out, or give each reward "
        'on_error="lowest"',
        incomplete[0],
        ", ".join(names),
    )
