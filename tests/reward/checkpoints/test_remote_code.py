"""Python files that a checkpoint names never run, whatever it says and whatever is answered on stdin."""

import ast
import json
import re
from pathlib import Path

import open_clip
import pytest
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer, Qwen2Config, Qwen2Model

import reward
from integrations.trl import load_policy
from reward import load_scorer
from reward.backbones import load_clip
from reward.backbones.pretrained import load_pretrained
from reward.errors import CheckpointError
from reward.judges import LocalJudge
from reward.metrics.vela.config import TextConfig, VelaConfig
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from tests.reward.metrics.tiny_vela import clip_architecture, language_architecture, make_tokenizer
from tests.toys.toy_clips import toy_clip
from tests.toys.toy_judges import llava

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
PARTS = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoTokenizer", "AutoImageProcessor")


def write(file, **values):
    plain = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**plain, **values}))


def language_model(folder):
    """A Qwen2 that is said to be of a type which a Python file in the folder defines."""
    settings = language_architecture()
    settings.pop("model_type")
    make_tokenizer().save_pretrained(folder)
    Qwen2Model(Qwen2Config(**settings)).save_pretrained(folder)
    write(folder / "config.json", model_type="planted", auto_map=MODEL_CODE)
    return folder


def vela_on(backbone, folder):
    """A VELA checkpoint that names a language model."""
    own = TextConfig(backbone=None, architecture=language_architecture(), lora=None)
    model = VelaModel.from_config(VelaConfig(text=own, image=None), tokenizer=make_tokenizer())
    model.config = VelaConfig(text=TextConfig(backbone=str(backbone), lora=None), image=None)
    VelaScorer(model).save_pretrained(folder)
    return folder


def clip_with(folder, **text_cfg):
    model_cfg = clip_architecture()["model_cfg"]
    folder.mkdir()
    save_file(open_clip.CLIP(**model_cfg).state_dict(), folder / "open_clip_model.safetensors")
    model_cfg["text_cfg"] |= text_cfg
    write(folder / "open_clip_config.json", model_cfg=model_cfg, preprocess_cfg={})
    return folder


def clip_with_tokenizer(folder):
    """The configuration may hold arguments of the tokenizer, among them one that switches code on."""
    clip_with(folder, hf_tokenizer_name="planted", tokenizer_kwargs={"trust_remote_code": True})
    own = {"AutoTokenizer": [None, "planted.PlantedTokenizer"]}
    write(folder / "tokenizer_config.json", tokenizer_class="PlantedTokenizer", auto_map=own)
    write(folder / "config.json", model_type="planted")
    return folder


def clip_of_transformers(folder):
    """Its model, processor, tokenizer and image processor may all name code; transformers knows them itself."""
    toy_clip(folder)
    for name in ("config.json", "processor_config.json", "tokenizer_config.json"):
        write(folder / name, auto_map=dict.fromkeys(PARTS, "planted.Planted"))
    return folder


def judge_with_processor(folder):
    for part in llava():
        part.save_pretrained(folder)
    own = {"AutoProcessor": "planted.PlantedProcessor"}
    write(folder / "processor_config.json", processor_class="PlantedProcessor", auto_map=own)
    return folder


def load_vela_on(folder):
    return load_scorer("vela", vela_on(folder, folder.parent / "vela"), device="cpu")


def load_clip_on(folder):
    return load_clip(clip_with(folder.parent / "clip", hf_model_name=str(folder), hf_proj_type="linear"))


@pytest.mark.parametrize(
    ("make", "load", "message"),
    [
        (language_model, load_vela_on, "wants to run code of its own.*trust_remote_code=True"),
        (language_model, load_policy, "wants to run code of its own"),
        (language_model, load_clip_on, "wants to run code of its own"),
        (clip_with_tokenizer, load_clip, "contains custom code which must be executed"),
        (judge_with_processor, LocalJudge.from_pretrained, "processor.* wants to run code of its own"),
        (clip_of_transformers, load_clip, None),
    ],
)
def test_no_code_of_a_checkpoint_is_run(make, load, message, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    folder, marker = make(tmp_path / "model"), tmp_path / "the code ran"
    (folder / "planted.py").write_text(CODE.format(marker=str(marker)))
    if message is None:
        load(folder)
    else:
        with pytest.raises(CheckpointError, match=f"(?s){message}"):
            load(folder)
    assert not marker.exists()


def test_code_runs_where_python_asks_for_it_and_not_where_a_configuration_does(tmp_path):
    backbone, marker = language_model(tmp_path / "model"), tmp_path / "the code ran"
    (backbone / "planted.py").write_text(CODE.format(marker=str(marker)))
    load_pretrained(backbone, AutoModel, AutoTokenizer, "language model", trust_remote_code=True)
    assert marker.exists()
    vela_on(backbone, tmp_path / "vela")
    write(tmp_path / "vela" / "config.json", text={"backbone": str(backbone), "trust_remote_code": True})
    with pytest.raises(CheckpointError, match="trust_remote_code"):
        load_scorer("vela", tmp_path / "vela", device="cpu")


@pytest.mark.parametrize(
    "change", [{"attn_implementation": "someone/kernel"}, {"auto_map": MODEL_CODE, "model_type": "planted"}]
)
def test_an_own_architecture_names_no_code_elsewhere(change):
    text = TextConfig(backbone=None, architecture={**language_architecture(), **change}, lora=None)
    with pytest.raises((CheckpointError, ValueError), match=r"code from the Hub|planted"):
        VelaModel.from_config(VelaConfig(text=text, image=None), tokenizer=make_tokenizer())


@pytest.mark.slow
def test_every_call_of_transformers_says_what_it_trusts():
    files = [file for folder in ("reward", "integrations", "examples") for file in (ROOT / folder).rglob("*.py")]
    texts = {file: text for file in files if "from_" in (text := file.read_text())}
    nodes = [(file, node) for file, text in texts.items() for node in ast.walk(ast.parse(text))]
    ours = {"cls", "self", "spec.scorer_class()", "PeftModel"}  # the last puts an adapter on a network that is there
    for _, node in nodes:
        if isinstance(node, ast.ClassDef):  # one of ours with such a method hands the question on
            names = {getattr(item, "name", "") for item in node.body}
            if names & {"from_pretrained", "from_config"} or {ast.unparse(base) for base in node.bases} & ours:
                ours.add(node.name)
    silent = []
    for file, node in nodes:
        if isinstance(node, ast.Call) and re.fullmatch(
            r"(.+)\.from_(pretrained|config)", name := ast.unparse(node.func)
        ):
            says = any(keyword.arg == "trust_remote_code" for keyword in node.keywords)
            if not says and name.rpartition(".")[0] not in ours:
                silent.append(f"{file.relative_to(ROOT)}:{node.lineno} {name}")
    assert len(files) > 100
    assert silent == []
