"""The embedded VELA's configuration: a small Qwen2 and a small CLIP, both wholly in the checkpoint."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast, Qwen2Config

from examples.embedded.clip_config import MEAN, STD, clip_config
from reward.metrics.vela.config import ImageConfig, TextConfig, VelaConfig
from reward.metrics.vela.prompts import Prompt

__all__ = ["vela_config"]


def vela_config(tokenizer: PreTrainedTokenizerFast, *, text: bool = True, image: bool = True) -> VelaConfig:
    """Both branches, or one of them for an ablation."""
    language_model = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Short rubrics: a model of this size learns the names of the aspects, and every token costs.
    prompts = {
        aspect: Prompt(
            f"Rate the {aspect}.",
            references="References:\n{references}\n",
            candidate="Candidate:\n{candidate}",
            cue="Score:",
        )
        for aspect in ("descriptiveness", "relevance", "fluency")
    }
    kept = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    kept += (
        "vocab_size",
        "max_position_embeddings",
        "tie_word_embeddings",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
    )
    architecture = {"model_type": "qwen2"} | {name: getattr(language_model, name) for name in kept}
    return VelaConfig(
        text=TextConfig(
            backbone=None,
            architecture=architecture,
            lora=None,
            prompts=prompts,
            chat_template=False,
            max_prefix_tokens=1024,
            max_candidate_tokens=256,
        )
        if text
        else None,
        image=ImageConfig(
            backbone=None,
            architecture={
                "model_cfg": clip_config(len(tokenizer), tokenizer.eos_token_id),
                "preprocess_cfg": {"mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "squash"},
                "tokenizer": {
                    "start": tokenizer.bos_token_id,
                    "end": tokenizer.eos_token_id,
                    "pad": tokenizer.pad_token_id,
                },
            },
        )
        if image
        else None,
    )
