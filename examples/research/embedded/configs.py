"""Sizes of the embedded models: a small CLIP and Qwen2 for VELA, both wholly in the checkpoint, and a small BEiT-3."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerFast

from reward.metrics.beitscore.config import BeitScoreConfig
from reward.metrics.vela.config import ImageConfig, TextConfig, VelaConfig
from reward.metrics.vela.prompts import Prompt

__all__ = [
    "CONTEXT",
    "GUIDED",
    "LOOKING",
    "MEAN",
    "SEEING",
    "STD",
    "WRITING",
    "beit_config",
    "clip_config",
    "vela_config",
]

EMBED_DIM = 256
CONTEXT = 248
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
# Layers after which the image stream must have read its cells, and the text stream must know the true words.
SEEING = 3
WRITING = 5
# Layers (by index) whose first heads are shown where to look: at the cell that a word is about.
LOOKING = (3, 4)
GUIDED = 2


def clip_config(vocabulary: int, eos_id: int) -> dict[str, Any]:
    """`model_cfg` of open_clip: an ordinary model at 96 pixels with a 248-token text tower."""
    vision = {"image_size": 96, "patch_size": 16, "width": 192, "layers": 4, "head_width": 32, "mlp_ratio": 4.0}
    text = {"context_length": CONTEXT, "vocab_size": vocabulary, "width": 192, "heads": 6, "layers": 3}
    ends = {"pool_type": "eos", "eos_id": eos_id}
    return {"embed_dim": EMBED_DIM, "vision_cfg": vision, "text_cfg": text | ends}


def vela_config(tokenizer: PreTrainedTokenizerFast, *, text: bool = True, image: bool = True) -> VelaConfig:
    """Both branches, or one of them for an ablation."""
    # Short rubrics: a model of this size learns the names of the aspects, and every token costs. All aspects share
    # everything but the cue, so the scorer computes it once for all of them.
    aspects = ("descriptiveness", "relevance", "fluency")
    prompts = {
        aspect: Prompt(
            f"Rate {', '.join(aspects)}.",
            references="References:\n{references}\n",
            candidate="Candidate:\n{candidate}",
            cue=f"{aspect}:",
        )
        for aspect in aspects
    }
    language_model = {
        "model_type": "qwen2",
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    ends = {"start": tokenizer.bos_token_id, "end": tokenizer.eos_token_id, "pad": tokenizer.pad_token_id}
    clip = {
        "model_cfg": clip_config(len(tokenizer), tokenizer.eos_token_id),
        "preprocess_cfg": {"mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "squash"},
        "tokenizer": ends,
    }
    whole = {"lora": None, "prompts": prompts, "chat_template": False}
    room = {"max_prefix_tokens": 1024, "max_candidate_tokens": 256}
    return VelaConfig(
        text=TextConfig(backbone=None, architecture=language_model, **whole, **room) if text else None,
        image=ImageConfig(backbone=None, architecture=clip) if image else None,
    )


def beit_config(vocabulary: int) -> BeitScoreConfig:
    """The embedded sizes: 2.0 million parameters in the layers, patches of which four are one cell of a scene."""
    return BeitScoreConfig(
        hidden_size=128,
        layers=6,
        heads=4,
        ffn_size=384,
        image_size=96,
        patch_size=16,
        vocab_size=vocabulary,
        text_positions=386,
        head_size=256,
        drop_path=0.0,
    )
