"""Names of the rewards alive in this process: trainers merge the logs of two rewards with one name."""

from __future__ import annotations

import threading
import weakref
from typing import Any

__all__ = ["take_name"]

_names: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_names_lock = threading.Lock()


def take_name(reward: Any, asked: str | None, default: str) -> str:
    """The name asked for, or else the first free one; nobody else gets it unasked while the reward is alive.

    Args:
        reward: who takes it.
        asked: taken as it is.
        default: without `asked`, becomes `default`, `default_2`, `default_3`, ...

    Example:
        >>> class Reward:
        ...     pass
        >>> first, second = Reward(), Reward()
        >>> take_name(first, None, "toy"), take_name(second, None, "toy"), take_name(second, "toy", "toy")
        ('toy', 'toy_2', 'toy')
    """
    with _names_lock:
        name, number = asked, 1
        while name is None:
            candidate = default if number == 1 else f"{default}_{number}"
            name = candidate if candidate not in _names else None
            number += 1
        _names.setdefault(name, reward)
        return name
