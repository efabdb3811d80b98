"""Untrained checkpoints of the architectures that docs/PHOTOS.md names, some thousand weights each, and real photos.

They are for trying a script out, as `photos_grpo.py --smoke` does: the same code runs on them as on the real ones.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import open_clip
import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

PHOTOS = {
    "skimage": ["astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg"],
    "sklearn": ["china.jpg", "flower.jpg"],
}
_IMAGES = {"skimage": "data", "sklearn": "datasets/images"}
_WORDS = (
    *("a", "an", "the", ".", ",", "of", "in", "on", "with", "and", "is", "are", "near", "behind", "describe", "image"),
    *("red", "green", "blue", "white", "dark", "small", "large", "old", "woman", "cat", "cup", "motorcycle", "rocket"),
)
_MARKS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_TEMPLATE = (
    "{% for message in messages %}{{ message.role }} {% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %} <eos> "
    "{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
)


def save_photos(folder: Path) -> Path:
    """Writes the four quarters of each photo of scikit-image and scikit-learn into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for package, names in PHOTOS.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise SystemExit(f"the photos of the trial are those of {package}: pip install scikit-image scikit-learn")
        for name in names:
            photo = Image.open(Path(spec.origin).parent / _IMAGES[package] / name).convert("RGB")
            width, height = photo.width // 2, photo.height // 2
            for number, (left, top) in enumerate([(0, 0), (width, 0), (0, height), (width, height)]):
                quarter = photo.crop((left, top, left + width, top + height))
                quarter.save(folder / f"{Path(name).stem}-{number}.jpg")
    return folder


def make_qwen_vl(folder: Path) -> Path:
    """A Qwen2.5-VL with its processor, which writes words of photos in no order."""
    torch.manual_seed(0)
    words = ["<pad>", "<bos>", "<eos>", "<unk>", *_MARKS, *_WORDS]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )
    tokens.add_special_tokens({"extra_special_tokens": _MARKS})
    ids = {f"{name}_token_id": getattr(tokens, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    marks = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokens),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]},
            **ids,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [0],
        },
        **dict(zip(marks, tokens.convert_tokens_to_ids(_MARKS), strict=True)),
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    for parameter in model.parameters():  # wide enough that captions differ from photo to photo
        torch.nn.init.normal_(parameter, std=0.2)
    # A random model would sample the mark of an image, which asks for one image more.
    model.generation_config.update(**ids, suppress_tokens=tokens.convert_tokens_to_ids(_MARKS))
    model.save_pretrained(folder)
    images, videos = Qwen2VLImageProcessor(), Qwen2VLVideoProcessor()
    Qwen2_5_VLProcessor(images, tokens, videos, chat_template=_TEMPLATE).save_pretrained(folder)
    return folder


def _make_clip(context_length: int) -> tuple[open_clip.CLIP, dict[str, object]]:
    torch.manual_seed(0)
    tower = {"width": 64, "layers": 1}  # as wide as one head of every published CLIP
    sizes = {
        "embed_dim": 16,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 64, **tower},
        "text_cfg": {"context_length": context_length, "vocab_size": 49_408, "heads": 1, **tower},
    }
    clip = open_clip.CLIP(**sizes)
    for norm, projection in ((clip.visual.ln_post, clip.visual.proj), (clip.ln_final, clip.text_projection)):
        torch.nn.init.ones_(norm.bias)  # with both, no cosine is below 0, which would score 0
        projection.data.abs_()
    return clip, sizes


def make_open_clip(folder: Path) -> Path:
    """A ViT of open_clip: its configuration and its weights."""
    clip, sizes = _make_clip(77)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": sizes, "preprocess_cfg": {}}))
    save_file(clip.state_dict(), folder / "open_clip_model.safetensors")
    return folder


def make_long_clip(file: Path) -> Path:
    """A Long-CLIP in the layout of its authors: 248 positions in two tables."""
    clip, _ = _make_clip(248)
    tensors = {name: value for name, value in clip.state_dict().items() if name != "attn_mask"}
    tensors["positional_embedding_res"] = tensors["positional_embedding"].clone()
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, file)
    return file
