"""Tiny real captioners with random weights, built from configs: LLaVA, Qwen2-VL, BLIP, a ViT with a BERT decoder."""

import inspect

import torch
import transformers as tf
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.toys.toy_models import ENCODER, QWEN_TOKENS, build_llava, build_qwen, special_ids, text_sizes

SENTENCE = "red green blue star square circle large small a the on left right of Describe it USER: ASSISTANT: ."
WORDS = SENTENCE.split()
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<image> {% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}"
    "{% elif m.role == 'assistant' %} ASSISTANT: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %} <eos>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT: {% endif %}"
)


def tokenizer(*special):
    """One id a word; unknown words are <unk>."""
    names = ["<pad>", "<bos>", "<eos>", "<unk>", *special]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*names, *WORDS])}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tf.PreTrainedTokenizerFast(
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


def _ready(model, tokens):
    torch.manual_seed(0)
    for parameter in model.parameters():  # wide enough that captions differ from image to image
        torch.nn.init.normal_(parameter, std=0.2)
    model.generation_config = tf.GenerationConfig(**special_ids(tokens), decoder_start_token_id=tokens.bos_token_id)
    return model.eval()


def llava():
    tokens = tokenizer("<image>")
    model, processor = build_llava(tokens, text_sizes(tokens, layers=2), TEMPLATE, patch_size=16)
    return _ready(model, tokens), processor


def llava_inputs(processor, images, texts):
    prompts = [
        f"USER: {'<image> ' if image else ''}{text} ASSISTANT:" for image, text in zip(images, texts, strict=True)
    ]
    given = [image for image in images if image is not None]
    return processor(images=given, text=prompts, padding=True, return_tensors="pt")


def qwen2_vl():
    tokens = tokenizer(*QWEN_TOKENS)
    vision = {"embed_dim": 16, "hidden_size": 16, "mlp_ratio": 2}
    model = build_qwen(tf.Qwen2VLForConditionalGeneration, tf.Qwen2VLConfig, tokens, text_sizes(tokens), **vision)
    return _ready(model, tokens), tokens


def qwen2_5_vl():
    tokens = tokenizer(*QWEN_TOKENS)
    tokens.add_special_tokens({"extra_special_tokens": list(QWEN_TOKENS)})
    size = {"shortest_edge": 256, "longest_edge": 1024}
    patches = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 1, "size": size}
    processor = tf.Qwen2_5_VLProcessor(
        tf.Qwen2VLImageProcessor(**patches),
        tokens,
        tf.Qwen2VLVideoProcessor(**patches),
        chat_template=TEMPLATE.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>"),
    )
    vision = {"hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 32}
    vision |= {"window_size": 16, "fullatt_block_indexes": [0]}
    model = build_qwen(tf.Qwen2_5_VLForConditionalGeneration, tf.Qwen2_5_VLConfig, tokens, text_sizes(tokens), **vision)
    return _ready(model, tokens), processor


def qwen2_vl_inputs(tokens, sides):
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
    known = inspect.signature(tf.Qwen2VLForConditionalGeneration.forward).parameters  # transformers 5.0 has no types
    return {name: value for name, value in inputs.items() if name in known}


def vit_bert():
    tokens = tokenizer()
    config = tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        tf.ViTConfig(**ENCODER, image_size=32, patch_size=16), tf.BertConfig(**ENCODER, vocab_size=len(tokens))
    )
    config.pad_token_id, config.decoder_start_token_id = tokens.pad_token_id, tokens.bos_token_id
    return _ready(tf.VisionEncoderDecoderModel(config=config), tokens), tokens


def blip():
    """A model that writes the words of `tokenizer()`, and pixels for two images."""
    tokens = tokenizer()
    text = {**ENCODER, **special_ids(tokens), "sep_token_id": tokens.eos_token_id, "vocab_size": len(tokens)}
    vision = {**ENCODER, "image_size": 32, "patch_size": 16}
    config = tf.BlipConfig(text_config={**text, "encoder_hidden_size": 16}, vision_config=vision, projection_dim=16)
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return _ready(tf.BlipForConditionalGeneration(config), tokens), pixels
