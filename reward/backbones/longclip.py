"""Reads checkpoints in the layout of OpenAI CLIP and Long-CLIP: sizes from the tensors, one position table of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from reward.errors import CheckpointError

__all__ = ["KEPT_POSITIONS", "clip_from_original_layout", "is_original_layout"]

KEPT_POSITIONS = 20  # Long-CLIP keeps the first 20 text positions of CLIP and learns a second table for the others
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")  # sizes that OpenAI's files hold among the weights
_NEEDED = (
    "visual.conv1.weight",
    "visual.positional_embedding",
    "visual.proj",
    "positional_embedding",
    "text_projection",
    "token_embedding.weight",
)


def is_original_layout(tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether the keys are those of a vision-transformer CLIP in OpenAI's layout, which Long-CLIP shares."""
    return all(key in tensors for key in _NEEDED)


def _layers(tensors: Mapping[str, torch.Tensor], prefix: str) -> int:
    return sum(key.startswith(prefix) and key.endswith(".attn.in_proj_weight") for key in tensors)


def clip_from_original_layout(
    tensors: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Turns an original-layout state dict into an open_clip configuration and state dict.

    Text position i of Long-CLIP is `positional_embedding[i]` for i < 20 and `positional_embedding_res[i]` after that;
    both are folded into one table, which makes the model a plain open_clip CLIP with QuickGELU. Weights become fp32
    (half-precision files lose nothing; open_clip's own reader would round fp32 files to fp16).

    Args:
        tensors: the state dict, with or without `positional_embedding_res`.
        metadata: may state `vision_heads` and `text_heads`; otherwise a head is 64 wide, as in every CLIP.

    Returns:
        The `model_cfg` for open_clip, and the state dict that fits it.

    Raises:
        CheckpointError: the keys are not of this layout, or the two position tables differ in shape.
    """
    missing = [key for key in _NEEDED if key not in tensors]
    if missing:
        raise CheckpointError(f"not a CLIP vision transformer in the original key layout: {', '.join(missing)} missing")
    metadata = metadata or {}
    state = {key: value.float() for key, value in tensors.items() if key not in _NOT_WEIGHTS}
    second = state.pop("positional_embedding_res", None)
    if second is not None:
        first = state["positional_embedding"]
        if second.shape != first.shape:
            raise CheckpointError(
                f"positional_embedding {tuple(first.shape)} and positional_embedding_res {tuple(second.shape)} differ"
            )
        state["positional_embedding"] = torch.cat([first[:KEPT_POSITIONS], second[KEPT_POSITIONS:]])
    vision_width, _, patch_size, _ = state["visual.conv1.weight"].shape
    grid = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
    context_length, text_width = state["positional_embedding"].shape
    vision_heads = int(metadata.get("vision_heads", max(1, vision_width // 64)))
    text_heads = int(metadata.get("text_heads", max(1, text_width // 64)))
    model_cfg = {
        "embed_dim": state["text_projection"].shape[1],
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": grid * patch_size,
            "layers": _layers(state, "visual.transformer.resblocks."),
            "width": vision_width,
            "head_width": vision_width // vision_heads,
            "patch_size": patch_size,
        },
        "text_cfg": {
            "context_length": context_length,
            "vocab_size": state["token_embedding.weight"].shape[0],
            "width": text_width,
            "heads": text_heads,
            "layers": _layers(state, "transformer.resblocks."),
        },
    }
    return model_cfg, state
