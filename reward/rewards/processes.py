"""Models of rewards in the processes of a trainer: where they are loaded, and what a fork leaves of them."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from reward.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from reward.metrics.base import Scorer

__all__ = ["OwnInEachProcess", "away_between_calls", "load_beside_a_trainer"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# the devices that networks were loaded to
_devices: weakref.WeakKeyDictionary[Scorer, torch.device] = weakref.WeakKeyDictionary()
_rewards: weakref.WeakSet[OwnInEachProcess] = weakref.WeakSet()


def load_beside_a_trainer(load: Callable[..., T], device: Any = None) -> T:
    """Calls `load(device=...)` on the process's own device, without sharding, and with the random state untouched.

    Args:
        load: loads a model.
        device: for it; None is `cuda:LOCAL_RANK` where there is CUDA, else the CPU.

    Raises:
        ConfigError: this machine has no such device.
    """
    import torch  # on use: importing this module must stay cheap

    from reward.backbones.pretrained import usable_device
    from reward.checkpoints import unsharded_loading

    if device is None and torch.cuda.is_available():
        # the GPU of LOCAL_RANK, unless the launcher shows each process only its own GPU
        rank = int(os.environ.get("LOCAL_RANK", -1))
        device = f"cuda:{rank if 0 <= rank < torch.cuda.device_count() else torch.cuda.current_device()}"
    if device is None and os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        logger.warning(
            "The GPUs are hidden from this process (CUDA_VISIBLE_DEVICES is empty), as in the worker of asynchronous "
            'GRPO, so the reward\'s network runs on the CPU. Use RemoteReward, or say device="cpu" if that is meant.'
        )
    device = "cpu" if device is None else device
    # building a network draws random numbers before the weights are read: the trainer's must not depend on that
    home = usable_device(device)
    gpus = [home] if home.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), unsharded_loading():
        return load(device=device)


@contextmanager
def away_between_calls(scorer: Scorer) -> Iterator[None]:
    """Brings a scorer's network to the device that it was loaded to, and at the end to the CPU's memory.

    Raises:
        ConfigError: the scorer runs no network of its own.
    """
    import torch

    model = getattr(scorer, "model", None)
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"metric {scorer.spec.name!r} runs no network of its own that could be moved: drop offload")
    device = _devices.setdefault(scorer, next(model.parameters()).device)
    model.to(device)
    try:
        yield
    finally:
        model.to("cpu")
        if device.type == "cuda" and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # gives the memory back to other libraries, such as vLLM


class OwnInEachProcess:
    """What a reward has for one process only: its lock and its scorer, which are left out when it is pickled.

    The threads of a parent are gone in a forked child, and locks that they held stay locked.
    """

    _of_process: tuple[str, ...] = ("_lock", "_scorer", "_is_unusable")
    _given_scorer: Scorer | None
    __name__: str  # trainers read it from the instance

    def _start_empty(self) -> None:
        self._lock = threading.RLock()
        self._scorer: Scorer | None = None
        self._is_unusable = False
        _rewards.add(self)

    def _after_fork(self) -> None:
        """In a forked child: if a thread of the parent was scoring, its lock is never released here."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._start_empty()
            self._is_unusable = self._given_scorer is not None

    def _check_usable(self) -> None:
        if self._is_unusable:
            raise RuntimeError(
                f"{self.__name__}: this process was forked while another thread used the scorer, which is left in the "
                "middle of its work. Make the reward in the child, or by the metric's name, or start processes by spawn"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in self._of_process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_empty()


def _in_child() -> None:
    was_loaded = any(reward._scorer is not None for reward in _rewards)
    for reward in list(_rewards):
        reward._after_fork()
    if was_loaded and "torch" in sys.modules:
        # the threads among which the parent's torch divided its work are gone, too, and a child would wait for them
        sys.modules["torch"].set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_in_child)
