"""Python files that a checkpoint names never run, whatever it says and whatever is answered on stdin."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import reward
from integrations.demo.captioner import load_captioner
from reward import load_scorer
from reward.backbones import load_clip
from reward.backbones.clip_config import build_clip
from reward.errors import CheckpointError
from reward.metrics.vela.config import TextConfig, VelaConfig
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from tests.reward.metrics.tiny_vela import clip_architecture, language_architecture, make_tokenizer

ROOT = Path(reward.__file__).parents[1]
_AUTO_MAP = {"AutoConfig": "planted.PlantedConfig", "AutoModel": "planted.Planted"}


def _plant(folder: Path, *, model_type: str = "planted") -> Path:
    """A language model that is a Qwen2, in a folder whose Python file leaves a marker when it is run."""
    from transformers import AutoConfig, AutoModel

    marker = folder.parent / "the code ran"
    settings = language_architecture()
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    AutoModel.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    plain = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**plain, "model_type": model_type, "auto_map": _AUTO_MAP}))
    (folder / "planted.py").write_text(
        "from transformers import Qwen2Config, Qwen2Model\n"
        f"open({str(marker)!r}, 'w').close()\n"
        f"class PlantedConfig(Qwen2Config):\n    model_type = {model_type!r}\n"
        "class Planted(Qwen2Model):\n    config_class = PlantedConfig\n"
    )
    return marker


def _vela_on(backbone: Path, folder: Path) -> Path:
    """A VELA checkpoint that names a language model."""
    from transformers import Qwen2Config, Qwen2Model

    settings = language_architecture()
    settings.pop("model_type")
    config = VelaConfig(text=TextConfig(backbone=str(backbone), lora=None), image=None)
    # built beside the planted folder, which no reader of ours opens
    plain = make_tokenizer()
    plain.save_pretrained(folder / "plain")
    Qwen2Model(Qwen2Config(**settings)).save_pretrained(folder / "plain")
    model = VelaModel.from_config(VelaConfig(text=TextConfig(backbone=str(folder / "plain"), lora=None), image=None))
    model.config = config
    VelaScorer(model).save_pretrained(folder)
    return folder


def test_no_answer_on_stdin_runs_the_code_of_a_backbone(tmp_path: Path) -> None:
    marker = _plant(tmp_path / "backbone")
    folder = _vela_on(tmp_path / "backbone", tmp_path / "vela")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "rows.jsonl").write_text('{"image": "a.png", "caption": "A star."}\n')
    command = [
        "score",
        str(tmp_path / "rows.jsonl"),
        "-m",
        "vela",
        "-o",
        str(tmp_path / "out.jsonl"),
        "--source",
        str(folder),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "reward.cli.main", *command],
        input="y\n" * 50,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert not marker.exists(), done.stderr
    assert done.returncode == 1, done.stderr
    message = " ".join(done.stderr.split())
    assert "wants to run code of its own" in message
    assert "trust_remote_code=True" in message
    assert "[y/N]" not in done.stdout + done.stderr


def test_code_runs_where_python_asks_for_it(tmp_path: Path) -> None:
    marker = _plant(tmp_path / "backbone")
    folder = _vela_on(tmp_path / "backbone", tmp_path / "vela")
    with pytest.raises(CheckpointError, match="wants to run code of its own"):
        load_scorer("vela", folder, device="cpu")
    assert not marker.exists()
    load_scorer("vela", folder, device="cpu", trust_remote_code=True)
    assert marker.exists()


def test_no_configuration_switches_code_on(tmp_path: Path) -> None:
    marker = _plant(tmp_path / "backbone")
    folder = _vela_on(tmp_path / "backbone", tmp_path / "vela")
    plain = json.loads((folder / "config.json").read_text())
    plain["text"]["trust_remote_code"] = True
    (folder / "config.json").write_text(json.dumps(plain))
    with pytest.raises(CheckpointError, match="trust_remote_code"):
        load_scorer("vela", folder, device="cpu")
    assert not marker.exists()


def _open_clip_folder(folder: Path, text_cfg: dict[str, object]) -> Path:
    model_cfg = clip_architecture()["model_cfg"]
    model_cfg["text_cfg"] |= text_cfg
    folder.mkdir(exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg, "preprocess_cfg": {}}))
    return folder


def test_an_open_clip_model_runs_no_code_of_a_text_tower_that_it_names(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    marker = _plant(tmp_path / "tower")
    folder = _open_clip_folder(tmp_path / "clip", {"hf_model_name": str(tmp_path / "tower"), "hf_proj_type": "linear"})
    with pytest.raises(CheckpointError, match="wants to run code of its own"):
        load_clip(folder)
    assert not marker.exists()


def test_an_open_clip_model_runs_no_code_of_a_tokenizer(tmp_path: Path, monkeypatch) -> None:
    """Its configuration may hold arguments of the tokenizer, among them one that switches code on."""
    import open_clip
    from safetensors.torch import save_file

    monkeypatch.setattr("builtins.input", lambda *_: "y")
    named = {"hf_tokenizer_name": "planted", "tokenizer_kwargs": {"trust_remote_code": True}}
    folder = _open_clip_folder(tmp_path / "clip", named)
    model_cfg = clip_architecture()["model_cfg"]
    save_file(open_clip.CLIP(**model_cfg).state_dict(), folder / "open_clip_model.safetensors")
    marker = tmp_path / "the code ran"
    (folder / "planted.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nfrom transformers import PreTrainedTokenizerFast as PlantedTokenizer\n"
    )
    tokenizer_config = {
        "tokenizer_class": "PlantedTokenizer",
        "auto_map": {"AutoTokenizer": [None, "planted.PlantedTokenizer"]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    (folder / "config.json").write_text(json.dumps({"model_type": "planted"}))
    with pytest.raises(CheckpointError):
        load_clip(folder)
    assert not marker.exists()


def test_an_own_architecture_names_no_code_elsewhere(tmp_path: Path) -> None:
    for change in ({"attn_implementation": "someone/kernel"}, {"auto_map": _AUTO_MAP, "model_type": "planted"}):
        config = VelaConfig(
            text=TextConfig(backbone=None, architecture={**language_architecture(), **change}, lora=None), image=None
        )
        with pytest.raises((CheckpointError, ValueError), match=r"code from the Hub|planted"):
            VelaModel.from_config(config, tokenizer=make_tokenizer())
    cfg = clip_architecture()["model_cfg"]
    with pytest.raises(CheckpointError, match="outside of the checkpoint"):
        build_clip({**cfg, "text_cfg": {**cfg["text_cfg"], "hf_model_name": "someone/model"}})


def test_a_captioner_runs_no_code(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    marker = _plant(tmp_path / "captioner")
    with pytest.raises(CheckpointError, match="wants to run code of its own"):
        load_captioner(tmp_path / "captioner")
    assert not marker.exists()


def _own_loaders() -> set[str]:
    """Classes of ours with a `from_pretrained` or `from_config`, which hand the question on."""
    found = {"cls", "self"}
    for folder in ("reward", "integrations"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
                    bases = {ast.unparse(base) for base in node.bases}
                    if names & {"from_pretrained", "from_config"} or bases & found:
                        found.add(node.name)
    return found


@pytest.mark.parametrize("folder", ["reward", "integrations", "examples"])
def test_every_call_of_transformers_says_what_it_trusts(folder: str) -> None:
    ours = _own_loaders() | {"PeftModel"}  # puts an adapter on a network that is there, and imports nothing
    silent = []
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            receiver = ast.unparse(node.func.value)
            if node.func.attr not in ("from_pretrained", "from_config") or receiver in ours | {"spec.scorer_class()"}:
                continue
            if not any(keyword.arg == "trust_remote_code" for keyword in node.keywords):
                silent.append(f"{file.relative_to(ROOT)}:{node.lineno} {receiver}.{node.func.attr}")
    assert silent == []


def test_weights_of_a_backbone_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    """transformers only warns, and goes on with random numbers."""
    from safetensors.torch import load_file, save_file

    folder = _vela_on(tmp_path / "backbone", tmp_path / "vela")
    _plant(tmp_path / "backbone", model_type="qwen2")
    weights = load_file(tmp_path / "backbone" / "model.safetensors")
    name = next(name for name in weights if name.endswith("q_proj.weight"))
    weights.pop(name)
    save_file(weights, tmp_path / "backbone" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"lacks 1 weights .*{name}"), torch.no_grad():
        load_scorer("vela", folder, device="cpu")
