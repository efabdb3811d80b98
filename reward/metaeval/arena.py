"""The former name of `reward.arena`: the same objects."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("reward.arena"), name)
