"""Checkpoints broken in every field and file: each loads and scores, or is a CheckpointError that names the place."""

from __future__ import annotations

import copy
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from reward.metrics.beitscore import load_beit3
from tests.toys.small_clip import small_clip
from tests.toys.toy_clips import toy_clip

pytestmark = pytest.mark.slow

ASSETS = Path(reward.__file__).parent / "assets"
GOLDEN = Path(__file__).parents[1] / "golden"
VALUES = ("big", None, -1, [1, "x"])
CONTENTS = {
    "emptied": b"",
    "other bytes": b"\x00\xffhello" * 20,
    "a page": b"<html>",
    "a list": b"[]",
    "a table": b"{}",
    "nested without end": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
}
MOST_MEMORY = 400  # MB above what is in use when a checkpoint is opened; the largest whole one takes about 50
SAMPLE = [CaptionSample("A red star.", Image.new("RGB", (96, 96)), ["A star."])]


USES: dict[str, Callable[[Path], Any]] = {
    "vela": lambda folder: load_scorer("vela", folder, device="cpu").score(SAMPLE),
    "beitscore": lambda folder: load_scorer("beitscore", folder, device="cpu").score(SAMPLE),
    "captioner": load_policy,  # what then fails in `generate` is told by transformers
    "clip": lambda folder: load_scorer("clipscore", folder, device="cpu").score(SAMPLE),
}
CONFIGS = {"clip": "open_clip_config.json"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The shipped checkpoints, and a small open_clip model."""
    return {name: ASSETS / name for name in USES} | {"clip": small_clip(tmp_path_factory.mktemp("clip"))}


def _broken(source: Path, target: Path, name: str, content: bytes | None) -> Path:
    """A folder of links to the files of a checkpoint, one of them replaced."""
    target.mkdir()
    for file in source.iterdir():
        if file.name != name:
            (target / file.name).symlink_to(file)
    if content is not None:
        (target / name).write_bytes(content)
    return target


def _fields(table: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        if key in ("descriptiveness", "fluency"):  # the prompts of relevance stand for all
            continue
        yield (*above, key)
        if isinstance(value, dict):
            yield from _fields(value, (*above, key))


def _with(table: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    found = inner = copy.deepcopy(table)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return found


def _memory(*, reset: bool = False) -> float:
    """Most memory in use since the last reset, MB; 0 where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0.0
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


def _verdict(kind: str, folder: Path, *places: str) -> str | None:
    """What is wrong with how a broken checkpoint ends; None where nothing is."""
    try:
        USES[kind](folder)
    except (CheckpointError, ConfigError) as error:
        if not any(place in str(error) for place in places):
            return f"names no place: {error}"
    except BaseException as error:
        return f"raw {type(error).__name__}: {error!s:.200}"
    return None


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    logging.disable(logging.CRITICAL)  # transformers warns of much that is tried here
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", USES)
def test_a_broken_field_is_named(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    source, config = folders[kind], CONFIGS.get(kind, "config.json")
    plain = json.loads((source / config).read_text())
    faults = []
    for number, path in enumerate(_fields(plain)):
        for value in VALUES:
            content = json.dumps(_with(plain, path, value)).encode()
            folder = _broken(source, tmp_path / f"{number} {VALUES.index(value)}", config, content)
            fault = _verdict(kind, folder, config, *path)
            if fault is not None:
                faults.append(f"{'.'.join(path)}={value!r}: {fault}")
    assert faults == []


@pytest.mark.parametrize("kind", USES)
def test_a_broken_file_is_named(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    source = folders[kind]
    faults = []
    for file in sorted(source.iterdir()):
        whole = file.read_bytes()
        contents = {"removed": None, "cut": whole[: len(whole) // 2], "cut short": whole[:-7], **CONTENTS}
        for number, (what, content) in enumerate(contents.items()):
            folder = _broken(source, tmp_path / f"{file.name} {number}", file.name, content)
            fault = _verdict(kind, folder, file.name, os.fspath(folder))
            if fault is not None:
                faults.append(f"{file.name} {what}: {fault}")
    assert faults == []


@pytest.mark.parametrize(
    ("kind", "path", "named"),
    [
        ("vela", ("text", "architecture", "hidden_size"), r"does not fit .*, not \(.*1000000"),
        ("vela", ("image", "architecture", "model_cfg", "embed_dim"), r"does not fit .*, not \(.*1000000"),
        ("beitscore", ("hidden_size",), r"does not fit .*, not \(.*1000000"),
        ("captioner", ("text_config", "vocab_size"), r"asks for a network of [\d,]+ numbers, but its weights are"),
    ],
)
def test_a_wrong_size_costs_no_memory(
    kind: str, path: tuple[str, ...], named: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    source, config = folders[kind], CONFIGS.get(kind, "config.json")
    content = json.dumps(_with(json.loads((source / config).read_text()), path, 1_000_000)).encode()
    folder = _broken(source, tmp_path / "broken", config, content)
    before = _memory(reset=True)
    with pytest.raises(CheckpointError, match=named):
        USES[kind](folder)
    assert _memory() - before < MOST_MEMORY


def test_layers_that_a_configuration_leaves_out_are_not_dropped(folders: dict[str, Path], tmp_path: Path) -> None:
    """transformers only warns of the weights of a second layer where the configuration has one."""
    source = folders["captioner"]
    for number, tower in enumerate(("text_config", "vision_config")):
        plain = _with(json.loads((source / "config.json").read_text()), (tower, "num_hidden_layers"), 1)
        folder = _broken(source, tmp_path / str(number), "config.json", json.dumps(plain).encode())
        with pytest.raises(CheckpointError, match=r"weights that .* has no place for .*layers\.1"):
            load_policy(folder)


@pytest.mark.parametrize("metric", ["vela", "beitscore", "clipscore"])
def test_a_device_or_format_that_is_none_is_named_before_anything_is_read(metric: str) -> None:
    for device in ("gpu9", "cuda:99", 1.5):
        with pytest.raises(ConfigError, match=f"device .*{device}"):
            load_scorer(metric, "name/absent", device=device)
    for dtype in ("float99", "int8", "cuda", 7):
        with pytest.raises(ConfigError, match="dtype must be such as"):
            load_scorer(metric, "name/absent", dtype=dtype)


LOADS: dict[str, tuple[Path, Callable[[Path], Any]]] = {
    "vela": (ASSETS / "vela" / "model.safetensors", lambda file: USES["vela"](file.parent)),
    "beitscore": (ASSETS / "beitscore" / "model.safetensors", lambda file: USES["beitscore"](file.parent)),
    "captioner": (ASSETS / "captioner" / "model.safetensors", lambda file: load_policy(file.parent)),
    "Long-CLIP": (GOLDEN / "longclip_tiny_weights.safetensors", load_clip),
    "BEiT-3": (GOLDEN / "beit3_tiny_weights.safetensors", load_beit3),
}


WRONG: dict[str, tuple[Callable[[dict[str, torch.Tensor], str], Any], str]] = {
    "a key is missing": (lambda tensors, key: tensors.pop(key), "(lacks|Missing).*KEY"),
    "a key too many": (
        lambda tensors, key: tensors.update({f"{key}.more": torch.zeros(2)}),
        "(unknown|no place|Unexpected).*more",
    ),
    "another shape": (lambda tensors, key: tensors.update({key: torch.zeros(3, 7)}), "mis-shaped|mismatch|cannot be"),
    "integers": (
        lambda tensors, key: tensors.update({key: tensors[key].to(torch.int8)}),
        "integers .*KEY is .*Quantised",
    ),
    "bits": (lambda tensors, key: tensors.update({key: tensors[key] > 0}), "integers .*KEY is .*Quantised"),
}


@pytest.mark.parametrize("kind", [*LOADS, "open_clip", "CLIP of transformers", "BERT", "BERT, PyTorch file"])
def test_weights_that_do_not_fit_are_refused_and_named(kind: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    if kind == "open_clip":
        source, load = small_clip(whole) / "open_clip_model.safetensors", lambda file: load_clip(file.parent)
    elif kind == "CLIP of transformers":
        source, load = toy_clip(whole) / "model.safetensors", lambda file: load_clip(file.parent)
    elif kind in LOADS:
        source, load = LOADS[kind]
    else:
        sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
        BertModel(BertConfig(vocab_size=9, **sizes)).save_pretrained(whole)
        source = whole / "model.safetensors"
        load = lambda file: load_network(file.parent, BertModel, "BERT")  # noqa: E731
    with safe_open(source, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(source)
    if kind.startswith("BERT"):
        tensors["embeddings.position_ids"] = torch.arange(512)[None]  # older files have it, and no network asks for it
    matrices = [key for key, value in tensors.items() if value.ndim == 2 and value.is_floating_point()]
    key = next(key for key in matrices if re.search(r"layers?\.0|resblocks\.0", key))
    for number, (wrong, (change, message)) in enumerate({"": (lambda *_: None, ""), **WRONG}.items()):
        folder = tmp_path / str(number)
        target, changed = _broken(source.parent, folder, source.name, None) / source.name, dict(tensors)
        change(changed, key)
        if kind.endswith("file"):
            torch.save(changed, folder / "pytorch_model.bin")
        else:
            save_file({name: value.contiguous() for name, value in changed.items()}, target, metadata)
        if not wrong or (wrong == "a key too many" and kind.startswith("BERT")):  # heads that it does not need
            load(target)
            continue
        end = re.escape(".".join(key.split(".")[-3:]))  # of transformers' names, some begin otherwise in a file
        with pytest.raises(CheckpointError, match=f"(?s){message.replace('KEY', end)}"):
            load(target)


def test_an_old_single_file_beside_new_shards_is_refused(tmp_path: Path) -> None:
    """transformers leaves the file when it saves shards, and would read it."""
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(**sizes, intermediate_size=32))
    model.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path, max_shard_size="5KB")
    with pytest.raises(CheckpointError, match=r"two sets of weights, model\.safetensors and .* delete"):
        load_network(tmp_path, BertModel, "BERT")
    for shard in tmp_path.glob("model-*"):
        shard.unlink()  # as when one file is saved over shards: their index stays
    load_network(tmp_path, BertModel, "BERT")
