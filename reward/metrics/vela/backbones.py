"""Builds the backbones of VELA's branches as a configuration states them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from reward.backbones.clip import ClipTowers
from reward.backbones.clip_loading import load_clip, towers_of_architecture
from reward.backbones.pretrained import build_decoder, load_pretrained
from reward.metrics.vela.config import ImageConfig, TextConfig


def make_decoder(config: TextConfig, tokenizer: Any | None, dtype: torch.dtype | None) -> tuple[nn.Module, Any]:
    """The language model of a text configuration, with the backbone's tokenizer or, for an architecture, this one."""
    from transformers import AutoModel, AutoTokenizer

    if config.architecture is not None:
        return build_decoder(config.architecture), tokenizer
    return load_pretrained(config.backbone or "", AutoModel, AutoTokenizer, "language model", dtype=dtype)


def make_towers(config: ImageConfig, tokenizer: Any | None, dtype: torch.dtype | None) -> ClipTowers:
    """The CLIP of an image configuration, with the backbone's tokenizer or, for an architecture, this one."""
    if config.architecture is not None:
        return towers_of_architecture(config.architecture, tokenizer)
    return load_clip(config.backbone or "", dtype=dtype)
