"""Tiny real captioners with random weights, built from configs: LLaVA, Qwen2-VL, BLIP, a ViT with a BERT decoder."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BlipConfig,
    BlipForConditionalGeneration,
    CLIPImageProcessor,
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

SENTENCE = "red green blue star square circle large small a the on left right of Describe it USER: ASSISTANT: ."
WORDS = SENTENCE.split()
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<image> {% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}"
    "{% elif m.role == 'assistant' %} ASSISTANT: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %} <eos>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT: {% endif %}"
)


def tokenizer(*special: str) -> PreTrainedTokenizerFast:
    """One id a word; unknown words are <unk>."""
    names = ["<pad>", "<bos>", "<eos>", "<unk>", *special]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*names, *WORDS])}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        extra_special_tokens={"image_token": "<image>"} if "<image>" in special else {},
    )


# For GRPO's `generation_kwargs`: in the forward pass, a sampled <image> would ask for one image more.
NO_IMAGE_TOKEN = {"suppress_tokens": tokenizer("<image>").convert_tokens_to_ids(["<image>"])}


def _ready(model: Any, tokens: PreTrainedTokenizerFast) -> Any:
    torch.manual_seed(0)
    for parameter in model.parameters():  # wide enough that captions differ from image to image
        torch.nn.init.normal_(parameter, std=0.2)
    ids = {
        "pad_token_id": tokens.pad_token_id,
        "bos_token_id": tokens.bos_token_id,
        "eos_token_id": tokens.eos_token_id,
    }
    model.generation_config = GenerationConfig(**ids, decoder_start_token_id=tokens.bos_token_id)
    return model.eval()


def llava() -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    tokens = tokenizer("<image>")
    size = {"height": 32, "width": 32}
    processor = LlavaProcessor(
        CLIPImageProcessor(size=size, crop_size=size, do_center_crop=False),
        tokens,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            image_size=32,
            patch_size=16,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokens),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=128,
            pad_token_id=tokens.pad_token_id,
            bos_token_id=tokens.bos_token_id,
            eos_token_id=tokens.eos_token_id,
        ),
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    return _ready(LlavaForConditionalGeneration(config), tokens), processor


def llava_inputs(processor: LlavaProcessor, images: list[Image.Image | None], texts: list[str]) -> Any:
    prompts = [
        f"USER: {'<image> ' if image else ''}{text} ASSISTANT:" for image, text in zip(images, texts, strict=True)
    ]
    given = [image for image in images if image is not None]
    return processor(images=given, text=prompts, padding=True, return_tensors="pt")


_QWEN_SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def _qwen_text(tokens: PreTrainedTokenizerFast) -> dict[str, Any]:
    return {
        "vocab_size": len(tokens),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
        "pad_token_id": tokens.pad_token_id,
        "bos_token_id": tokens.bos_token_id,
        "eos_token_id": tokens.eos_token_id,
    }


def qwen2_vl() -> tuple[Qwen2VLForConditionalGeneration, PreTrainedTokenizerFast]:
    tokens = tokenizer(*_QWEN_SPECIAL)
    start, end, image, video = tokens.convert_tokens_to_ids(list(_QWEN_SPECIAL))
    config = Qwen2VLConfig(
        text_config=_qwen_text(tokens),
        vision_config={
            "depth": 1,
            "embed_dim": 16,
            "hidden_size": 16,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 1,
        },
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
    )
    return _ready(Qwen2VLForConditionalGeneration(config), tokens), tokens


def qwen2_5_vl() -> tuple[Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor]:
    tokens = tokenizer(*_QWEN_SPECIAL)
    tokens.add_special_tokens({"extra_special_tokens": list(_QWEN_SPECIAL)})
    start, end, image, video = tokens.convert_tokens_to_ids(list(_QWEN_SPECIAL))
    patches = {
        "patch_size": 4,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "size": {"shortest_edge": 256, "longest_edge": 1024},
    }
    processor = Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(**patches),
        tokens,
        Qwen2VLVideoProcessor(**patches),
        chat_template=TEMPLATE.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>"),
    )
    config = Qwen2_5_VLConfig(
        text_config=_qwen_text(tokens),
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "out_hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 1,
            "window_size": 16,
            "fullatt_block_indexes": [0],
        },
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
    )
    return _ready(Qwen2_5_VLForConditionalGeneration(config), tokens), processor


def qwen2_vl_inputs(tokens: PreTrainedTokenizerFast, sides: list[list[int]]) -> dict[str, torch.Tensor]:
    """Random square images, `sides[i][j]` merged patches wide, as the model's inputs: ragged numbers and sizes."""
    generator = torch.Generator().manual_seed(0)
    texts = [
        " ".join("<|vision_start|>" + " <|image_pad|>" * side**2 + " <|vision_end|>" for side in row) + " Describe it"
        for row in sides
    ]
    encoded = tokens(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    flat = [side for row in sides for side in row]
    patches = sum((2 * side) ** 2 for side in flat)
    is_image = encoded["input_ids"] == tokens.convert_tokens_to_ids("<|image_pad|>")
    inputs = {
        **encoded,
        "pixel_values": torch.randn(patches, 3 * 1 * 4 * 4, generator=generator),
        "image_grid_thw": torch.tensor([[1, 2 * side, 2 * side] for side in flat]),
        "mm_token_type_ids": is_image.int(),
    }
    known = inspect.signature(Qwen2VLForConditionalGeneration.forward).parameters  # transformers 5.0 has no types
    return {name: value for name, value in inputs.items() if name in known}


def vit_bert() -> tuple[VisionEncoderDecoderModel, PreTrainedTokenizerFast]:
    tokens = tokenizer()
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        ViTConfig(**small, image_size=32, patch_size=16), BertConfig(**small, vocab_size=len(tokens))
    )
    config.pad_token_id, config.decoder_start_token_id = tokens.pad_token_id, tokens.bos_token_id
    return _ready(VisionEncoderDecoderModel(config=config), tokens), tokens


def blip() -> tuple[BlipForConditionalGeneration, torch.Tensor]:
    """A model that writes the words of `tokenizer()`, and pixels for two images."""
    tokens = tokenizer()
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {
        "bos_token_id": tokens.bos_token_id,
        "eos_token_id": tokens.eos_token_id,
        "sep_token_id": tokens.eos_token_id,
    }
    text = {**small, **ids, "vocab_size": len(tokens), "pad_token_id": tokens.pad_token_id, "encoder_hidden_size": 16}
    model = BlipForConditionalGeneration(
        BlipConfig(text_config=text, vision_config={**small, "image_size": 32, "patch_size": 16}, projection_dim=16)
    )
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return _ready(model, tokens), pixels
