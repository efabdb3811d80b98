"""Checkpoint folders: found, read strictly, written all or nothing, fetched from the Hub and pushed to it."""

import errno
import os
import pickle
import shutil
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from huggingface_hub import constants
from torch import nn

from reward.checkpoints.folders import read_config, resolve_checkpoint, save_checkpoint, unsharded_loading
from reward.checkpoints.publishing import HUB_ID, check_push, push_checkpoint
from reward.checkpoints.weight_files import load_tensors
from reward.errors import CheckpointError


def save_toy(folder, value=1.0, **tokenizer):
    def write_tokenizer(into):
        for name, text in tokenizer.items():
            (into / f"{name}.json").write_text(text)

    config, tensors = {"metric": "toy", "value": value}, {"w": torch.full((2, 3), value)}
    save_checkpoint(folder, config=config, tensors=tensors, card="# Toy", write_tokenizer=write_tokenizer)
    return folder


def held_value(folder):
    """The value of the checkpoint in a folder; config and tensors must agree on it."""
    value = float(read_config(folder, metric="toy")["value"])
    assert load_tensors(folder / "model.safetensors")["w"].tolist() == [[value] * 3] * 2
    return value


@pytest.mark.parametrize(
    ("source", "revision", "message"),
    [
        *[(path, None, "toy checkpoint folder .* does not exist") for path in ("./absent", "a/b/c", Path("absent"))],
        ("there/absent", None, "does not exist; a folder 'there' is here, so it counts as a path"),
        ("embedded", None, "no toy checkpoint is shipped"),
        ("./model.safetensors", None, "is a file; give the folder"),
        (".", "v1", "revision='v1' needs a Hub id"),
        ("no such id!", None, "no folder .* here, and it is no valid Hub id"),
        # conftest points the client at a closed port
        ("a/toy", "v2", r"(?s)no folder 'a/toy' here.*a/toy at revision v2.*cannot be reached.*hf download a/toy"),
    ],
)
def test_what_is_not_there_is_told(source, revision, message, tmp_path, monkeypatch):
    save_toy(tmp_path)
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        resolve_checkpoint(source, model="toy", revision=revision)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"metric": "vela"}', "checkpoint of metric 'vela', but a checkpoint of 'toy' is needed"),
        ('{"architectures": ["Qwen2ForCausalLM"]}', "of no metric of this library"),
        ("[1, 2]", "must hold a JSON object, got list"),
        (None, r"not a toy checkpoint: it has no config\.json"),
    ],
)
def test_other_files_named_config_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_config(tmp_path, metric="toy")


def test_safetensors_and_pytorch_files_give_the_same_tensors(tmp_path):
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    safetensors.torch.save_file(tensors, tmp_path / "w.safetensors")
    torch.save(tensors, tmp_path / "w.pt")
    torch.save({"epoch": 3, "model": OrderedDict(tensors)}, tmp_path / "w.pth")
    torch.save({"state_dict": tensors}, tmp_path / "w.bin", _use_new_zipfile_serialization=False)
    for path in tmp_path.iterdir():
        loaded = load_tensors(path)
        assert loaded.keys() == tensors.keys(), path
        assert all(torch.equal(loaded[key], tensors[key]) for key in tensors), path
        assert load_tensors(path, begin="b").keys() == {"b"}, path


class RunsCode:
    """Unpickling this makes a folder, as a hostile file would do worse."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path):
    content = {"w": RunsCode(tmp_path / "made by the pickle")}
    torch.save(content, tmp_path / "a.pt")
    (tmp_path / "b.bin").write_bytes(pickle.dumps(content))
    for name in ("a.pt", "b.bin"):
        with pytest.raises(CheckpointError, match="refused because loading it could run code"):
            load_tensors(tmp_path / name)
    assert not (tmp_path / "made by the pickle").exists()


def test_files_without_tensors_are_refused(tmp_path):
    torch.save({"w": torch.ones(1000)}, tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    for name, content in {"cut.pt": whole[:500], "short.pt": whole[:-100], "page.pt": b"<html>", "w.npz": b""}.items():
        (tmp_path / name).write_bytes(content)
    torch.save([torch.ones(1)], tmp_path / "list.pt")
    torch.save({"w": torch.ones(1), "step": 3}, tmp_path / "mixed.pt")
    for name, message in {
        **dict.fromkeys(("cut.pt", "short.pt", "page.pt"), r"not a readable PyTorch file|is damaged"),
        **dict.fromkeys(("list.pt", "mixed.pt"), "does not hold a dict of tensors"),
        **dict.fromkeys(("absent.safetensors", "absent.pt"), "does not exist"),
        "w.npz": r"unknown suffix; known: \.safetensors",
    }.items():
        with pytest.raises(CheckpointError, match=f"{name}.*({message})"):
            load_tensors(tmp_path / name)


def test_tied_sliced_and_transposed_tensors_are_saved_whole(tmp_path):
    base, folder = torch.arange(12.0).reshape(3, 4), tmp_path / "new" / "folder"
    tensors = {"a": base, "tied": base, "slice": base[1], "turned": base.T, "leaf": nn.Parameter(torch.ones(2))}
    save_checkpoint(folder, config={"metric": "toy", "é": 1}, tensors=tensors, card="# Käse")
    loaded = load_tensors(folder / "model.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[key], tensors[key]) for key in tensors)
    assert read_config(folder, metric="toy") == {"metric": "toy", "é": 1}
    assert (folder / "README.md").read_text(encoding="utf-8") == "# Käse"


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    def full_disk(tensors, path, **options):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    save_toy(tmp_path, 1.0, tokenizer="old")
    monkeypatch.setattr(safetensors.torch, "save_file", full_disk)
    with pytest.raises(CheckpointError, match=r"cannot be written: .*No space left"):
        save_toy(tmp_path, 2.0)
    assert held_value(tmp_path) == 1.0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]


def killed_at(count, original, done):
    """The function, but the call number `count` of all that share `done` ends the process instead."""

    def call(*arguments, **options):
        done.append(original)
        if len(done) == count:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    return call


@pytest.mark.parametrize("there", [True, False])
def test_a_crash_never_leaves_a_new_tokenizer_beside_old_weights(there, tmp_path, monkeypatch):
    """Whatever write fails: the files that are read are all old or all new, or the folder is refused."""
    folder, found = tmp_path / "toy", []
    for count in range(1, 20):
        shutil.rmtree(folder, ignore_errors=True)
        if there:
            save_toy(folder, 1.0, tokenizer="old", added_tokens="old")
            (folder / "training.json").touch()
        done = []
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            for name in ("replace", "unlink", "write_text"):
                patch.setattr(Path, name, killed_at(count, getattr(Path, name), done))
            save_toy(folder, 2.0, tokenizer="new")
        with suppress(CheckpointError):
            found.append(held_value(folder))
            texts = {file.stem: file.read_text() for file in folder.glob("*token*")}
            assert texts == ({"tokenizer": "old", "added_tokens": "old"} if found[-1] == 1 else {"tokenizer": "new"})
    assert (found[-1], len(done) < count) == (2.0, True)
    assert (folder / "training.json").exists() == there
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_push_then_resolve_gives_the_same_checkpoint(tmp_path, hub):
    local = save_toy(tmp_path / "local", 3.0)
    (local / "setup.py").write_text("raise SystemExit")
    save_toy(local / "stages" / "1a")
    (local / "README.md").write_text(f'load_scorer("toy", "{HUB_ID}")')
    address = push_checkpoint(local, "someone/toy", private=True, commit_message="First")
    assert address.startswith(hub.endpoint)
    assert sorted(hub.files("someone/toy")) == [".gitattributes", "README.md", "config.json", "model.safetensors"]
    assert hub.files("someone/toy")["README.md"] == b'load_scorer("toy", "someone/toy")'
    push_checkpoint(save_toy(local, 4.0), "someone/toy", revision="next")
    assert held_value(resolve_checkpoint("someone/toy", model="toy", revision="next")) == 4.0
    assert held_value(resolve_checkpoint("someone/toy", model="toy")) == 3.0
    with pytest.raises(CheckpointError, match=r"refuses someone/toy at revision absent: .*Revision Not Found"):
        resolve_checkpoint("someone/toy", model="toy", revision="absent")
    with pytest.raises(CheckpointError, match=r"the Hub refuses someone/absent: .*Repository Not Found"):
        resolve_checkpoint("someone/absent", model="toy")


def test_only_what_the_checkpoint_needs_is_fetched_and_outlives_the_hub(tmp_path, hub, monkeypatch):
    needed = {file.name: file for file in save_toy(tmp_path / "toy", 6.0).iterdir()}
    needed |= dict.fromkeys(("model-00001-of-00002.safetensors", "adapter_model.safetensors", "merges.txt"), b"1")
    names = ("consolidated.safetensors", "optimizer.safetensors", "model.fp16.safetensors", "code.py", "model.pt")
    below = ("checkpoint-5/model.safetensors", "original/config.json", "a/b/model.safetensors")
    hub.add_repo("someone/large", needed | dict.fromkeys((*names, *below), b"1"))
    folder = resolve_checkpoint("someone/large", model="toy")
    assert {str(file.relative_to(folder)) for file in folder.rglob("*")} == set(needed)
    hub.endpoint = os.environ["HF_ENDPOINT"]  # where nothing listens
    hub.point_client(monkeypatch, Path(constants.HF_HUB_CACHE))
    assert held_value(resolve_checkpoint("someone/large", model="toy")) == 6.0
    with pytest.raises(CheckpointError, match="cannot be uploaded to someone/kept"):
        push_checkpoint(tmp_path / "toy", "someone/kept")


@pytest.mark.parametrize("before", ["true", None])
def test_sharded_loading_is_off_inside_and_back_after(before, monkeypatch):
    from transformers.integrations import deepspeed

    name, config = "FSDP_CPU_RAM_EFFICIENT_LOADING", Mock(is_zero3=lambda: True)
    monkeypatch.delenv(name, raising=False) if before is None else monkeypatch.setenv(name, before)
    deepspeed.set_hf_deepspeed_config(config)
    try:
        with suppress(KeyError), unsharded_loading():
            assert (os.environ[name], deepspeed.is_deepspeed_zero3_enabled()) == ("false", False)
            raise KeyError
        assert (os.environ.get(name), deepspeed.is_deepspeed_zero3_enabled()) == (before, True)
    finally:
        deepspeed.unset_hf_deepspeed_config()


def test_a_repository_is_made_once_and_kept(hub):
    check_push("tester/mine", private=True)
    check_push("tester/mine", private=True)  # as a resumed training does
    assert list(hub.files("tester/mine")) == [".gitattributes"]
    check_push("tester/open")
    with pytest.raises(CheckpointError, match="tester/open in private: it exists and is public; take another name"):
        check_push("tester/open", private=True)


@pytest.mark.parametrize(
    ("name", "token", "offline", "message"),
    [
        ("mine", "right", False, "write ORG/NAME, with your name or an organisation's first"),
        ("tester/mine/photos", "right", False, "Repo id must be in the form"),
        ("closed/new", "right", False, "You don't have the rights to create a model under this namespace"),
        ("tester/mine", "wrong", False, "log in with `hf auth login`"),
        ("tester/mine", "right", True, "the network, HF_ENDPOINT and HF_HUB_OFFLINE"),
    ],
)
def test_what_is_in_the_way_is_told(name, token, offline, message, hub, monkeypatch):
    hub.token, hub.closed = "right", {"closed"}
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(CheckpointError, match=f"cannot push to '?{name}'?: .*{message}"):
        check_push(name)
