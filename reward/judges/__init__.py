"""Questions to token probabilities: vision-language models that judge, run here or behind a server."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from reward.judges.base import Answer, Judge, Question, Usage
from reward.judges.scripted import ScriptedJudge

if TYPE_CHECKING:
    from reward.judges.local import LocalJudge
    from reward.judges.server import ServerJudge

__all__ = ["Answer", "Judge", "LocalJudge", "Question", "ScriptedJudge", "ServerJudge", "Usage"]

_LAZY = {"LocalJudge": "reward.judges.local", "ServerJudge": "reward.judges.server"}  # they need torch or openai


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
