"""Sizes of the embedded CLIP: an ordinary open_clip model, small, at 96 pixels, with a 248-token text tower."""

from __future__ import annotations

from typing import Any

EMBED_DIM = 256
CONTEXT = 248
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def clip_config(vocabulary: int, eos_id: int) -> dict[str, Any]:
    """`model_cfg` as open_clip reads it."""
    return {
        "embed_dim": EMBED_DIM,
        "vision_cfg": {
            "image_size": 96,
            "patch_size": 16,
            "width": 192,
            "layers": 4,
            "head_width": 32,
            "mlp_ratio": 4.0,
        },
        "text_cfg": {
            "context_length": CONTEXT,
            "vocab_size": vocabulary,
            "width": 192,
            "heads": 6,
            "layers": 3,
            "pool_type": "eos",
            "eos_id": eos_id,
        },
    }
