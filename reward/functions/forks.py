"""Rewards in forked children, where the threads of the parent are gone and what they held stays held."""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reward.functions.metric_reward import MetricReward

__all__ = ["renew_in_children"]

_rewards: weakref.WeakSet[MetricReward] = weakref.WeakSet()


def renew_in_children(reward: MetricReward) -> None:
    """Has `reward._after_fork()` called in every child that this process forks."""
    _rewards.add(reward)


def _in_child() -> None:
    was_loaded = any(reward._scorer is not None for reward in _rewards)
    for reward in list(_rewards):
        reward._after_fork()
    if was_loaded and "torch" in sys.modules:
        # the threads among which the parent's torch divided its work are gone, too, and a child would wait for them
        sys.modules["torch"].set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_in_child)
