"""The shipped presets of VELA, on small backbones instead of the published ones."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from reward import VelaReward
from reward.metrics.vela.training import PRESETS, make_model
from reward.scenes import make_dataset
from reward.training.config import make_config
from reward.training.loop import train
from tests.reward.metrics.tiny_vela import language_architecture, make_tokenizer
from tests.reward.training.small_runs import weights
from tests.toys.toy_clips import small_clip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    """Folders of small networks, language models by the model type of the published one."""
    found = {"clip": str(small_clip(tmp_path_factory.mktemp("clip")))}
    for kind in ("qwen2", "phi3"):
        settings = {**language_architecture(), "num_hidden_layers": 1, "model_type": kind, "pad_token_id": 0}
        found[kind] = str(tmp_path_factory.mktemp(kind))
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
        model.save_pretrained(found[kind])
        make_tokenizer().save_pretrained(found[kind])
    return found


def small_preset(name, backbones, **settings):
    kind = "phi3" if name == "paper-phi" else "qwen2"
    small = {"text": {"backbone": backbones[kind]}, "image": {"backbone": backbones["clip"]}}
    own = PRESETS[name]["model"]
    return make_config(PRESETS[name], {"model": {branch: small[branch] for branch in small if own[branch]}}, settings)


@pytest.mark.parametrize("name", sorted(PRESETS.keys() - {"tiny"}))
def test_a_preset_has_the_branches_heads_and_adapters_of_its_name(name, backbones):
    model = make_model(small_preset(name, backbones).model, texts=list)
    assert (model.text is None, model.image is None) == (name == "paper-image-only", name == "paper-text-only")
    assert len(model.weight) == (1 if name == "paper-one-score" else 3)
    parameters = {key for key, value in model.named_parameters() if value.requires_grad}
    adapted = {key.split(".lora_A")[0].split(".")[-1] for key in parameters if ".lora_A." in key}
    expected = {"paper-phi": {"qkv_proj"}, "paper-image-only": set()}
    assert adapted == expected.get(name, {"q_proj", "v_proj"})
    assert any("fusion" in key for key in parameters) == (name == "paper-transformer")


def test_a_trained_paper_is_a_reward_and_goes_on_from_its_adapters(backbones, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    few = {"scenes_train": 2, "scenes_val": 2, "scenes_test": 0, "max_steps": 2, "learning_rate": 1e-2}
    config = small_preset("paper", backbones, **few)
    start = train("vela", "scenes", first, config)
    row = make_dataset(1, 5)[0]
    (reward,) = VelaReward(first, device="cpu")(["What?"], [row["cand"]], image=[row["image"]])
    assert reward != 0.5  # at which a new head starts
    with pytest.warns(UserWarning, match="the training did not help on the part 'val': Kendall's tau-c x 100 was"):
        result = train("vela", "scenes", second, replace(config, learning_rate=1e-12, model={}), init=first)
    assert result.before == pytest.approx(start.figures["val"])
    before, after = weights(first), weights(second)
    assert any(value.any() for key, value in before.items() if "lora_B" in key)
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[key], after[key], atol=1e-8) for key in before)
    assert (first / "config.json").read_text() == (second / "config.json").read_text()
    assert f"Went on from the checkpoint `{first}`" in (second / "README.md").read_text()
