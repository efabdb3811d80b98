"""Tiny vision-language models with random weights, built from configs, and captioners of them that know a few words."""

import inspect
from functools import lru_cache

import torch
import transformers as tf
from peft import PrefixTuningConfig, get_peft_model
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

IMAGES = [Image.new("RGB", (32, 32), "red"), Image.effect_noise((32, 32), 99).convert("RGB")]
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
ENCODER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def special_ids(tokens):
    return {f"{name}_token_id": getattr(tokens, f"{name}_token_id") for name in ("pad", "bos", "eos")}


def text_sizes(tokens, *, width=16, layers=1, positions=128):
    """A decoder's settings; its heads are 8 wide, and two of them share keys and values."""
    heads = {"num_attention_heads": width // 8, "num_key_value_heads": width // 16}
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers, **heads}
    return {"vocab_size": len(tokens), "max_position_embeddings": positions, **sizes, **special_ids(tokens)}


def build_llava(tokens, text, template, *, patch_size):
    """`text`: the decoder's settings, a Llama unless `model_type` says otherwise. Images are 32 pixels a side."""
    size = {"height": 32, "width": 32}
    processor = tf.LlavaProcessor(
        tf.CLIPImageProcessor(size=size, crop_size=size, do_center_crop=False),
        tokens,
        patch_size=patch_size,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template,
    )
    config = tf.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **ENCODER, "image_size": 32, "patch_size": patch_size},
        text_config={"model_type": "llama", **text},
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    return tf.LlavaForConditionalGeneration(config), processor


def build_qwen(model, config, tokens, text, **vision):
    """A model of the class `model` with its `config`; `vision` sets what differs between Qwen2-VL and Qwen2.5-VL."""
    start, end, image, video = tokens.convert_tokens_to_ids(list(QWEN_TOKENS))
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    patches = {"patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 1}
    return model(
        config(
            text_config={**text, "rope_parameters": rope},
            vision_config={"depth": 1, "num_heads": 2, **patches, **vision},
            vision_start_token_id=start,
            vision_end_token_id=end,
            image_token_id=image,
            video_token_id=video,
        )
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


def ready(model, tokens):
    torch.manual_seed(0)
    for parameter in model.parameters():  # wide enough that captions differ from image to image
        torch.nn.init.normal_(parameter, std=0.2)
    model.generation_config = tf.GenerationConfig(**special_ids(tokens), decoder_start_token_id=tokens.bos_token_id)
    return model.eval()


def llava():
    tokens = tokenizer("<image>")
    model, processor = build_llava(tokens, text_sizes(tokens, layers=2), TEMPLATE, patch_size=16)
    return ready(model, tokens), processor


def qwen2_vl():
    tokens = tokenizer(*QWEN_TOKENS)
    vision = {"embed_dim": 16, "hidden_size": 16, "mlp_ratio": 2}
    model = build_qwen(tf.Qwen2VLForConditionalGeneration, tf.Qwen2VLConfig, tokens, text_sizes(tokens), **vision)
    return ready(model, tokens), tokens


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
    return ready(model, tokens), processor


def vit_bert():
    tokens = tokenizer()
    config = tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        tf.ViTConfig(**ENCODER, image_size=32, patch_size=16), tf.BertConfig(**ENCODER, vocab_size=len(tokens))
    )
    config.pad_token_id, config.decoder_start_token_id = tokens.pad_token_id, tokens.bos_token_id
    return ready(tf.VisionEncoderDecoderModel(config=config), tokens), tokens


def blip():
    tokens = tokenizer()
    text = {**ENCODER, **special_ids(tokens), "sep_token_id": tokens.eos_token_id, "vocab_size": len(tokens)}
    vision = {**ENCODER, "image_size": 32, "patch_size": 16}
    config = tf.BlipConfig(text_config={**text, "encoder_hidden_size": 16}, vision_config=vision, projection_dim=16)
    return ready(tf.BlipForConditionalGeneration(config), tokens), tokens


def gemma3():
    tokens = tokenizer("<image>")
    text = {**text_sizes(tokens, layers=2), "head_dim": 8, "sliding_window": 4}
    vision = {**ENCODER, "image_size": 32, "patch_size": 8}
    image = tokens.convert_tokens_to_ids("<image>")
    marks = {"image_token_index": image, "boi_token_index": 4, "eoi_token_index": 5}
    config = tf.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, **marks)
    return ready(tf.Gemma3ForConditionalGeneration(config), tokens), tokens


def qwen3_5():
    """A language model, half of whose layers have a state in place of keys and values."""
    tokens = tokenizer("<image>")
    linear = {"linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
    linear |= {"linear_value_head_dim": 8, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}
    config = tf.Qwen3_5TextConfig(**text_sizes(tokens, layers=2), **linear)
    return ready(tf.Qwen3_5ForCausalLM(config), tokens), tokens


def prefix():
    """A language model with learned vectors before the prompt."""
    tokens = tokenizer("<image>")
    llama = ready(tf.LlamaForCausalLM(tf.LlamaConfig(**text_sizes(tokens, layers=2))), tokens)
    model = get_peft_model(llama, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
    torch.nn.init.normal_(model.prompt_encoder.default.embedding.weight, std=0.5)
    return model, tokens


CAPTIONERS = {maker.__name__: maker for maker in (llava, qwen2_vl, gemma3, blip, vit_bert, prefix, qwen3_5)}


@lru_cache
def captioner(kind):
    """A model of `CAPTIONERS`, what decodes its output, and its inputs for two prompts, of `IMAGES` if it sees them.

    Returns:
        These, and the length of the prompt in the output.
    """
    model, processor = CAPTIONERS[kind]()
    if kind in ("blip", "vit_bert"):
        return model, processor, {"pixel_values": PIXELS}, 1
    texts = ["Describe it", "Describe"]  # the second is padded
    options = {"padding": True, "return_tensors": "pt"}
    if kind == "llava":
        inputs = processor(images=IMAGES, text=[f"USER: <image> {text} ASSISTANT:" for text in texts], **options)
    elif kind == "qwen2_vl":
        inputs = _qwen2_vl_inputs(processor, [[1], [1, 2]])  # an image of one size, and two of two
    elif kind == "gemma3":
        inputs = processor([f"{'<image> ' * 4}{text}" for text in texts], return_token_type_ids=False, **options)
        is_image = (inputs["input_ids"] == model.config.image_token_id).int()
        inputs = {**inputs, "pixel_values": PIXELS, "token_type_ids": is_image}
    else:
        inputs = dict(processor(texts, return_token_type_ids=False, **options))
    return model, processor, inputs, inputs["input_ids"].shape[1]


def _qwen2_vl_inputs(tokens, sides):
    """Random square images, `sides[i][j]` merged patches wide, as the model's inputs."""
    shown = [[f"<|vision_start|>{' <|image_pad|>' * side**2} <|vision_end|>" for side in row] for row in sides]
    texts = [f"{' '.join(images)} Describe it" for images in shown]
    encoded = tokens(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    flat = [side for row in sides for side in row]
    patches = sum((2 * side) ** 2 for side in flat)
    inputs = {
        **encoded,
        "pixel_values": torch.randn(patches, 3 * 1 * 4 * 4, generator=torch.Generator().manual_seed(0)),
        "image_grid_thw": torch.tensor([[1, 2 * side, 2 * side] for side in flat]),
        "mm_token_type_ids": (encoded["input_ids"] == tokens.convert_tokens_to_ids("<|image_pad|>")).int(),
    }
    names = inspect.signature(tf.Qwen2VLForConditionalGeneration.forward).parameters  # transformers 5.0 has no types
    return {name: value for name, value in inputs.items() if name in names}
