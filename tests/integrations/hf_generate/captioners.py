"""Tiny captioners with random weights, each with its inputs for two prompts of different length or images."""

from functools import lru_cache

import torch
import transformers as tf
from peft import PrefixTuningConfig, get_peft_model
from PIL import Image

from tests.toys import toy_captioners
from tests.toys.toy_models import ENCODER, text_sizes

IMAGES = [Image.new("RGB", (32, 32), "red"), Image.effect_noise((32, 32), 99).convert("RGB")]
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
KINDS = ["llava", "qwen2_vl", "gemma3", "blip", "vit_bert", "prefix", "qwen3_5"]


def gemma3(tokens):
    image = tokens.convert_tokens_to_ids("<image>")
    text = {**text_sizes(tokens, layers=2), "head_dim": 8, "sliding_window": 4}
    vision = {**ENCODER, "image_size": 32, "patch_size": 8}
    ends = {"image_token_index": image, "boi_token_index": 4, "eoi_token_index": 5}
    config = tf.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, **ends)
    return tf.Gemma3ForConditionalGeneration(config)


def decoder(kind, tokens):
    sizes = text_sizes(tokens, layers=2)
    if kind == "prefix":
        return tf.LlamaForCausalLM(tf.LlamaConfig(**sizes))
    linear = {"linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
    linear |= {"linear_value_head_dim": 8, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}
    return tf.Qwen3_5ForCausalLM(tf.Qwen3_5TextConfig(**sizes, **linear))


@lru_cache
def captioner(kind):
    """A model, what decodes its output, its inputs for two prompts, and the length of the prompt in the output."""
    tokens = toy_captioners.tokenizer("<image>")
    if kind == "llava":
        model, processor = toy_captioners.llava()
        inputs = toy_captioners.llava_inputs(processor, IMAGES, ["Describe it", "Describe"])  # the second is padded
        return model, processor, inputs, inputs["input_ids"].shape[1]
    if kind == "qwen2_vl":  # one image of one size, and two of two
        model, tokens = toy_captioners.qwen2_vl()
        inputs = toy_captioners.qwen2_vl_inputs(tokens, [[1], [1, 2]])
        return model, tokens, inputs, inputs["input_ids"].shape[1]
    if kind == "vit_bert":
        model, tokens = toy_captioners.vit_bert()
        return model, tokens, {"pixel_values": PIXELS}, 1
    if kind == "blip":
        return toy_captioners.blip()[0], toy_captioners.tokenizer(), {"pixel_values": PIXELS}, 1
    if kind == "gemma3":
        model = toy_captioners._ready(gemma3(tokens), tokens)
        texts = ["<image> " * 4 + "Describe it", "<image> " * 4 + "Describe"]
        encoded = tokens(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
        is_image = (encoded["input_ids"] == model.config.image_token_id).int()
        inputs = {**encoded, "pixel_values": PIXELS, "token_type_ids": is_image}
        return model, tokens, inputs, encoded["input_ids"].shape[1]
    model = toy_captioners._ready(decoder(kind, tokens), tokens)
    if kind == "prefix":  # learned vectors before the prompt
        model = get_peft_model(model, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
        torch.nn.init.normal_(model.prompt_encoder.default.embedding.weight, std=0.5)
    inputs = tokens(["Describe it", "Describe"], padding=True, return_tensors="pt", return_token_type_ids=False)
    return model, tokens, dict(inputs), inputs["input_ids"].shape[1]
