"""What TRL's trainers take: data sets of images and references, and policies from checkpoints."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from integrations.trl.preferences import make_preference_dataset
from integrations.trl.prompts import make_prompt_dataset

if TYPE_CHECKING:
    from integrations.trl.monitor import RewardMonitor
    from integrations.trl.policy import ResumeWeights, load_policy

__all__ = ["ResumeWeights", "RewardMonitor", "load_policy", "make_preference_dataset", "make_prompt_dataset"]


def __getattr__(name: str) -> Any:
    if name in ("ResumeWeights", "load_policy"):  # they need torch
        return getattr(importlib.import_module("integrations.trl.policy"), name)
    if name == "RewardMonitor":
        return importlib.import_module("integrations.trl.monitor").RewardMonitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
