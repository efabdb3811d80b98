"""VelaConfig: the paper's defaults, its way to JSON and back, and configurations that are refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from reward.errors import CheckpointError
from reward.metrics.vela.backbones import add_lora
from reward.metrics.vela.config import ImageConfig, LoraSettings, TextConfig, VelaConfig
from reward.metrics.vela.prompts import Prompt
from tests.reward.metrics.tiny_vela import clip_architecture, make_config


def test_the_defaults_are_the_papers() -> None:
    config = VelaConfig()
    assert config.aspects == ("descriptiveness", "relevance", "fluency")
    assert config.text is not None
    assert config.text.backbone == "Qwen/Qwen2.5-3B-Instruct"
    assert config.image == ImageConfig(backbone="BeichenZhang/LongCLIP-L")


def test_the_default_adapters_have_the_papers_size() -> None:
    """3.68 M trainable parameters: rank 16 on the query and value projections of Qwen2.5-3B."""
    sizes = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "num_hidden_layers": 36}
    with torch.device("meta"):
        decoder = AutoModel.from_config(AutoConfig.for_model("qwen2", **sizes, intermediate_size=11008))
        add_lora(decoder, LoraSettings())
    trainable = {name: value.numel() for name, value in decoder.named_parameters() if value.requires_grad}
    assert sum(trainable.values()) == 3_686_400
    assert all(".lora_" in name for name in trainable)


@pytest.mark.parametrize(
    "config",
    [
        VelaConfig(),
        VelaConfig(text=None),
        VelaConfig(image=None),
        VelaConfig(("relevance",), text=TextConfig(lora=LoraSettings(r=4, target_modules=["q_proj"]))),
        make_config(chat_template=True, max_prefix_tokens=300),
    ],
)
def test_json_and_back(config: VelaConfig) -> None:
    plain = json.loads(json.dumps(config.to_dict()))
    assert plain["metric"] == "vela"
    assert VelaConfig.from_dict(plain) == config


def test_prompts_belong_to_the_checkpoint() -> None:
    prompts = {"relevance": Prompt("My rubric.", cue="Grade:")}
    config = VelaConfig(("relevance",), text=TextConfig(prompts=prompts))
    assert config.to_dict()["text"]["prompts"]["relevance"]["system"] == "My rubric."
    assert VelaConfig.from_dict(config.to_dict()).text == config.text


def _clip(**changes: Any) -> dict[str, Any]:
    plain = clip_architecture()
    plain["model_cfg"]["text_cfg"].update(changes)
    return plain


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VelaConfig(text=None, image=None), "at least one branch"),
        (lambda: VelaConfig(aspects=()), "at least one, got ()"),
        (lambda: VelaConfig(aspects=("fluency", "fluency")), "different names"),
        (lambda: VelaConfig(aspects=("fluency", "beauty")), "no prompt for beauty"),
        (lambda: TextConfig(backbone=None), "either a backbone"),
        (lambda: TextConfig(architecture={"model_type": "qwen2"}), "either a backbone"),
        (lambda: TextConfig(backbone=None, architecture={}), "'model_type'"),
        (lambda: TextConfig(max_candidate_tokens=0), "at least 1"),
        (lambda: ImageConfig(backbone=None, architecture={"model_cfg": {}}), "'tokenizer' with the ids"),
        (lambda: ImageConfig(backbone=None, architecture=_clip(vocab_size=999)), "the end token must be 998"),
        (lambda: ImageConfig(backbone=None, architecture=_clip(pool_type="eos", eos_id=5)), "eos_id is 5"),
        (lambda: LoraSettings(r=0), "text.lora.r must be a whole number of at least 1, got 0"),
        (lambda: LoraSettings(dropout=1.0), "text.lora.dropout must be a number in [0, 1), got 1.0"),
        (lambda: Prompt("rubric", candidate="no mark"), "'candidate' must hold {candidate}"),
        (lambda: Prompt("rubric", references="{references} {references}"), "exactly once"),
    ],
)
def test_impossible_configurations_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    "change", [{"surplus": 1}, {"aspects": ["beauty"]}, {"text": {"size": 3}}, {"text": None, "image": None}]
)
def test_a_configuration_of_another_version_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="not a VELA configuration"):
        VelaConfig.from_dict({**VelaConfig().to_dict(), **change})
    with pytest.raises(CheckpointError, match="image not stated"):
        VelaConfig.from_dict({key: value for key, value in VelaConfig().to_dict().items() if key != "image"})
