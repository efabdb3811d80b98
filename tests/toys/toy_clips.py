"""Tiny CLIPs as folders: one of each type of transformers, with its processor, and one of open_clip."""

import io
import json

import open_clip
import torch
import transformers as tf
from safetensors.torch import save_file

WORDS = ["a", "photo", "depicts", "red", "star", "##s", "on", "the", "grass", "beside", "small", "house", ".", "!", "b"]
TEXTS = [f"{first} {second} {third}" for first in WORDS for second in WORDS for third in ("red star", "Grass")]
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
PIXELS = {"image_size": 32, "patch_size": 8}


def bert_tokenizer(length=512):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return tf.BertTokenizer({word: place for place, word in enumerate(words)}, model_max_length=length)


def clip_tokenizer(length=77):
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)] + list(".,!<>|_")
    pieces = [*letters, *(letter + "</w>" for letter in letters), "re", "red</w>", "st", "ar</w>", "star</w>"]
    ids = {piece: place for place, piece in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}
    merges = [("r", "e"), ("re", "d</w>"), ("s", "t"), ("a", "r</w>"), ("st", "ar</w>")]
    return tf.CLIPTokenizer(vocab=ids, merges=merges, model_max_length=length)


def gemma_tokenizer(kind=tf.GemmaTokenizer):
    letters = [chr(code) for code in (*range(65, 91), *range(97, 123))] + list("▁.,!<>/_")
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *letters, "re", "red", "▁▁"]
    ids = {piece: place for place, piece in enumerate(tokens)}
    merges = [("r", "e"), ("re", "d"), ("▁", "▁")]
    options = {"add_bos_token": False, "add_eos_token": True, "padding_side": "right", "do_lower_case": True}
    return kind(vocab=ids, merges=merges, model_input_names=["input_ids"], model_max_length=64, **options)


def xlm_tokenizer(length):
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁red", -2.0), ("▁star", -3.0)]
    letters = [(letter, -8.0) for letter in "▁abcdefghijklmnopqrstuvwxyzABGIRST.,!<>/_"]
    return tf.XLMRobertaTokenizer(vocab=[*pieces, *letters, ("<mask>", 0.0)], model_max_length=length)


def siglip_tokenizer(folder):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.lower() for text in TEXTS),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        **{"unk_id": 2, "bos_id": -1, "eos_id": 1, "pad_id": 0, "pad_piece": "<pad>"},
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    return tf.SiglipTokenizer(str(folder / "spiece.model"), model_input_names=["input_ids"])


SIDE = {"height": 32, "width": 32}


def square(kind):
    return kind(size=SIDE, crop_size=SIDE)


def cropped():
    return tf.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=SIDE)


def _text(tokens, **settings):
    ids = {f"{name}_token_id": getattr(tokens, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    return {**TOWER, "vocab_size": len(tokens), **ids, **settings}


def _clip(folder, length=77):
    tokens = clip_tokenizer()  # says 77, as the tokenizers of checkpoints with a longer table of positions may
    text = _text(tokens, max_position_embeddings=length)
    config = tf.CLIPConfig(text_config=text, vision_config={**TOWER, **PIXELS}, projection_dim=16)
    return tf.CLIPModel(config), tf.CLIPProcessor(cropped(), tokens)


def _siglip(folder, tokens):
    config = tf.SiglipConfig(
        text_config=_text(tokens, max_position_embeddings=64, projection_size=32),
        vision_config={**TOWER, **PIXELS},
    )
    return tf.SiglipModel(config), tf.SiglipProcessor(square(tf.SiglipImageProcessor), tokens)


def _siglip2(folder):
    tokens = gemma_tokenizer(getattr(tf, "Siglip2Tokenizer", tf.GemmaTokenizer))  # not in transformers 5.0
    config = tf.Siglip2Config(
        text_config=_text(tokens, max_position_embeddings=64, projection_size=32),
        vision_config={**TOWER, "patch_size": 16, "num_patches": 256},
    )
    images = tf.Siglip2ImageProcessor(patch_size=16, max_num_patches=256)  # what its processor insists on
    return tf.Siglip2Model(config), tf.Siglip2Processor(images, tokens)


def _metaclip(folder):
    tokens = xlm_tokenizer(77)
    text = _text(tokens, max_position_embeddings=77)
    config = tf.MetaClip2Config(text_config=text, vision_config={**TOWER, **PIXELS}, projection_dim=16)
    return tf.MetaClip2Model(config), tf.CLIPProcessor(cropped(), tokens)


def _altclip(folder):
    tokens = xlm_tokenizer(78)
    text = _text(tokens, max_position_embeddings=80, project_dim=24, type_vocab_size=1)
    config = tf.AltCLIPConfig(text_config=text, vision_config={**TOWER, **PIXELS}, projection_dim=16)
    return tf.AltCLIPModel(config), tf.AltCLIPProcessor(cropped(), tokens)


def _chinese(folder):
    tokens = bert_tokenizer(52)
    text = _text(tokens, max_position_embeddings=512)
    config = tf.ChineseCLIPConfig(text_config=text, vision_config={**TOWER, **PIXELS}, projection_dim=16)
    return tf.ChineseCLIPModel(config), tf.ChineseCLIPProcessor(square(tf.ChineseCLIPImageProcessor), tokens)


def _flava(folder):
    tokens = bert_tokenizer()
    parts = {"image_config": {**TOWER, **PIXELS}, "text_config": _text(tokens), "multimodal_config": TOWER}
    config = tf.FlavaConfig(**parts, projection_dim=16, hidden_size=32)
    return tf.FlavaModel(config), tf.FlavaProcessor(square(tf.FlavaImageProcessor), tokens)


def _dual(folder):
    tokens = bert_tokenizer()
    text = tf.BertConfig(**_text(tokens))
    vision = tf.ViTConfig(**TOWER, **PIXELS)
    config = tf.VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=16)
    processor = tf.VisionTextDualEncoderProcessor(square(tf.ViTImageProcessor), tokens)
    return tf.VisionTextDualEncoderModel(config), processor


TYPES = {
    "clip": _clip,
    "clip of 248 tokens": lambda folder: _clip(folder, 248),
    "siglip": lambda folder: _siglip(folder, siglip_tokenizer(folder)),
    "siglip with gemma's tokens": lambda folder: _siglip(folder, gemma_tokenizer()),
    "siglip2 of any size": _siglip2,
    "metaclip_2": _metaclip,
    "altclip": _altclip,
    "chinese_clip": _chinese,
    "flava": _flava,
    "vision-text-dual-encoder": _dual,
}


def toy_clip(folder, kind="clip", dtype=torch.float32):
    """Writes a model of `TYPES` with random weights, wide enough that scores differ, into a folder, made if absent."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model, processor = TYPES[kind](folder)
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.15)
            elif name in ("logit_scale", "logit_bias"):
                weight.data.fill_({"logit_scale": 2.0, "logit_bias": -1.0}[name])
    model.to(dtype).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def small_clip(folder):
    """Writes an open_clip model with CLIP's own vocabulary into a folder, which is made if absent."""
    tower = {"width": 16, "layers": 1}
    model_cfg = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "patch_size": 16, "head_width": 8, "mlp_ratio": 4.0, **tower},
        "text_cfg": {"context_length": 20, "vocab_size": 49408, "heads": 2, **tower},
    }
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    folder.mkdir(exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg, "preprocess_cfg": preprocess}))
    with torch.random.fork_rng():
        torch.manual_seed(1)  # with some weights a caption has no neighbour in any band of similarity
        weights = open_clip.CLIP(**model_cfg).state_dict()
    save_file(weights, folder / "open_clip_model.safetensors")
    return folder
