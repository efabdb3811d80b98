"""What a kept score belongs to: files, checkpoints, networks, objects, code, and every setting and weight."""

import json
import linecache
import os
import re
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from PIL import Image

import reward
from reward import CaptionSample, list_metrics, load_scorer, metric_spec
from reward.checkpoints.fingerprint_objects import fingerprint_object, is_told
from reward.checkpoints.fingerprints import (
    fingerprint_checkpoint,
    fingerprint_file,
    fingerprint_network,
    metric_identity,
)
from reward.judges import ScriptedJudge
from reward.metrics.options import metric_options
from reward.scoring.several import Metrics
from tests.toys.toy_clips import small_clip


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("length", [1, 3, 9])
def test_each_value_of_a_weight_is_in_the_fingerprint(kind, length):
    network = torch.nn.Module()
    network.register_buffer("values", torch.zeros(length, dtype=kind))
    names = {fingerprint_network(network)}
    for index in range(length):
        network.values[index] += 1
        names.add(fingerprint_network(network))
    assert len(names) == 1 + length


def test_a_large_file_is_hashed_wholly_and_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("reward.checkpoints.fingerprints._SETTLED", -1.0)  # that it was changed just now
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(17 * 2**20))
    os.utime(file, (1, 1))
    before = fingerprint_file(file)
    with monkeypatch.context() as patch:
        patch.delattr("reward.checkpoints.fingerprints.hash_file")
        assert fingerprint_file(file) == before
    with file.open("r+b") as writing:
        writing.seek(7 * 2**20 + 13)
        writing.write(b"x")
    os.utime(file, (1, 1))  # as some copies keep it
    assert fingerprint_file(file) != before


def test_a_file_of_the_hubs_cache_is_called_as_its_blob(tmp_path):
    (tmp_path / "blobs").mkdir()
    for name in ("a" * 40, "a" * 64):
        (tmp_path / "blobs" / name).touch()
        (tmp_path / f"{name}.safetensors").symlink_to(tmp_path / "blobs" / name)
        assert fingerprint_file(tmp_path / f"{name}.safetensors") == name


def test_weights_changed_in_place_are_others_and_a_card_is_nothing(tmp_path):
    file = tmp_path / "vocab.txt"
    for source in (str(tmp_path), str(file), f"local-dir:{file}"):
        file.write_text("one")
        before = fingerprint_checkpoint(source)
        (tmp_path / "README.md").write_text(f"a card of {source}")
        assert fingerprint_checkpoint(source) == before
        file.write_text("two")
        assert fingerprint_checkpoint(source) != before


@pytest.mark.parametrize("named", ["backbone", "backbone/model.pt"])
def test_weights_that_the_configuration_names_count(tmp_path, named):
    folder, weights = tmp_path / "saved", tmp_path / "backbone" / "model.pt"
    folder.mkdir()
    weights.parent.mkdir()
    config = {"metric": "fleur", "_name_or_path": str(folder), "judge": {"source": str(tmp_path / named)}}
    config["prompt"] = "Rate the caption. " * 300  # too long for a name
    (folder / "config.json").write_text(json.dumps(config))
    weights.write_text("one")
    before = fingerprint_checkpoint(folder)
    weights.write_text("two")
    assert fingerprint_checkpoint(folder) != before


def test_a_hub_name_is_the_commit_that_it_stands_for(hub, tmp_path):
    named = b'{"metric": "length", "text": {"backbone": "somebody/llm"}}'
    backbone, own = hub.add_repo("somebody/llm", {}), hub.add_repo("somebody/metric", {"config.json": named})
    (tmp_path / "config.json").write_bytes(named)
    assert fingerprint_checkpoint("somebody/metric") == f"somebody/metric@{own};somebody/llm@{backbone}"
    moved = hub.add_repo("somebody/llm", {"config.json": b"{}"})
    assert moved in fingerprint_checkpoint("somebody/metric")
    assert moved in fingerprint_checkpoint(tmp_path)
    assert backbone in fingerprint_checkpoint("somebody/llm", revision=backbone)


def test_without_a_network_the_commit_is_the_one_downloaded_last(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    spec = metric_spec("length")
    assert metric_identity(spec, "somebody/length", revision="v1")["revision"] == "v1"
    refs = tmp_path / "models--somebody--length" / "refs"
    refs.mkdir(parents=True)
    (refs / "v1").write_text("a" * 40)
    assert metric_identity(spec, "somebody/length", revision="v1")["revision"] == "a" * 40


FILES = ("mymetric/__init__.py", "mymetric/scorer.py", "mymetric/settings.yaml")
ROOMS = ("metrics/a.py", "metrics/other/a.py", "metrics/unused/a.py", "backbones/a.py", "judges/a.py", "judges/a.yaml")
ROOMS += ("data/a.py", "scoring/runs.py", "cli/bench.py")


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A package of a metric and this one, each of a file a folder: gives the metric's code once a file has a text."""
    for name in (*FILES, *(f"reward/{name}" for name in ROOMS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(CODE)
    (tmp_path / "mymetric" / "formula.py").write_text("from reward.metrics.other.a import mean\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mymetric", raising=False)
    monkeypatch.setattr(reward, "__file__", str(tmp_path / "reward" / "__init__.py"))
    spec = replace(metric_spec("length"), name="mine", scorer="mymetric.scorer:Mine")

    def change(name, text):
        (tmp_path / name).write_text(text)
        return metric_identity(spec, "embedded")["code"]

    return change


CODE = """def mean(values):
    return sum(values) / len(values)
"""
# What changes no score, of any file of code.
UNCHANGED = {
    "comment": CODE.replace("len(values)", "len(values)  # never 0"),
    "docstring": CODE.replace(":\n", ':\n    """Their mean."""\n', 1),
    "docstring of the file": '"""Means."""\n' + CODE,
    "blank lines": "\n\n" + CODE.replace("    return", "\n    return"),
    "brackets": CODE.replace("sum(values) / len(values)", "(sum(values) / len(values))"),
}
CHANGED = CODE.replace("len(values)", "max(len(values), 1)")


@pytest.mark.parametrize("text", UNCHANGED.values(), ids=UNCHANGED)
def test_what_computes_nothing_changes_no_code(text, code):
    before = code("mymetric/scorer.py", CODE)
    for name in ("mymetric/scorer.py", "reward/data/a.py", "reward/metrics/other/a.py"):
        assert code(name, text) == before


@pytest.mark.parametrize("name", [*FILES, *(f"reward/{name}" for name in ROOMS)])
def test_a_line_of_code_that_computes_changes_it(name, code):
    computes = not name.startswith(("reward/scoring", "reward/cli", "reward/metrics/unused"))
    assert (code(name, CHANGED) != code(name, CODE)) == computes


IMPORTS = "from reward.data.a import mean\n\n\ndef score():\n    from reward.judges.a import mean\n"


@pytest.mark.parametrize(
    ("name", "counts"),
    {
        "metrics/other/a.py": True,
        "metrics/sentence_mean.py": True,  # any metric may be asked for the mean over sentences
        "data/a.py": True,
        "judges/a.py": True,
        "judges/a.yaml": True,
        "backbones/a.py": False,
        "metrics/a.py": False,
        "metrics/unused/a.py": False,
    }.items(),
)
def test_of_this_packages_code_a_metric_counts_with_what_it_imports(name, counts, code):
    other = replace(metric_spec("length"), scorer="reward.metrics.other.b:Other")
    code("reward/metrics/other/b.py", IMPORTS)
    code("reward/metrics/sentence_mean.py", CODE)
    before = metric_identity(other, "embedded")["code"]
    code(f"reward/{name}", CHANGED)
    assert (metric_identity(other, "embedded")["code"] != before) == counts


def cell(source, name):
    """What a cell of a notebook makes under a name: no file holds its source, but Python does."""
    file = f"<cell {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"__name__": "a_notebook"}
    exec(compile(source, file, "exec"), names)
    return names[name]


def of_a_notebook(result):
    return cell(f"class Mine:\n    def score(self):\n        return {result}", "Mine")()


LONG = "x" * 300  # of which the text of a pattern shows the beginning


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(3), np.arange(4)),
        (torch.arange(9).double(), torch.arange(9).double().flip(0)),  # the same values in other places
        ([re.compile(LONG + "a")], [re.compile(LONG + "b")]),
        ({"a": [1, [2]]}, {"a": [1, [3]]}),
        ({1, 2}, {1, 3}),
        (of_a_notebook(1), of_a_notebook(2)),
        (cell(CODE, "mean"), cell(CHANGED, "mean")),
        (partial(max, key=len), partial(max, key=str)),
        (partial(max, default=[1]), partial(max, default=[2])),
    ],
)
def test_equal_objects_have_equal_names(one, other):
    assert fingerprint_object(one) == fingerprint_object(one) != fingerprint_object(other)


@pytest.mark.slow
def test_the_use_of_a_tokenizer_makes_no_other_scorer(tmp_path):
    scorer = load_scorer("clipscore", small_clip(tmp_path / "clip"), device="cpu")
    fresh = scorer.fingerprint
    scorer.score([CaptionSample("An extraordinary starfish.", Image.new("RGB", (40, 40)))])
    assert is_told(fresh)
    assert scorer.fingerprint == fresh


SETTINGS = [(name, option) for name in list_metrics() for option in metric_options(metric_spec(name))]


@pytest.mark.parametrize(("name", "option"), SETTINGS)
def test_each_setting_of_a_metric_by_name_is_in_its_identity(name, option):
    names = [metric_identity(metric_spec(name), "embedded", options=options) for options in ({}, {option: "1"})]
    assert names[0] != names[1] != metric_identity(metric_spec(name), "embedded", options={option: "2"})
    assert names[1] == metric_identity(metric_spec(name), "embedded", options={option: "1"})


@pytest.mark.parametrize(
    ("name", "options"),
    [("vela", {"token_budget": 9}), ("vela", {"cache_size": "1MB"}), ("clair", {"concurrency": 3, "prices": [1, 2]})],
)
def test_what_changes_no_score_ends_no_run(name, options):
    assert Metrics.of(name, **options).identity == Metrics.of(name).identity


def test_a_file_that_a_setting_names_counts_by_its_content(tmp_path):
    prompt = tmp_path / "prompt.yaml"
    names = set()
    for text in ("rate: one", "rate: two", "rate: one"):
        prompt.write_text(text)
        names.add(str(metric_identity(metric_spec("fleur"), "embedded", options={"prompt": prompt})))
    assert len(names) == 2


def loaded(name, **settings):
    spec = metric_spec(name)
    if spec.sources == "judge":
        return spec.scorer_class()(ScriptedJudge(str), **settings)
    return load_scorer(name, device="cpu", **settings)


LOADED = [
    ("vela", {"dtype": "bfloat16"}),
    ("beitscore", {"dtype": "bfloat16"}),
    ("clipscore", {"dtype": "bfloat16"}),
    ("clipscore", {"prefix": "See: "}),
    ("refclipscore", {"prefix": "See: "}),
    ("fleur", {"use_references": False}),
    ("fleur", {"max_characters": 90}),
    ("fleur", {"seed": 7, "draws": 3, "temperature": 0.5}),
    ("fleur", {"explain": "before"}),
    ("harmoniceval", {"gamma": 0.5}),
    ("harmoniceval", {"criteria": ["fluency"]}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), LOADED)
def test_each_setting_of_a_loaded_scorer_is_in_its_fingerprint(name, settings):
    plain = loaded(name).fingerprint
    assert is_told(plain)
    assert loaded(name).fingerprint == plain
    assert loaded(name, **settings).fingerprint != plain


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vela", "beitscore", "clipscore"])
def test_weights_are_in_the_fingerprint_and_a_call_and_a_cache_are_not(name, tmp_path):
    scorer = loaded(name)
    before = scorer.fingerprint
    scorer.score([CaptionSample("A star.", Image.new("RGB", (40, 40)), ["A red star."])])
    if name != "beitscore":
        assert loaded(name, cache=tmp_path).fingerprint == before
    assert scorer.fingerprint == before
    names, weights = {before}, list(scorer.model.parameters())[::25]  # all are hashed by one rule
    for weight in weights:
        with torch.no_grad():
            weight.view(-1)[-1] += 1
        names.add(scorer.fingerprint)
    assert len(names) == 1 + len(weights)
