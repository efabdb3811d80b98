"""A small Qwen2-VL with random weights as a policy: verl knows the processors of a few families only, not LLaVA's."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

from tests.toys.toy_models import QWEN_TOKENS

__all__ = ["save_policy"]

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *QWEN_TOKENS)
_WORDS = "Describe the picture. a A red green blue white star square circle large small above below left right of"
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_policy(folder: Path) -> None:
    """Writes model and processor; a picture is 4 to 16 tokens, and heads are 32 wide, which vLLM has for the CPU."""
    tokens = _tokenizer()
    patches = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
    patches["size"] = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
    processor = Qwen2VLProcessor(
        Qwen2VLImageProcessor(**patches), tokens, Qwen2VLVideoProcessor(**patches), chat_template=_TEMPLATE
    )
    torch.manual_seed(0)
    model = Qwen2VLForConditionalGeneration(_config(tokens))
    for parameter in model.parameters():  # wide enough that captions differ from picture to picture
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    model.generation_config.update(eos_token_id=tokens.eos_token_id, pad_token_id=tokens.pad_token_id)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def _tokenizer() -> PreTrainedTokenizerFast:
    words = [*_SPECIAL, "<unk>", "\n", "user", "assistant", "system", *_WORDS.split()]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Split("\n", "isolated")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=list(_SPECIAL),
        padding_side="left",
    )


def _config(tokens: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    start, end, image, video = tokens.convert_tokens_to_ids(list(QWEN_TOKENS))
    text = {
        "vocab_size": len(tokens),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
        "pad_token_id": tokens.pad_token_id,
        "eos_token_id": tokens.eos_token_id,
        "bos_token_id": None,
    }
    vision = {"depth": 2, "num_heads": 2, "embed_dim": 64, "hidden_size": 64, "mlp_ratio": 2}
    vision |= {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
    return Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
        tie_word_embeddings=False,
    )
