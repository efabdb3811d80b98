"""Networks that metrics share: open_clip towers (with the Long-CLIP layout) and causal-LM hidden states."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward.backbones.clip import ClipTowers
    from reward.backbones.clip_loading import load_clip

__all__ = ["ClipTowers", "load_clip"]


def __getattr__(name: str) -> Any:
    # On use, because both load torch, and `reward.backbones.clip_tokens` needs none.
    if name in __all__:
        module = "reward.backbones.clip" if name == "ClipTowers" else "reward.backbones.clip_loading"
        return getattr(import_module(module), name)
    raise AttributeError(f"module 'reward.backbones' has no attribute {name!r}")
