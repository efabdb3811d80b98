"""Checkpoints broken in every field and file: each loads and scores, or is a CheckpointError that names the place."""

import copy
import json
import logging
import os
import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

import reward
from integrations.trl import load_policy
from reward import CaptionSample, load_scorer
from reward.backbones.clip_loading import load_clip
from reward.backbones.pretrained import load_network
from reward.errors import CheckpointError, ConfigError
from reward.metrics.beitscore.checkpoint import load_beit3
from tests.toys.toy_clips import small_clip, toy_clip

pytestmark = pytest.mark.slow

ASSETS = Path(reward.__file__).parent / "assets"
GOLDEN = Path(__file__).parents[2] / "golden"
LONG_CLIP, BEIT3 = "longclip_tiny_weights.safetensors", "beit3_tiny_weights.safetensors"
CONTENTS = {
    "emptied": b"",
    "a page": b"<html>",
    "a table": b"{}",
    "nested without end": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
}
SAMPLE = [CaptionSample("A red star.", Image.new("RGB", (96, 96)), ["A star."])]
USES = {
    "vela": lambda folder: load_scorer("vela", folder, device="cpu").score(SAMPLE),
    "beitscore": lambda folder: load_scorer("beitscore", folder, device="cpu").score(SAMPLE),
    "captioner": load_policy,  # what then fails in `generate` is told by transformers
    "clip": lambda folder: load_scorer("clipscore", folder, device="cpu").score(SAMPLE),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {name: ASSETS / name for name in USES} | {"clip": small_clip(tmp_path_factory.mktemp("clip"))}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    logging.disable(logging.CRITICAL)  # transformers warns of much that is tried here
    yield
    logging.disable(logging.NOTSET)


def config_of(folder):
    """The name of a folder's configuration, and what is in it."""
    name = "open_clip_config.json" if (folder / "open_clip_config.json").is_file() else "config.json"
    return name, json.loads((folder / name).read_text())


def broken(source, target, name, content):
    """A folder of links to the files of a checkpoint, one of them replaced, or removed."""
    target.mkdir()
    for file in source.iterdir():
        if file.name != name:
            (target / file.name).symlink_to(file)
    if content is not None:
        (target / name).write_bytes(content)
    return target


def fields(table, above=()):
    for key, value in table.items():
        if key in ("descriptiveness", "fluency"):  # the prompts of relevance stand for all
            continue
        yield (*above, key)
        if isinstance(value, dict):
            yield from fields(value, (*above, key))


def changed(table, path, value):
    found = inner = copy.deepcopy(table)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(found).encode()


def fault(kind, folder, *places):
    """What is wrong with how a broken checkpoint ends; None where nothing is."""
    try:
        USES[kind](folder)
    except (CheckpointError, ConfigError) as error:
        if not any(place in str(error) for place in places):
            return f"names no place: {error}"
    except BaseException as error:
        return f"raw {type(error).__name__}: {error!s:.200}"
    return None


@pytest.mark.parametrize("kind", USES)
def test_a_broken_field_is_named(kind, folders, tmp_path):
    config, plain = config_of(folders[kind])
    faults = {}
    for number, (path, value) in enumerate((path, value) for path in fields(plain) for value in ("big", None, -1)):
        folder = broken(folders[kind], tmp_path / str(number), config, changed(plain, path, value))
        faults[(*path, value)] = fault(kind, folder, config, *path)
    assert len(faults) > 20
    assert {place: what for place, what in faults.items() if what is not None} == {}


@pytest.mark.parametrize("kind", USES)
def test_a_broken_file_is_named(kind, folders, tmp_path):
    faults = {}
    for file in sorted(folders[kind].iterdir()):
        whole = file.read_bytes()
        contents = {"removed": None, "cut": whole[: len(whole) // 2], "cut short": whole[:-7], **CONTENTS}
        for what, content in contents.items():
            folder = broken(folders[kind], tmp_path / f"{file.name} {what}", file.name, content)
            faults[file.name, what] = fault(kind, folder, file.name, os.fspath(folder))
    assert {place: what for place, what in faults.items() if what is not None} == {}


@pytest.mark.parametrize(
    ("kind", "path", "value", "named"),
    [
        # no machine has the memory for such a network, so none may be built before its weights are compared
        ("vela", ("text", "architecture", "hidden_size"), 10**9, "does not fit .*1000000000"),
        ("vela", ("image", "architecture", "model_cfg", "embed_dim"), 10**9, "does not fit .*1000000000"),
        ("beitscore", ("hidden_size",), 10**9, "does not fit .*1000000000"),
        ("captioner", ("text_config", "vocab_size"), 10**9, r"a network of [\d,]+ numbers, but its weights are"),
        # transformers only warns of the weights of a second layer where the configuration has one
        ("captioner", ("text_config", "num_hidden_layers"), 1, r"weights that .* has no place for .*layers\.1"),
        ("captioner", ("vision_config", "num_hidden_layers"), 1, r"weights that .* has no place for .*layers\.1"),
    ],
)
def test_a_configuration_of_another_size_is_told_before_the_network_is_built(
    kind, path, value, named, folders, tmp_path
):
    config, plain = config_of(folders[kind])
    folder = broken(folders[kind], tmp_path / "broken", config, changed(plain, path, value))
    with pytest.raises(CheckpointError, match=named):
        USES[kind](folder)


def bert():
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    return BertModel(BertConfig(**sizes, intermediate_size=8))


def save_bert(folder):
    """A PyTorch file of weights, with a key that older files have and no network asks for."""
    bert().config.save_pretrained(folder)
    torch.save({**bert().state_dict(), "embeddings.position_ids": torch.arange(512)}, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def load_bert(folder):
    return load_network(folder, BertModel, "BERT")


# {kind: where its weights are, given an empty folder; and what loads the folder of that file}
KINDS = {
    **{name: (lambda _, name=name: ASSETS / name / "model.safetensors", USES[name]) for name in list(USES)[:3]},
    "open_clip": (lambda folder: small_clip(folder) / "open_clip_model.safetensors", load_clip),
    "transformers": (lambda folder: toy_clip(folder) / "model.safetensors", load_clip),
    "Long-CLIP": (lambda _: GOLDEN / LONG_CLIP, lambda folder: load_clip(folder / LONG_CLIP)),
    "BEiT-3": (lambda _: GOLDEN / BEIT3, lambda folder: load_beit3(folder / BEIT3)),
    "BERT": (save_bert, load_bert),
}
# {what is wrong: what is put in place of a tensor, under its name or one more; and how that is told}
WRONG = {
    "missing": (lambda key, value: {key: None}, "(lacks|Missing).*KEY"),
    "unknown": (lambda key, value: {f"{key}.more": torch.zeros(2)}, "(unknown|no place|Unexpected).*more"),
    "another shape": (lambda key, value: {key: torch.zeros(3, 7)}, "mis-shaped|mismatch|cannot be"),
    "integers": (lambda key, value: {key: value.to(torch.int8)}, "integers .*KEY is .*Quantised"),
    "bits": (lambda key, value: {key: value > 0}, "integers .*KEY is .*Quantised"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_do_not_fit_are_refused_and_named(kind, tmp_path):
    find, load = KINDS[kind]
    source = find(tmp_path / "whole")
    load(source.parent)
    tensors = torch.load(source) if kind == "BERT" else load_file(source)
    metadata = None if kind == "BERT" else safe_open(source, "pt").metadata()
    matrices = [name for name, value in tensors.items() if value.ndim == 2 and value.is_floating_point()]
    key = next(name for name in matrices if re.search(r"layers?\.0|resblocks\.0", name))
    end = re.escape(".".join(key.split(".")[-3:]))  # of transformers' names, some begin otherwise in a file
    for wrong, (change, message) in WRONG.items():
        given = {name: value for name, value in {**tensors, **change(key, tensors[key])}.items() if value is not None}
        folder = broken(source.parent, tmp_path / wrong, source.name, None)
        torch.save(given, folder / source.name) if kind == "BERT" else save_file(given, folder / source.name, metadata)
        if wrong == "unknown" and kind == "BERT":  # heads that it does not need
            load(folder)
            continue
        with pytest.raises(CheckpointError, match=f"(?s){message.replace('KEY', end)}"):
            load(folder)


def test_an_old_single_file_beside_new_shards_is_refused(tmp_path):
    """transformers leaves the file when it saves shards, and would read it."""
    bert().save_pretrained(tmp_path)
    bert().save_pretrained(tmp_path, max_shard_size="1KB")
    with pytest.raises(CheckpointError, match=r"two sets of weights, model\.safetensors and .* delete"):
        load_bert(tmp_path)
    for shard in tmp_path.glob("model-*"):
        shard.unlink()  # as when one file is saved over shards: their index stays
    load_bert(tmp_path)
