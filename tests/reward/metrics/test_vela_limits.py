"""Limits of VELA's backbones are found when the model is built or the image is read, never in the middle of a run."""

from __future__ import annotations

import pytest
from PIL import Image
from transformers import GPT2Config, GPT2Model

from reward import CaptionSample, load_scorer
from reward.backbones import load_clip
from reward.errors import ImageError
from reward.metrics.vela.config import TextConfig, VelaConfig
from reward.metrics.vela.model import VelaModel


def test_prompts_longer_than_a_table_of_positions_are_refused_at_once():
    tokenizer = load_scorer("vela", device="cpu").model.tokenizer
    model = GPT2Model(GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=8, n_layer=1, n_head=1))
    text = TextConfig(backbone=None, architecture={"model_type": "gpt2"}, lora=None, chat_template=False)
    with pytest.raises(ValueError, match=r"64 positions.*max_prefix_tokens=1536.*lower these"):
        VelaModel.from_config(VelaConfig(text=text, image=None), text_model=model, tokenizer=tokenizer)


def test_an_image_too_thin_to_resize_is_an_error_of_the_image():
    towers = load_clip("tests/golden/longclip_tiny_weights.safetensors")
    with pytest.raises(ImageError, match="1 x 60000 pixels is too long and thin"):
        towers.preprocess(Image.new("RGB", (1, 60_000)))
    assert towers.preprocess(Image.new("RGB", (10, 4000))).shape == (3, 32, 32)


def test_scores_do_not_follow_the_callers_autocast():
    import torch

    scorer = load_scorer("vela", device="cpu")
    sample = CaptionSample("There is a red star in the top left.", Image.new("RGB", (96, 96), "white"))
    plain = scorer.score([sample]).scores
    with torch.autocast("cpu", torch.bfloat16):
        assert abs(scorer.score([sample]).scores - plain).max() < 1e-6
