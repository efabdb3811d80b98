"""Builds the backbones of VELA's branches as a configuration states them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from reward.backbones.clip import ClipTowers
from reward.backbones.clip_loading import load_clip, towers_of_architecture
from reward.backbones.pretrained import build_decoder, load_pretrained
from reward.errors import ConfigError
from reward.metrics.vela.config import ImageConfig, LoraSettings, TextConfig


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


def add_lora(decoder: nn.Module, settings: LoraSettings) -> nn.Module:
    """Adds low-rank adapters to a decoder, which do not change its output yet, and freezes its other weights.

    The adapters are in float32, so that half-precision backbones can be trained.

    Raises:
        ConfigError: the decoder lacks one of the target modules, which peft would leave out without a word.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.tuners_utils import cast_adapter_dtype

    names = [f".{name}" for name, _ in decoder.named_modules()]
    for target in settings.target_modules:
        if not any(name.endswith(f".{target}") for name in names):
            matrices = [name.split(".")[-2] for name, value in decoder.named_parameters() if value.ndim == 2]
            raise ConfigError(
                f"text.lora.target_modules: this {type(decoder).__name__} has no module {target!r}; "
                f"it has {', '.join(dict.fromkeys(matrices))}"
            )
    lora = LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules),
    )
    decoder = inject_adapter_in_model(lora, decoder)
    cast_adapter_dtype(decoder, adapter_name="default")
    return decoder
