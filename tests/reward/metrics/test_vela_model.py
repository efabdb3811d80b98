"""VelaModel and VelaScorer: the formula, what is trained, checkpoints, shared work, cut texts, ablations."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from reward import CaptionSample, load_scorer
from reward.backbones import load_clip
from reward.backbones.language import pad_rows
from reward.errors import CheckpointError, ConfigError, ImageError
from reward.metrics.vela.config import FusionSettings, ImageConfig, LoraSettings, TextConfig, VelaConfig
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from tests.reward.metrics.tiny_vela import (
    ASPECTS,
    WORDS,
    language_architecture,
    make_config,
    make_model,
    make_tokenizer,
    picture,
)

LONG_CLIP = Path(__file__).parents[2] / "golden" / "longclip_tiny_weights.safetensors"
CAPTIONS = ["The red star is on the grass.", "Grass."]
REFERENCES = [["A red star."], []]
BRANCHES = [{}, {"image": False}, {"text": False}]
CONFIGS = [replace(make_config(**own), fusion=way) for own in BRANCHES for way in (None, FusionSettings(8, heads=2))]


def make_batch(model: VelaModel) -> dict[str, Any]:
    """Two samples under each aspect, as rows of one padded batch."""
    batch: dict[str, Any] = {"aspect": torch.tensor([0, 1, 2] * 2), "sample": torch.tensor([0, 0, 0, 1, 1, 1])}
    if model.text is not None:
        prompts = model.text.prompts.many(list(zip(CAPTIONS, REFERENCES, strict=True)), ASPECTS)
        rows = [[*prompt.prefix, *prompt.candidate, *prompt.tail] for row in prompts for prompt in row]
        batch["input_ids"], batch["attention_mask"] = pad_rows(rows)
    if model.image is not None:
        batch["pixels"] = torch.stack([model.image.towers.preprocess(picture(seed)) for seed in range(2)])
        batch["clip_ids"] = model.image.towers.tokenize(CAPTIONS)[0]
    return batch


def by_definition(model: VelaModel, row: int, aspect: int) -> float:
    """Section 4 of the paper, one sample and one aspect, step by step."""
    parts = []
    if model.text is not None:
        prompt = model.text.prompts(CAPTIONS[row], REFERENCES[row], ASPECTS[aspect])
        ids = torch.tensor([[*prompt.prefix, *prompt.candidate, *prompt.tail]])
        states = model.text.decoder(input_ids=ids).last_hidden_state[0]
        parts += [states.mean(0), states[-1]]
    if model.image is not None:
        image = model.image.towers.encode_image(model.image.towers.preprocess(picture(row))[None])[0]
        caption = model.image.towers.clip.encode_text(model.image.towers.tokenize([CAPTIONS[row]])[0])[0]
        parts += [(image - caption).abs(), image * caption]
    fused = torch.cat(parts) if model.config.fusion is None else by_attention(model.fusion, parts)
    return float(torch.sigmoid(model.weight[aspect] @ fused + model.bias[aspect]))


def by_attention(fusion: Any, parts: list[torch.Tensor]) -> torch.Tensor:
    """One block of two heads: a token a vector, each attends to all, and the mean of what comes out."""
    block = fusion.encoder.layers[0]
    tokens = torch.stack([project(part) for project, part in zip(fusion.inputs, parts, strict=True)])
    attention = block.self_attn
    whole = block.norm1(tokens) @ attention.in_proj_weight.T + attention.in_proj_bias
    heads = zip(*(part.chunk(2, dim=1) for part in whole.chunk(3, dim=1)), strict=True)
    seen = [torch.softmax(q @ k.T / q.shape[1] ** 0.5, dim=1) @ v for q, k, v in heads]
    tokens = tokens + attention.out_proj(torch.cat(seen, dim=1))
    tokens = tokens + block.linear2(torch.nn.functional.gelu(block.linear1(block.norm2(tokens))))
    return fusion.encoder.norm(tokens).mean(0)


@pytest.mark.parametrize("config", CONFIGS)
def test_scores_are_those_of_the_formula(config: VelaConfig) -> None:
    model = make_model(config)
    batch = make_batch(model)
    with torch.no_grad():
        scores = model(**batch).scores.view(2, 3)
        expected = torch.tensor([[by_definition(model, row, aspect) for aspect in range(3)] for row in range(2)])
        assert torch.allclose(scores, expected, atol=1e-5)
        g_r2c = g_i2c = None
        if model.text is not None:
            pairs = list(zip(CAPTIONS, REFERENCES, strict=True))
            g_r2c = model.text.encode(model.text.prompts.many(pairs, ASPECTS))
            assert g_r2c.shape == (2, 3, 64)
        if model.image is not None:
            g_i2c = model.image.relate(
                model.image.encode_image(batch["pixels"]), model.image.encode_candidate(batch["clip_ids"])
            )
            assert g_i2c.shape == (2, 32)
        assert torch.allclose(model.head(g_r2c, g_i2c), expected, atol=1e-5)


def test_everything_but_the_scale_of_clip_gets_a_gradient() -> None:
    model = make_model().train()
    model(**make_batch(model)).scores.sum().backward()
    without = {name for name, value in model.named_parameters() if value.grad is None}
    assert without == {"image.towers.clip.logit_scale"}


def test_an_image_and_caption_per_row_need_no_sample_index() -> None:
    model = make_model()
    batch = make_batch(model)
    sample = batch["sample"]
    apart = {**batch, "sample": None, "pixels": batch["pixels"][sample], "clip_ids": batch["clip_ids"][sample]}
    with torch.no_grad():
        assert torch.allclose(model(**batch).scores, model(**apart).scores, atol=1e-6)
    for missing, message in (("pixels", "pixels and clip_ids"), ("input_ids", "input_ids")):
        with pytest.raises(ValueError, match=message):
            model(**{**batch, missing: None})


@pytest.mark.parametrize("config", CONFIGS)
def test_a_checkpoint_of_ones_own_architecture_holds_everything(config: VelaConfig, tmp_path: Path) -> None:
    model = make_model(config)
    VelaScorer(model).save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(model.state_dict())
    loaded = load_scorer("vela", tmp_path, device="cpu").model
    assert not loaded.training
    with torch.no_grad():
        assert torch.equal(loaded(**make_batch(loaded)).scores, model(**make_batch(model)).scores)
    other = replace(config, fusion=FusionSettings() if config.fusion is None else None)
    (tmp_path / "config.json").write_text(json.dumps(other.to_dict()))
    with pytest.raises(CheckpointError, match=r"VELA checkpoint .* (lacks|unknown).*fusion\."):
        load_scorer("vela", tmp_path, device="cpu")


@pytest.fixture
def backbone(tmp_path: Path) -> str:
    """A folder with a causal LM and its tokenizer, as `Qwen/Qwen2.5-3B-Instruct` is on the Hub."""
    torch.manual_seed(5)
    folder = tmp_path / "backbone"
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**language_architecture())).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def test_a_checkpoint_over_backbones_holds_head_and_adapters(backbone: str, tmp_path: Path) -> None:
    lora = LoraSettings(r=2, target_modules=("q_proj", "v_proj"))
    config = VelaConfig(text=TextConfig(backbone=backbone, lora=lora), image=ImageConfig(backbone=str(LONG_CLIP)))
    model = VelaModel.from_config(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.requires_grad:
                value.normal_(std=0.2)
            else:
                assert name.startswith(("text.", "image."))
    VelaScorer(model).save_pretrained(tmp_path / "vela")
    stored = load_file(tmp_path / "vela" / "model.safetensors")
    assert {"weight", "bias"} < set(stored)
    assert all(".lora_" in key for key in stored if key not in ("weight", "bias"))
    assert not (tmp_path / "vela" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "vela" / "config.json").read_text())["text"]["backbone"] == backbone
    loaded = load_scorer("vela", tmp_path / "vela", device="cpu").model
    batch = make_batch(model)
    batch["clip_ids"] %= 151  # the tiny Long-CLIP has fewer words than its tokenizer
    with torch.no_grad():
        assert torch.equal(loaded(**batch).scores, model(**batch).scores)


def test_what_cannot_be_built_is_refused() -> None:
    tokenizer, absent = make_tokenizer(), VelaConfig(text=TextConfig(backbone="/absent"), image=None)
    limited = {"model_type": "gpt2", "n_positions": 64, "n_embd": 8, "n_layer": 1, "n_head": 1}
    text = TextConfig(backbone=None, architecture=limited, lora=None, chat_template=False)
    fused = make_config(image=False, lora=LoraSettings(target_modules=("q_proj", "qkv_proj")))
    own = {"tokenizer": tokenizer}
    for config, options, error, message in (
        (make_config(image=False), {}, ValueError, "needs tokenizer="),
        (make_config(text=False), {}, ValueError, "needs tokenizer="),
        (absent, {}, CheckpointError, r"language model .* cannot be read"),
        (fused, own, ConfigError, "Qwen2Model has no module 'qkv_proj'; it has .*q_proj, k_proj"),
        (
            VelaConfig(text=text, image=None),
            {"tokenizer": tokenizer},
            ValueError,
            "64 positions.*max_prefix_tokens=1536.*lower these",
        ),
    ):
        with pytest.raises(error, match=message):
            VelaModel.from_config(config, **options)


def test_checkpoints_with_weights_of_a_backbone_or_without_tokenizer_are_refused(backbone: str, tmp_path: Path) -> None:
    model = VelaModel.from_config(VelaConfig(text=TextConfig(backbone=backbone, lora=None), image=None))
    VelaScorer(model).save_pretrained(tmp_path / "vela")
    save_file(model.state_dict(), tmp_path / "vela" / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds weights of a backbone"):
        load_scorer("vela", tmp_path / "vela", device="cpu")
    VelaScorer(make_model()).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load_scorer("vela", tmp_path, device="cpu")


def count_work(model: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the tokens, images and captions that a model's networks are given from now on."""
    counts: Counter[str] = Counter()

    def counted(encode: Any, name: str) -> Any:
        return lambda given: counts.update({name: len(given)}) or encode(given)

    def count_tokens(module: Any, args: Any, kwargs: Any) -> None:
        counts["tokens"] += kwargs["input_ids"].numel()

    model.text.decoder.register_forward_pre_hook(count_tokens, with_kwargs=True)
    monkeypatch.setattr(model.image, "encode_image", counted(model.image.encode_image, "images"))
    monkeypatch.setattr(model.image, "encode_candidate", counted(model.image.encode_candidate, "captions"))
    return counts


def test_what_samples_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = make_model()
    counts = count_work(model, monkeypatch)
    table = VelaScorer(model).score([CaptionSample(word, picture(0), ["A star."]) for word in [*WORDS, WORDS[0]]])
    assert (counts["images"], counts["captions"]) == (1, 5)
    assert np.array_equal(table.scores[0], table.scores[5])
    made = model.text.prompts.many([(word, ["A star."]) for word in WORDS], model.config.aspects)
    assert counts["tokens"] < sum(len(one.prefix + one.candidate + one.tail) for row in made for one in row) / 2

    counts.clear()  # without references all images share the rubric
    VelaScorer(model).score([CaptionSample("x", picture(seed)) for seed in range(6)])
    assert (counts["images"], counts["captions"]) == (6, 1)
    longest = max(len(model.text.prompts.prefix([], aspect)[0]) for aspect in ASPECTS)
    (made,) = model.text.prompts.many([("x", [])], model.config.aspects)
    assert counts["tokens"] <= 3 * longest + 6 * sum(len(one.candidate + one.tail) for one in made)


def test_whatever_is_cut_is_flagged() -> None:
    long = "The red star is on the green grass. " * 100
    scorer = VelaScorer(make_model(make_config(max_prefix_tokens=500, max_candidate_tokens=60)))
    texts = [("x", ["A star."]), (long, ["A star."]), ("x", [long, "A star."]), (long, ["A star."])]
    table = scorer.score([CaptionSample(caption, picture(0), references) for caption, references in texts])
    assert table.truncated.tolist() == [False, True, True, True]
    assert np.isfinite(table.scores).all()
    by_clip = VelaScorer(make_model())  # CLIP reads 40 tokens, the language model 512
    table = by_clip.score([CaptionSample("The red star. " * 30, picture(0)), CaptionSample("x", picture(0))])
    assert table.truncated.tolist() == [True, False]


def test_either_branch_alone() -> None:
    text = VelaScorer(make_model(make_config(image=False)))
    assert not text.spec.needs_image
    table = text.score([CaptionSample("x", "absent.png"), CaptionSample("x"), CaptionSample("x", None, ["A star."])])
    assert table.errors == {}
    assert np.array_equal(table.scores[0], table.scores[1])
    assert not np.array_equal(table.scores[1], table.scores[2])
    image = VelaScorer(make_model(make_config(text=False)))
    table = image.score(
        [CaptionSample("x", picture(0)), CaptionSample("x", picture(0), ["A star."]), CaptionSample("x")]
    )
    assert np.array_equal(table.scores[0], table.scores[1])
    assert sorted(table.errors) == [2]


def test_an_image_too_thin_to_resize_is_an_error_of_the_image() -> None:
    towers = load_clip(LONG_CLIP)
    with pytest.raises(ImageError, match="1 x 60000 pixels is too long and thin"):
        towers.preprocess(Image.new("RGB", (1, 60_000)))
    assert towers.preprocess(Image.new("RGB", (10, 4000))).shape == (3, 32, 32)
