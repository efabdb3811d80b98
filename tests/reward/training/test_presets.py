"""The shipped presets of VELA: each trains, on small backbones instead of the published ones, and is what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from reward import CaptionSample, load_scorer
from reward.metrics.vela.training import PRESETS
from reward.scenes import make_dataset
from reward.training.config import make_config
from reward.training.loop import train
from tests.reward.metrics.tiny_vela import language_architecture, make_tokenizer
from tests.small_clip import small_clip

SMALL = {"scenes_train": 4, "scenes_val": 4, "scenes_test": 0, "max_steps": 2}
SMALL |= {"learning_rate": 1e-2, "warmup_ratio": 0.0}


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of small networks, language models by the model type of the published one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    found = {}
    for kind in ("qwen2", "llama", "phi3"):
        settings = {**language_architecture(), "model_type": kind, "pad_token_id": 0}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
        folder = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        found[kind] = str(folder)
    return {**found, "clip": str(small_clip(tmp_path_factory.mktemp("clip")))}


def _small(name: str, backbones: dict[str, str]) -> dict[str, Any]:
    """What stands in for published backbones."""
    kind = {"paper-llama": "llama", "paper-phi": "phi3"}.get(name, "qwen2")
    branches = {"text": {"backbone": backbones[kind]}, "image": {"backbone": backbones["clip"]}}
    kept = {branch: value for branch, value in branches.items() if PRESETS[name]["model"][branch] is not None}
    return {} if name == "tiny" else kept


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_trains_and_scores(name: str, backbones: dict[str, str], tmp_path: Path) -> None:
    config = make_config(PRESETS[name], SMALL, {"model": _small(name, backbones)})
    train("vela", "scenes", tmp_path / "run", config)
    trained = load_file(tmp_path / "run" / "model.safetensors")
    assert any(weight.abs().max() > 0 for key, weight in trained.items() if "lora_B" in key or key == "weight")
    text = config.model["text"]
    if text is not None and text.get("lora") is not None:
        adapted = {key.split(".lora_A")[0].split(".")[-1] for key in trained if ".lora_A." in key}
        assert adapted == set(text["lora"]["target_modules"])
    for branch, settings in config.model.items():
        assert settings is not None or not any(key.startswith(f"{branch}.") for key in trained)
    rows = 1 if name == "paper-shared-head" else 3
    assert len(trained["weight"]) == len(trained["bias"]) == rows
    row = make_dataset(1, 5)[0]
    table = load_scorer("vela", tmp_path / "run", device="cpu").score([CaptionSample(row["cand"], row["image"])])
    assert table.errors == {}
    assert len(set(table.scores[0])) == 3  # aspects differ, also where one row of weights serves all


def test_ablations_leave_out_what_they_say(backbones: dict[str, str]) -> None:
    paper = make_config(PRESETS["paper"]).to_dict()

    def changed(name: str) -> dict[str, Any]:
        own = make_config(PRESETS[name]).to_dict()
        model = {key: own["model"][key] for key in own["model"] if own["model"][key] != paper["model"][key]}
        return {key: own[key] for key in own if key != "model" and own[key] != paper[key]} | model

    assert changed("paper-text-only") == {"image": None}
    assert changed("paper-image-only") == {"text": None}
    assert changed("paper-reference-free") == {"reference_free_rate": 1.0}
    assert changed("paper-shared-head") == {"head": "shared"}
    for name in ("paper-clip", "paper-pacs", "paper-longclip-b"):
        assert list(changed(name)) == ["image"]
    for name in ("paper-llama", "paper-phi"):
        assert list(changed(name)) == ["text"]


def test_every_value_of_the_paper_preset_says_whose_it_is() -> None:
    import reward.metrics.vela

    lines = (Path(reward.metrics.vela.__file__).parent / "presets.yaml").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("paper:"))
    end = next(number for number, line in enumerate(lines) if line.startswith("paper-image-only:"))
    for line in lines[start + 1 : end]:
        setting, _, comment = line.partition("#")
        if ":" in setting and setting.strip().partition(":")[2].strip() and "&" not in setting:
            assert comment.strip().startswith(("paper", "ours")), line
