"""What TRL's trainers take: data sets of images and references, and policies from checkpoints."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from integrations.trl.preferences import make_preference_dataset
from integrations.trl.prompts import make_prompt_dataset

if TYPE_CHECKING:
    from integrations.trl.log import readable_log
    from integrations.trl.monitor import RewardMonitor
    from integrations.trl.policy import ResumeWeights, load_policy
    from reward.training.trainer import last_checkpoint

__all__ = [
    "ResumeWeights",
    "RewardMonitor",
    "last_checkpoint",
    "load_policy",
    "make_preference_dataset",
    "make_prompt_dataset",
    "readable_log",
]

# they need torch
_ON_USE = {
    "ResumeWeights": "integrations.trl.policy",
    "RewardMonitor": "integrations.trl.monitor",
    "last_checkpoint": "reward.training.trainer",
    "load_policy": "integrations.trl.policy",
    "readable_log": "integrations.trl.log",
}


def __getattr__(name: str) -> Any:
    if name in _ON_USE:
        return getattr(importlib.import_module(_ON_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
