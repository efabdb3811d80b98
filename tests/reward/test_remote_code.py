"""Python files that a checkpoint names never run, whatever it says and whatever is answered on stdin."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2Model

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
CODE = """
from transformers import PreTrainedTokenizerFast as PlantedTokenizer, Qwen2Config, Qwen2Model
open({marker!r}, "w").close()
class PlantedConfig(Qwen2Config):
    model_type = "planted"
class Planted(Qwen2Model):
    config_class = PlantedConfig
"""
MODEL_CODE = {"AutoConfig": "planted.PlantedConfig", "AutoModel": "planted.Planted"}


def add_to(file: Path, **values: Any) -> None:
    plain = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**plain, **values}))


def plant(folder: Path) -> Path:
    """Puts a Python file into a folder; gives the file that it makes when it is run."""
    marker = folder.parent / "the code ran"
    (folder / "planted.py").write_text(CODE.format(marker=str(marker)))
    return marker


def language_model(folder: Path) -> Path:
    settings = language_architecture()
    settings.pop("model_type")
    make_tokenizer().save_pretrained(folder)
    Qwen2Model(Qwen2Config(**settings)).save_pretrained(folder)
    return folder


def language_model_with_code(folder: Path) -> Path:
    add_to(language_model(folder) / "config.json", model_type="planted", auto_map=MODEL_CODE)
    return folder


def vela_on(backbone: Path, folder: Path) -> Path:
    """A VELA checkpoint that names a language model."""
    plain = language_model(folder / "plain")  # beside the planted folder, which no reader of ours opens
    model = VelaModel.from_config(VelaConfig(text=TextConfig(backbone=str(plain), lora=None), image=None))
    model.config = VelaConfig(text=TextConfig(backbone=str(backbone), lora=None), image=None)
    VelaScorer(model).save_pretrained(folder)
    return folder


def open_clip_with(folder: Path, **text_cfg: Any) -> Path:
    """An open_clip model with settings of its text tower."""
    model_cfg = clip_architecture()["model_cfg"]
    folder.mkdir()
    save_file(open_clip.CLIP(**model_cfg).state_dict(), folder / "open_clip_model.safetensors")
    model_cfg["text_cfg"] |= text_cfg
    add_to(folder / "open_clip_config.json", model_cfg=model_cfg, preprocess_cfg={})
    return folder


def open_clip_with_tokenizer(folder: Path) -> Path:
    """The configuration may hold arguments of the tokenizer, among them one that switches code on."""
    open_clip_with(folder, hf_tokenizer_name="planted", tokenizer_kwargs={"trust_remote_code": True})
    auto_map = {"AutoTokenizer": [None, "planted.PlantedTokenizer"]}
    add_to(folder / "tokenizer_config.json", tokenizer_class="PlantedTokenizer", auto_map=auto_map)
    add_to(folder / "config.json", model_type="planted")
    return folder


def clip_of_transformers(folder: Path) -> Path:
    """Its model, processor, tokenizer and image processor may all name code; transformers knows them itself."""
    kinds = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoTokenizer", "AutoImageProcessor")
    toy_clip(folder)
    for name in ("config.json", "processor_config.json", "tokenizer_config.json"):
        add_to(folder / name, auto_map=dict.fromkeys(kinds, "planted.Planted"))
    return folder


def load_vela(folder: Path, **options: Any) -> Any:
    return load_scorer("vela", vela_on(folder, folder.parent / "vela"), device="cpu", **options)


def load_open_clip_on(folder: Path) -> Any:
    tower = {"hf_model_name": str(folder), "hf_proj_type": "linear"}
    return load_clip(open_clip_with(folder.parent / "clip", **tower))


@pytest.mark.parametrize(
    ("make", "load", "message"),
    [
        (language_model_with_code, load_vela, "wants to run code of its own.*trust_remote_code=True"),
        (language_model_with_code, load_policy, "wants to run code of its own"),
        (language_model_with_code, load_open_clip_on, "wants to run code of its own"),
        (open_clip_with_tokenizer, load_clip, "contains custom code which must be executed"),
        (clip_of_transformers, load_clip, None),
    ],
)
def test_no_code_of_a_checkpoint_is_run(
    make: Callable[[Path], Path],
    load: Callable[[Path], Any],
    message: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    marker = plant(make(tmp_path / "model"))
    if message is None:
        load(tmp_path / "model")
    else:
        with pytest.raises(CheckpointError, match=f"(?s){message}"):
            load(tmp_path / "model")
    assert not marker.exists()


def test_code_runs_where_python_asks_for_it_and_not_where_a_configuration_does(tmp_path: Path) -> None:
    marker = plant(language_model_with_code(tmp_path / "backbone"))
    folder = vela_on(tmp_path / "backbone", tmp_path / "vela")
    plain = (folder / "config.json").read_text()
    add_to(folder / "config.json", text={**json.loads(plain)["text"], "trust_remote_code": True})
    with pytest.raises(CheckpointError, match="trust_remote_code"):
        load_scorer("vela", folder, device="cpu")
    assert not marker.exists()
    (folder / "config.json").write_text(plain)
    load_scorer("vela", folder, device="cpu", trust_remote_code=True)
    assert marker.exists()


@pytest.mark.parametrize(
    "change", [{"attn_implementation": "someone/kernel"}, {"auto_map": MODEL_CODE, "model_type": "planted"}]
)
def test_an_own_architecture_names_no_code_elsewhere(change: dict[str, Any]) -> None:
    text = TextConfig(backbone=None, architecture={**language_architecture(), **change}, lora=None)
    with pytest.raises((CheckpointError, ValueError), match=r"code from the Hub|planted"):
        VelaModel.from_config(VelaConfig(text=text, image=None), tokenizer=make_tokenizer())
    cfg = clip_architecture()["model_cfg"]
    with pytest.raises(CheckpointError, match="outside of the checkpoint"):
        build_clip({**cfg, "text_cfg": {**cfg["text_cfg"], "hf_model_name": "someone/model"}})


def own_loaders(trees: list[ast.Module]) -> set[str]:
    """Classes of ours with a `from_pretrained` or `from_config`, which hand the question on."""
    found = {"cls", "self", "spec.scorer_class()", "PeftModel"}  # the last puts an adapter on a network that is there
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        if names & {"from_pretrained", "from_config"} or {ast.unparse(base) for base in node.bases} & found:
            found.add(node.name)
    return found


@pytest.mark.slow
def test_every_call_of_transformers_says_what_it_trusts() -> None:
    files = [file for folder in ("reward", "integrations", "examples") for file in (ROOT / folder).rglob("*.py")]
    trees = [ast.parse(file.read_text()) for file in files]
    ours, silent = own_loaders(trees), []
    for file, tree in zip(files, trees, strict=True):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("from_pretrained", "from_config"):
                continue
            says = any(keyword.arg == "trust_remote_code" for keyword in call.keywords)
            if not says and ast.unparse(call.func.value) not in ours:
                silent.append(f"{file.relative_to(ROOT)}:{call.lineno} {ast.unparse(call.func)}")
    assert len(files) > 100
    assert silent == []
