"""Training runs of a second or two: VELA from scratch with one thin layer a tower, on a handful of scenes."""

from __future__ import annotations

from typing import Any

from reward.metrics.vela.training import PRESETS
from reward.training.config import TrainingConfig, make_config

__all__ = ["small_config"]

_SMALL: dict[str, Any] = {
    "scenes_train": 12,
    "scenes_val": 8,
    "scenes_test": 0,
    "batch_size": 6,
    "epochs": 2,
    "patience": 5,
    "model": {
        "tokenizer": {"vocab_size": 400},
        "text": {
            "architecture": {
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            }
        },
        "image": {
            "architecture": {
                "model_cfg": {
                    "embed_dim": 16,
                    "vision_cfg": {"width": 32, "layers": 1, "head_width": 16},
                    "text_cfg": {"width": 32, "layers": 1, "heads": 2, "context_length": 64},
                }
            }
        },
    },
}


def small_config(**settings: Any) -> TrainingConfig:
    """The preset `tiny` with everything small; `settings` win."""
    return make_config(PRESETS["tiny"], _SMALL, settings)
