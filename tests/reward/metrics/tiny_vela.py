"""A VELA small enough for tests: random weights, a byte-level tokenizer with control tokens, pictures and captions."""

from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from reward.metrics.vela.config import ImageConfig, TextConfig, VelaConfig
from reward.metrics.vela.model import VelaModel

WORDS = ["The red star.", "A star on the green grass.", "Grass.", "The red star is on the green grass, twice.", "x"]
ASPECTS = ("descriptiveness", "relevance", "fluency")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXTS = ["You grade captions of images, with a number from 1 to 5.", "The red star is on the green grass."]


@lru_cache(maxsize=1)
def make_tokenizer():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<pad>", "<start>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    backend.train_from_iterator(_TEXTS, trainer)
    backend.add_tokens(["<tool>"])  # a control token that is not flagged special, as in Qwen's vocabulary
    backend.add_special_tokens(["<end>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<|im_end|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def language_architecture():
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 4096, "initializer_range": 0.2}
    return {"model_type": "qwen2", "vocab_size": len(make_tokenizer()), **sizes, **heads}


def clip_architecture():
    size = len(make_tokenizer())
    return {
        "model_cfg": {
            "embed_dim": 16,
            "vision_cfg": {"image_size": 32, "patch_size": 16, "width": 32, "layers": 2, "head_width": 16},
            "text_cfg": {"context_length": 40, "vocab_size": size, "width": 32, "heads": 2, "layers": 2},
        },
        "preprocess_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
        "tokenizer": {"start": 1, "end": size - 1, "pad": 0},
    }


def make_config(*, text=True, image=True, **text_settings):
    settings = {"backbone": None, "architecture": language_architecture(), "lora": None, **text_settings}
    return VelaConfig(
        text=TextConfig(**settings) if text else None,
        image=ImageConfig(backbone=None, architecture=clip_architecture()) if image else None,
    )


def make_model(config=None, seed=0):
    """In eval mode, with a random head, so that scores differ."""
    torch.manual_seed(seed)
    model = VelaModel.from_config(config or make_config(), tokenizer=make_tokenizer()).eval()
    with torch.no_grad():
        model.weight.normal_(std=0.3)
        model.bias.normal_(std=0.3)
    return model


def picture(seed):
    """A new object at every call; equal seeds give equal pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
