"""Python files that a checkpoint names never run, whatever it says and whatever is answered on stdin."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import open_clip
import pytest
from PIL import Image
from safetensors.torch import save_file

import reward
from integrations.trl import load_policy
from reward import load_scorer
from reward.backbones import load_clip
from reward.backbones.clip_config import build_clip
from reward.errors import CheckpointError
from reward.metrics.vela.config import TextConfig, VelaConfig
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from tests.reward.metrics.tiny_vela import clip_architecture, language_architecture, make_tokenizer
from tests.toys.toy_clips import toy_clip

ROOT = Path(reward.__file__).parents[1]
_AUTO_MAP = {"AutoConfig": "planted.PlantedConfig", "AutoModel": "planted.Planted"}


def _language_model(folder: Path) -> None:
    from transformers import Qwen2Config, Qwen2Model

    settings = language_architecture()
    settings.pop("model_type")
    make_tokenizer().save_pretrained(folder)
    Qwen2Model(Qwen2Config(**settings)).save_pretrained(folder)


def _plant(folder: Path, *, model_type: str = "planted") -> Path:
    """A language model that is a Qwen2, in a folder whose Python file leaves a marker when it is run."""
    _language_model(folder)
    plain = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**plain, "model_type": model_type, "auto_map": _AUTO_MAP}))
    marker = folder.parent / "the code ran"
    (folder / "planted.py").write_text(
        "from transformers import Qwen2Config, Qwen2Model\n"
        f"open({str(marker)!r}, 'w').close()\n"
        f"class PlantedConfig(Qwen2Config):\n    model_type = {model_type!r}\n"
        "class Planted(Qwen2Model):\n    config_class = PlantedConfig\n"
    )
    return marker


def _vela_on(backbone: Path, folder: Path) -> Path:
    """A VELA checkpoint that names a language model."""
    _language_model(folder / "plain")  # beside the planted folder, which no reader of ours opens
    model = VelaModel.from_config(VelaConfig(text=TextConfig(backbone=str(folder / "plain"), lora=None), image=None))
    model.config = VelaConfig(text=TextConfig(backbone=str(backbone), lora=None), image=None)
    VelaScorer(model).save_pretrained(folder)
    return folder


def _clip_on(folder: Path, text_cfg: dict[str, object]) -> Path:
    """An open_clip model with settings of its text tower."""
    model_cfg = clip_architecture()["model_cfg"]
    folder.mkdir()
    save_file(open_clip.CLIP(**model_cfg).state_dict(), folder / "open_clip_model.safetensors")
    model_cfg["text_cfg"] |= text_cfg
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg, "preprocess_cfg": {}}))
    return folder


@pytest.mark.slow
def test_no_answer_on_stdin_runs_the_code_of_a_backbone(tmp_path: Path) -> None:
    marker = _plant(tmp_path / "backbone")
    folder = _vela_on(tmp_path / "backbone", tmp_path / "vela")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "rows.jsonl").write_text('{"image": "a.png", "caption": "A star."}\n')
    line = ["score", "rows.jsonl", "-m", f"vela={folder}", "-o", "out.jsonl"]
    command = [sys.executable, "-m", "reward.cli.main", *line]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "timeout": 240}
    done = subprocess.run(command, input="y\n" * 50, capture_output=True, text=True, **options)
    assert (done.returncode, marker.exists()) == (1, False), done.stderr
    message = " ".join(done.stderr.split())
    assert "wants to run code of its own" in message
    assert "trust_remote_code=True" in message
    assert "[y/N]" not in done.stdout + done.stderr


def test_code_runs_where_python_asks_for_it_and_not_where_a_configuration_does(tmp_path: Path) -> None:
    marker = _plant(tmp_path / "backbone")
    folder = _vela_on(tmp_path / "backbone", tmp_path / "vela")
    plain = (folder / "config.json").read_text()
    asking = json.loads(plain)
    asking["text"]["trust_remote_code"] = True
    (folder / "config.json").write_text(json.dumps(asking))
    with pytest.raises(CheckpointError, match="trust_remote_code"):
        load_scorer("vela", folder, device="cpu")
    assert not marker.exists()
    (folder / "config.json").write_text(plain)
    load_scorer("vela", folder, device="cpu", trust_remote_code=True)
    assert marker.exists()


@pytest.mark.parametrize("kind", ["a text tower of open_clip", "a captioner"])
def test_no_code_of_a_model_is_run(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    marker = _plant(tmp_path / "planted")
    tower = {"hf_model_name": str(tmp_path / "planted"), "hf_proj_type": "linear"}
    with pytest.raises(CheckpointError, match="wants to run code of its own"):
        load_policy(tmp_path / "planted") if kind == "a captioner" else load_clip(_clip_on(tmp_path / "clip", tower))
    assert not marker.exists()


def test_no_code_of_a_tokenizer_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration may hold arguments of the tokenizer, among them one that switches code on."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    named = {"hf_tokenizer_name": "planted", "tokenizer_kwargs": {"trust_remote_code": True}}
    folder, marker = _clip_on(tmp_path / "clip", named), tmp_path / "the code ran"
    (folder / "planted.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nfrom transformers import PreTrainedTokenizerFast as PlantedTokenizer\n"
    )
    auto_map = {"AutoTokenizer": [None, "planted.PlantedTokenizer"]}
    tokenizer_config = {"tokenizer_class": "PlantedTokenizer", "auto_map": auto_map}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    (folder / "config.json").write_text(json.dumps({"model_type": "planted"}))
    with pytest.raises(CheckpointError):
        load_clip(folder)
    assert not marker.exists()


def test_no_code_of_a_clip_of_transformers_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model, processor, tokenizer and image processor may all name code; transformers knows them itself."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    folder, marker = toy_clip(tmp_path / "clip"), tmp_path / "the code ran"
    (folder / "planted.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Planted: pass\n")
    kinds = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoTokenizer", "AutoImageProcessor")
    for name in ("config.json", "processor_config.json", "tokenizer_config.json"):
        path = folder / name
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "auto_map": dict.fromkeys(kinds, "planted.Planted")})
        )
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


@pytest.mark.slow
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
