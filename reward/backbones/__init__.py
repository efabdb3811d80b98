"""Networks that metrics share: open_clip towers (with the Long-CLIP layout) and causal-LM hidden states."""

from __future__ import annotations

from reward.backbones.clip import ClipTowers
from reward.backbones.clip_loading import load_clip

__all__ = ["ClipTowers", "load_clip"]
