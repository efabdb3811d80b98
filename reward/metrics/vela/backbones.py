"""Builds the backbones of VELA's branches as a configuration states them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from reward.backbones.clip import ClipTowers
from reward.backbones.clip_loading import load_clip, towers_of_architecture
from reward.backbones.fit import foreign_errors
from reward.backbones.pretrained import build_decoder, load_pretrained
from reward.metrics.vela.config import ImageConfig, LoraSettings, TextConfig

__all__ = ["add_lora", "make_decoder", "make_towers"]


def make_decoder(
    config: TextConfig,
    model: nn.Module | None,
    tokenizer: Any | None,
    dtype: torch.dtype | None,
    trust_remote_code: bool = False,
) -> tuple[nn.Module, Any]:
    """The language model that a text configuration asks for (or the one given) and its tokenizer."""
    from transformers import AutoModel, AutoTokenizer

    if config.backbone is None:
        if tokenizer is None:
            raise ValueError("a text branch with an architecture of its own needs tokenizer=")
        return model or build_decoder(config.architecture or {}), tokenizer
    if model is None:
        return load_pretrained(
            config.backbone,
            AutoModel,
            AutoTokenizer,
            "language model",
            dtype=dtype,
            trust_remote_code=trust_remote_code,
        )
    with foreign_errors(f"tokenizer of {config.backbone!r}"):
        # `tokenizer` is the checkpoint's own, for other branches; a backbone brings its own
        return model, AutoTokenizer.from_pretrained(config.backbone, trust_remote_code=bool(trust_remote_code))


def make_towers(
    config: ImageConfig, clip: nn.Module | None, tokenizer: Any | None, dtype: torch.dtype | None
) -> ClipTowers:
    """The CLIP that an image configuration asks for, or the one given."""
    if isinstance(clip, ClipTowers):
        return clip
    if config.architecture is None:
        if clip is not None:
            raise ValueError("for an image branch with a backbone, pass ClipTowers (from load_clip) as clip")
        return load_clip(config.backbone or "", dtype=dtype)
    if tokenizer is None:
        raise ValueError("an image branch with an architecture of its own needs tokenizer=")
    return towers_of_architecture(config.architecture, tokenizer, clip)


def add_lora(decoder: nn.Module, settings: LoraSettings) -> nn.Module:
    """Puts fresh low-rank adapters (which change nothing yet) into a decoder; all its other weights are frozen.

    The adapters are kept in float32, so that half-precision backbones can be trained.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.tuners_utils import cast_adapter_dtype

    lora = LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
    )
    decoder = inject_adapter_in_model(lora, decoder)
    cast_adapter_dtype(decoder, adapter_name="default")
    return decoder
