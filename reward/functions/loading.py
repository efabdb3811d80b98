"""Loads the model of a reward in a process that trains another one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["load_beside_a_trainer"]

T = TypeVar("T")


def load_beside_a_trainer(load: Callable[..., T], device: Any = None) -> T:
    """Calls `load(device=...)`: on the process's own device, without sharding, and with the random state untouched.

    Args:
        load: loads a model.
        device: for it; None is `cuda:LOCAL_RANK` where there is CUDA, else the CPU.
    """
    import torch  # on use: importing this module must stay cheap

    from reward.checkpoints import unsharded_loading

    if device is None:
        device = f"cuda:{_local_gpu()}" if torch.cuda.is_available() else "cpu"
    # building a network draws random numbers before the weights are read: the trainer's must not depend on that
    gpus = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), unsharded_loading():
        return load(device=device)


def _local_gpu() -> int:
    """The GPU of this process: LOCAL_RANK, unless the launcher shows each process only its own GPU."""
    import torch  # on use: importing this module must stay cheap

    rank = int(os.environ.get("LOCAL_RANK", -1))
    return rank if 0 <= rank < torch.cuda.device_count() else torch.cuda.current_device()
