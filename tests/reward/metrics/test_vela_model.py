"""VelaModel and VelaScorer: the formula, what is trained, checkpoints, shared work, cut texts, ablations."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from reward import CaptionSample, load_scorer
from reward.backbones.language import pad_rows
from reward.errors import CheckpointError
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
SAMPLES = [
    CaptionSample("The red star is on the grass.", picture(0), ["A red star."]),
    CaptionSample("Grass.", picture(1)),
]
ROWS = [(sample, aspect) for sample in SAMPLES for aspect in ASPECTS]
BRANCHES = [{}, {"image": False}, {"text": False}]
CONFIGS = [replace(make_config(**own), fusion=way) for own in BRANCHES for way in (None, FusionSettings(8, heads=2))]


def tokens(model, sample, aspect):
    prompt = model.text.prompts(sample.candidate, sample.references, aspect)
    return [*prompt.prefix, *prompt.candidate, *prompt.tail]


def make_batch(model):
    """Two samples under each aspect, as rows of one padded batch."""
    batch = {"aspect": torch.tensor([0, 1, 2] * 2)}
    if model.text is not None:
        batch["input_ids"], batch["attention_mask"] = pad_rows([tokens(model, *row) for row in ROWS])
    if model.image is not None:
        towers = model.image.towers
        batch["pixels"] = torch.stack([towers.preprocess(sample.image) for sample, _ in ROWS])
        batch["clip_ids"] = towers.tokenize([sample.candidate for sample, _ in ROWS])[0]
    return batch


def by_definition(model, sample, aspect):
    """Section 4 of the paper, one sample and one aspect, step by step."""
    parts = []
    if model.text is not None:
        states = model.text.decoder(input_ids=torch.tensor([tokens(model, sample, aspect)])).last_hidden_state[0]
        parts += [states.mean(0), states[-1]]
    if model.image is not None:
        towers = model.image.towers
        image = towers.encode_image(towers.preprocess(sample.image)[None])[0]
        caption = towers.clip.encode_text(towers.tokenize([sample.candidate])[0])[0]
        parts += [(image - caption).abs(), image * caption]
    if model.config.fusion is None:
        fused = torch.cat(parts)
    else:  # each vector is a token, and what comes out is averaged
        vectors = [project(part) for project, part in zip(model.fusion.inputs, parts, strict=True)]
        fused = model.fusion.encoder(torch.stack(vectors)[None])[0].mean(0)
    row = ASPECTS.index(aspect)
    return float(torch.sigmoid(model.weight[row] @ fused + model.bias[row]))


@pytest.mark.parametrize("config", CONFIGS)
def test_scores_are_those_of_the_formula_also_from_a_checkpoint(config, tmp_path):
    model = make_model(config)
    with torch.no_grad():
        expected = np.array([by_definition(model, *row) for row in ROWS])
        assert model(**make_batch(model)).scores.numpy() == pytest.approx(expected, abs=1e-5)
    scorer = VelaScorer(model)
    assert scorer.score(SAMPLES).scores.ravel() == pytest.approx(expected, abs=1e-5)
    scorer.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(model.state_dict())
    loaded = load_scorer("vela", tmp_path, device="cpu")
    assert np.array_equal(loaded.score(SAMPLES).scores, scorer.score(SAMPLES).scores)


def test_everything_but_the_scale_of_clip_gets_a_gradient():
    model = make_model().train()
    model(**make_batch(model)).scores.sum().backward()
    without = {name for name, value in model.named_parameters() if value.grad is None}
    assert without == {"image.towers.clip.logit_scale"}


@pytest.fixture
def backbone(tmp_path):
    """A folder with a causal LM and its tokenizer, as `Qwen/Qwen2.5-3B-Instruct` is on the Hub."""
    torch.manual_seed(5)
    folder = tmp_path / "backbone"
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**language_architecture())).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def test_a_checkpoint_over_backbones_holds_head_and_adapters(backbone, tmp_path):
    text = TextConfig(backbone=backbone, lora=LoraSettings(r=2))
    model = VelaModel.from_config(VelaConfig(text=text, image=ImageConfig(backbone=str(LONG_CLIP)))).eval()
    with torch.no_grad():
        trained = {name: value.normal_(std=0.2) for name, value in model.named_parameters() if value.requires_grad}
    VelaScorer(model).save_pretrained(tmp_path / "vela")
    assert set(load_file(tmp_path / "vela" / "model.safetensors")) == set(trained)
    assert all(name in ("weight", "bias") or ".lora_" in name for name in trained)
    assert not (tmp_path / "vela" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "vela" / "config.json").read_text())["text"]["backbone"] == backbone
    loaded = load_scorer("vela", tmp_path / "vela", device="cpu").model
    batch = make_batch(model)
    batch["clip_ids"] %= 151  # the tiny Long-CLIP has fewer words than its tokenizer
    with torch.no_grad():
        assert torch.equal(loaded(**batch).scores, model(**batch).scores)
    save_file(model.state_dict(), tmp_path / "vela" / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds weights of a backbone"):
        load_scorer("vela", tmp_path / "vela", device="cpu")


LIMITED = {"model_type": "gpt2", "n_positions": 64, "n_embd": 8, "n_layer": 1, "n_head": 1}
FUSED = LoraSettings(target_modules=("q_proj", "qkv_proj"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"backbone": "/absent", "architecture": None}, r"language model .* cannot be read"),
        ({"lora": FUSED}, "Qwen2Model has no module 'qkv_proj'; it has .*q_proj, k_proj"),
        ({"architecture": LIMITED, "chat_template": False}, "64 positions.*lower max_prefix_tokens=1536"),
    ],
)
def test_what_cannot_be_built_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        make_model(make_config(image=False, **text))


def test_what_samples_share_is_computed_once():
    model = make_model()
    read = Counter()
    towers = model.image.towers.clip
    towers.visual.register_forward_pre_hook(lambda _, given: read.update(images=len(given[0])))
    towers.token_embedding.register_forward_pre_hook(lambda _, given: read.update(captions=len(given[0])))
    model.text.decoder.register_forward_pre_hook(
        lambda _, __, given: read.update(tokens=given["input_ids"].numel()), with_kwargs=True
    )
    samples = [CaptionSample(word, picture(0), ["A star."]) for word in [*WORDS, WORDS[0]]]
    table = VelaScorer(model).score(samples)
    assert (read["images"], read["captions"]) == (1, 5)
    assert np.array_equal(table.scores[0], table.scores[5])
    assert read["tokens"] < sum(len(tokens(model, each, aspect)) for each in samples[:5] for aspect in ASPECTS) / 2


def test_whatever_is_cut_is_flagged():
    long = "The red star is on the green grass. " * 100
    scorer = VelaScorer(make_model(make_config(image=False, max_prefix_tokens=500, max_candidate_tokens=60)))
    texts = [("x", ["A star."]), (long, ["A star."]), ("x", [long, "A star."]), (long, ["A star."])]
    table = scorer.score([CaptionSample(caption, picture(0), references) for caption, references in texts])
    assert table.truncated.tolist() == [False, True, True, True]
    by_clip = VelaScorer(make_model())  # CLIP reads 40 tokens, the language model 512
    assert by_clip.score([CaptionSample("The red star. " * 30, picture(0))]).truncated.tolist() == [True]


def test_a_branch_alone_needs_only_what_it_reads():
    text, image = (VelaScorer(make_model(make_config(**own))) for own in BRANCHES[1:])
    assert (text.spec.needs_image, image.spec.needs_image) == (False, True)
    samples = [CaptionSample("x", "absent.png"), CaptionSample("x")]
    assert text.score(samples).errors == {}
    assert list(image.score(samples).errors) == [0, 1]
