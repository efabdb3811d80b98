"""The networks of the papers at their real sizes, with toy tokenizers, to be built on a `FakeDevice`."""

from functools import partial

import open_clip
from PIL import Image
from transformers import (
    BertConfig,
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Qwen2_5_VLConfig,
    Qwen3VLConfig,
    RobertaConfig,
    RobertaModel,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipProcessor,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

from reward import CaptionSample
from reward.backbones.clip import ClipTokenizer, OpenClipTowers
from reward.backbones.clip_config import build_clip
from reward.backbones.clip_transformers import TransformersTowers
from reward.metrics.beitscore.config import BeitScoreConfig
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from reward.metrics.bertscore.scorer import BertScorer
from reward.metrics.vela.config import ImageConfig, LoraSettings, TextConfig, VelaConfig
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.prompts import AspectPrompt
from reward.metrics.vela.training import PRESETS
from tests.reward.metrics.tiny_vela import CHAT_TEMPLATE
from tests.toys import toy_captioners, toy_judges
from tests.toys.toy_clips import gemma_tokenizer

_HEADS_3B = {"num_attention_heads": 16, "num_key_value_heads": 2, "num_hidden_layers": 36}
QWEN_3B = {"vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 11_008, **_HEADS_3B}
_HEADS_7B = {"num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28}
QWEN_7B = {"vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944, **_HEADS_7B}
LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
# One token a word, about as many as the models' own tokenizers give.
_WORDS = toy_captioners.tokenizer("<|im_start|>", "<|im_end|>")
_WORDS.chat_template = CHAT_TEMPLATE
_START, _END = _WORDS.bos_token_id, _WORDS.eos_token_id
_words_of = partial(_WORDS.encode, add_special_tokens=False)
_TEXT_TOWER = {"vocab_size": 49_408, "width": 768, "heads": 12, "layers": 12, "pool_type": "eos", "eos_id": _END}
_IMAGE_TOWER = {"image_size": 224, "patch_size": 14, "width": 1024, "layers": 24}


def _clip(context_length, layers):
    """Long-CLIP L/14, with at most so many layers in each tower."""
    vision = {**_IMAGE_TOWER, "layers": min(layers, 24)}
    text = {**_TEXT_TOWER, "layers": min(layers, 12), "context_length": context_length}
    return {"embed_dim": 768, "vision_cfg": vision, "text_cfg": text}


def vela(device, dtype, *, lora=True, layers=36, checkpointing=False, preset="paper"):
    """Qwen2.5-3B and Long-CLIP L/14, as `VelaScorer.from_pretrained(dtype=...)` leaves them: the head in float32."""
    prompts = PRESETS[preset]["model"]["text"].get("prompts")
    text = TextConfig(
        backbone=None,
        architecture={"model_type": "qwen2", **QWEN_3B, "num_hidden_layers": layers, "max_position_embeddings": 32_768},
        lora=LoraSettings() if lora else None,
        **({"prompts": {aspect: AspectPrompt(**texts) for aspect, texts in prompts.items()}} if prompts else {}),
    )
    tokens = {"start": _START, "end": _END, "pad": 0}
    image = ImageConfig(backbone=None, architecture={"model_cfg": _clip(248, layers), "tokenizer": tokens})

    def make():
        model = VelaModel.from_config(VelaConfig(text=text, image=image), tokenizer=_WORDS)
        for branch in (model.text, model.image):
            branch.to(dtype=dtype)
        if checkpointing:
            model.text.decoder.gradient_checkpointing_enable({"use_reentrant": False})
        model.image.requires_grad_(False)  # as a backbone that the configuration names
        return model.eval()

    return device.build(make)


def beitscore(device, dtype, *, layers=12):
    """BEiT-3 base at 480 pixels; the head is in float32, as in a checkpoint that was loaded with `dtype`."""
    config = BeitScoreConfig(layers=layers)

    def make():
        model = BeitScoreModel(config)
        model.beit3.to(dtype=dtype)
        model.pooler.to(dtype=dtype)
        return model.eval()

    fast = toy_judges.byte_tokenizer()
    return device.build(make), BeitScoreTokenizer.from_fast(fast, max_tokens=config.max_text_tokens)


def clip_towers(device, dtype, name="ViT-L-14", *, context_length=77):
    """A CLIP of open_clip, or with 248 tokens a Long-CLIP."""
    config = open_clip.get_model_config(name)
    # by default the text ends at the largest id, which the toy tokenizer's end is not
    config["text_cfg"] |= {"context_length": context_length, "pool_type": "eos", "eos_id": _END}
    marks = {"start": _START, "end": _END, "pad": 0}
    tokenizer = ClipTokenizer(_words_of, **marks, context_length=context_length)
    return device.build(lambda: OpenClipTowers(build_clip(config), tokenizer).to(dtype=dtype).eval())


def siglip_towers(device, dtype, vocab_size):
    """SigLIP or SigLIP 2, so400m of 384 pixels."""
    tower = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}
    text = {**tower, "vocab_size": vocab_size, "max_position_embeddings": 64, "projection_size": 1152}
    config = SiglipConfig(text_config=text, vision_config={**tower, "patch_size": 14, "image_size": 384})
    processor = SiglipProcessor(SiglipImageProcessor(size={"height": 384, "width": 384}), gemma_tokenizer())
    model = device.build(lambda: SiglipModel(config).to(dtype=dtype).eval())
    return TransformersTowers(model, processor)  # the processor works on the CPU


def bert(device, dtype):
    """RoBERTa large, up to the layer that BERTScore compares."""
    config = RobertaConfig(vocab_size=50_265, max_position_embeddings=514, type_vocab_size=1, **LARGE)
    tokenizer = toy_captioners.tokenizer()
    tokenizer.cls_token, tokenizer.sep_token = tokenizer.bos_token, tokenizer.eos_token
    made = device.build(lambda: RobertaModel(config, add_pooling_layer=False).to(dtype=dtype).eval())
    return BertScorer(made, tokenizer, layer=17)


def qwen_vl(size):
    """Qwen2.5-VL of "3B" or "7B"."""
    text = QWEN_3B if size == "3B" else QWEN_7B
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    vision = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
    marks = {"vision_start": 151_652, "vision_end": 151_653, "image": 151_655, "video": 151_656}
    return Qwen2_5_VLConfig(
        text_config={**text, "max_position_embeddings": 32_768, "rope_parameters": rope},
        vision_config={**vision, "out_hidden_size": text["hidden_size"]},
        tie_word_embeddings=size == "3B",
        **{f"{name}_token_id": token for name, token in marks.items()},
    )


def qwen3_vl(size):
    """Qwen3-VL of "4B" or "8B"; all its photos' tokens are 32 x 32 pixels."""
    small = size == "4B"
    hidden, depth = (2560, 24) if small else (4096, 27)
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    sizes = {"vocab_size": 151_936, "intermediate_size": 9728 if small else 12_288, "num_hidden_layers": 36}
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    tower = {"hidden_size": 1024, "intermediate_size": 4096} if small else {}  # of the 8B: the library's defaults
    return Qwen3VLConfig(
        text_config={"hidden_size": hidden, **sizes, **heads, "rope_parameters": rope},
        vision_config={
            "depth": depth,
            "out_hidden_size": hidden,
            "deepstack_visual_indexes": [5, 11, 17] if small else [8, 16, 24],
            **tower,
        },
        tie_word_embeddings=small,
    )


def judge_parts(device, dtype, *, layers=40):
    """LLaVA-1.5-13B, FLEUR's judge, with one token a byte."""
    tokens = toy_judges.byte_tokenizer("<image>")
    size = {"height": 336, "width": 336}
    processor = LlavaProcessor(
        CLIPImageProcessor(size=size, crop_size=size),
        tokens,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=toy_judges.TEMPLATE.replace("IMAGE", "<image>\n"),
    )
    special = {name: getattr(tokens, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    sizes = {"vocab_size": 32_064, "hidden_size": 5120, "intermediate_size": 13_824, "max_position_embeddings": 4096}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(image_size=336, patch_size=14, **LARGE),
        text_config=LlamaConfig(**sizes, num_hidden_layers=layers, num_attention_heads=40, **special),
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
    )

    def make():
        model = LlavaForConditionalGeneration(config).to(dtype=dtype).eval()
        for name, token in special.items():
            setattr(model.generation_config, name, token)
        return model

    return device.build(make, dtype), processor


def captioner(device, dtype):
    """ViT base with a BERT decoder, and the tokenizer of one word a token."""
    tokens = toy_captioners.tokenizer()

    def make():
        config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(), BertConfig())
        config.pad_token_id, config.decoder_start_token_id = tokens.pad_token_id, tokens.bos_token_id
        model = VisionEncoderDecoderModel(config=config).to(dtype=dtype).eval()
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            setattr(model.generation_config, name, getattr(tokens, name))
        model.generation_config.decoder_start_token_id = tokens.bos_token_id
        return model

    return device.build(make), tokens


def captions_of_one_image(count, *, words=60, color="red", references=5):
    """Different captions of one image, and references half as long."""
    image = Image.new("RGB", (640, 480), color)
    texts = ["a star " * (words // 4)] * references
    return [CaptionSample(f"{number} star " * (words // 2), image, texts) for number in range(count)]
