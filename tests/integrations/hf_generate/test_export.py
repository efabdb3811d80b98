"""Exported strategies in the loader of transformers: from folders, from a Hub, and as the `generate` of a model."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from transformers import AutoModelForImageTextToText

import reward
from integrations.hf_generate import STRATEGIES
from reward.errors import ConfigError
from tests.integrations.hf_generate.test_best_of_n import IMAGES, captioner
from tests.reward.cli.conftest import run  # noqa: F401  # a fixture

ROOT = Path(reward.__file__).parents[1]
ASSETS = ROOT / "reward" / "assets"
OPTIONS = {"best-of-n": {"temperature": 2.0}, "blockwise": {"block": 2, "keep": 2}, "minimum-bayes-risk": {"keep": 2}}
IN_A_PROCESS = """
import shutil, sys, torch
from tests.integrations.hf_generate.test_export import by_name, captioner
model, processor, inputs, _ = captioner("llava")
first = by_name("tester/decoder", model, processor, inputs)
shutil.rmtree(sys.argv[1])  # whoever loads the metric again, fails
print(torch.equal(first, by_name("tester/decoder", model, processor, inputs)))
"""


@pytest.fixture
def export(run):  # noqa: F811
    def call(folder, strategy, *line, code=0, **options):
        given = [part for name, value in options.items() for part in ("--option", f"{name}={value}")]
        return run("export-decoder", folder, "--strategy", strategy, *line, *given, code=code)[1]

    return call


def decode(model, inputs, **options):
    torch.manual_seed(1)
    return type(model).generate(model, **inputs, **{"max_new_tokens": 6, **options})


def by_name(folder, model, decoder, inputs, **options):
    given = {"processor": decoder, "images": IMAGES, "trust_remote_code": True, **options}
    return decode(model, inputs, custom_generate=str(folder), **given)


@pytest.mark.parametrize(
    ("kind", "name"), [*(("llava", name) for name in STRATEGIES), ("vit_bert", "best-of-n"), ("blip", "best-of-n")]
)
def test_by_name_is_the_strategy_itself(kind, name, tmp_path, export):
    model, processor, inputs, _ = captioner(kind)
    options = OPTIONS.get(name, {})
    export(folder := tmp_path / "a path with spaces", name, "-m", "length", "--n", 4, **options)
    strategy = STRATEGIES[name]("length", n=4, processor=processor, **options)
    assert torch.equal(by_name(folder, model, processor, inputs), decode(model, inputs, custom_generate=strategy))
    strategy = STRATEGIES[name]("length", n=3, processor=processor, chunk=8, **options)
    given = {"return_dict_in_generate": True, "num_return_sequences": 2, "do_sample": True}
    found = by_name(folder, model, None, inputs, tokenizer=processor, n=3, chunk=8, revision="main", **given)
    expected = decode(model, inputs, custom_generate=strategy, **given)
    assert torch.equal(found.sequences, expected.sequences)
    assert torch.equal(found.reward_scores, expected.reward_scores)


def test_what_a_call_cannot_have_is_refused(tmp_path, export):
    model, processor, inputs, _ = captioner("llava")
    export(tmp_path / "x", "best-of-n", "-m", "vela", "--n", 2)
    for wrong, error, message in [
        ({"image": IMAGES}, ValueError, "not used by the model: ['image']"),
        ({"keep": 1}, ValueError, "not used by the model: ['keep']"),
        ({"processor": None}, ConfigError, "give generate(..., processor=...), a processor or a tokenizer"),
        ({"images": None}, ConfigError, "metric 'vela' needs images: give generate(..., images=[...])"),
        ({"images": IMAGES[:1]}, ConfigError, "has 1 images for a batch of 2 prompts"),
        ({"cache_implementation": "paged"}, ConfigError, "generate ignores every strategy: leave it out"),
        ({"num_return_sequences": 3, "do_sample": True}, ConfigError, "more than the n=2"),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            by_name(tmp_path / "x", model, processor, inputs, **wrong)
    export(tmp_path / "x", "best-of-n", "-m", "length", "--n", 5, "--overwrite")  # the same process takes it
    assert len(by_name(tmp_path / "x", model, processor, inputs, num_return_sequences=5, do_sample=True)) == 10


def test_from_the_hub_the_metric_is_loaded_once(tmp_path, hub, export):
    checkpoint = shutil.copytree(ASSETS / "vela", tmp_path / "my vela")
    told = export(tmp_path / "decoder", "best-of-n", "-m", "vela", "--source", checkpoint, "--n", 2)
    assert f"works on this machine only, where {checkpoint} is: --source takes a Hub id, too" in told
    HfApi().create_repo("tester/decoder")
    HfApi().upload_folder(repo_id="tester/decoder", folder_path=tmp_path / "decoder")
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.endpoint, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", IN_A_PROCESS, str(checkpoint)]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_in_the_folder_of_a_model_it_becomes_its_generate(tmp_path, export):
    model, processor, inputs, _ = captioner("llava")
    folder, code = tmp_path / "model", tmp_path / "model" / "custom_generate" / "generate.py"
    model.save_pretrained(folder)
    (folder / "README.md").write_text("the model's own")
    assert "holds files: --overwrite" in export(folder, "best-of-n", "-m", "length", code=1)
    told = export(folder, "best-of-n", "-m", "length", "--overwrite")
    assert "README.md is not from an export and stays: give it the tag custom_generate" in told
    assert (folder / "README.md").read_text() == "the model's own"
    loaded = AutoModelForImageTextToText.from_pretrained(folder, trust_remote_code=True)
    torch.manual_seed(1)
    given = dict(inputs)
    found = loaded.generate(given.pop("input_ids"), **given, processor=processor, images=IMAGES, max_new_tokens=6)
    assert torch.equal(found, by_name(folder, model, processor, inputs))
    plain = loaded.generate(**inputs, custom_generate=None, max_new_tokens=6)
    assert torch.equal(plain, decode(model, inputs))

    code.write_text(foreign := "def generate(model, **arguments):\n    raise RuntimeError('not asked for')\n")
    told = export(folder, "best-of-n", "-m", "length", "--overwrite", code=1)
    assert "generate.py is not from capreward: move it away" in told
    assert code.read_text() == foreign
    export(other := tmp_path / "other", "adaptive", "-m", "length")
    loaded = AutoModelForImageTextToText.from_pretrained(folder, trust_remote_code=True)
    assert torch.equal(by_name(other, loaded, processor, inputs), by_name(other, model, processor, inputs))


def test_the_example_of_the_card_runs(tmp_path, monkeypatch, capsys, export):
    monkeypatch.chdir(tmp_path)
    export("decoder", "minimum-bayes-risk", "--n", 2)
    card = Path("decoder/README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\ntags:\n  - custom_generate\n---\n")
    IMAGES[0].save("picture.jpg")
    code = card.partition("```py\n")[2].partition("```")[0]
    exec(code.replace("Qwen/Qwen2.5-VL-3B-Instruct", str(ASSETS / "captioner")), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("version", [None, "0.0.9"])
def test_a_missing_old_or_hidden_capreward_is_said_with_the_fix(version, tmp_path, monkeypatch, export):
    export(tmp_path / "x", "best-of-n", "-m", "length")
    real = importlib.metadata.version

    def installed(name):
        if name == "capreward" and version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version if name == "capreward" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", installed)
    fix = f"  # pip install -U 'capreward>={reward.__version__}' (installed: {version})"
    with pytest.raises(ImportError, match=re.escape(fix)):
        by_name(tmp_path / "x", *captioner("llava")[:3])
    (tmp_path / "integrations.py").touch()
    code = (tmp_path / "x" / "custom_generate" / "generate.py").read_text()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True)
    assert "named 'integrations' hides it: rename that (No module named 'integrations.hf_generate'" in done.stderr
