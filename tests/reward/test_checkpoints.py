"""Checkpoint folders: nothing loaded that does not fit, nothing half-written taken for whole; what names weights."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from huggingface_hub import constants
from torch import nn

from reward import checkpoints
from reward.checkpoints import (
    read_config,
    resolve_checkpoint,
    save_checkpoint,
    unsharded_loading,
)
from reward.errors import CheckpointError
from reward.fingerprints import fingerprint_source
from reward.publishing import HUB_ID, push_checkpoint
from reward.weight_files import load_strict, load_tensors
from tests.toys.loopback_hub import LoopbackHub


def save_toy(folder: Path, value: float = 1.0) -> None:
    save_checkpoint(
        folder, config={"metric": "toy", "value": value}, tensors={"w": torch.full((2, 3), value)}, card="# Toy"
    )


def held_value(folder: Path) -> float:
    """The value of the checkpoint in a folder; config and tensors must agree on it."""
    value = float(read_config(folder, metric="toy")["value"])
    assert load_tensors(folder / "model.safetensors")["w"].tolist() == [[value] * 3] * 2
    return value


class TestResolve:
    def test_folders_and_embedded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert resolve_checkpoint(tmp_path, metric="toy") == resolve_checkpoint(str(tmp_path), metric="toy") == tmp_path
        monkeypatch.setattr(checkpoints, "_ASSETS", tmp_path)
        with pytest.raises(CheckpointError, match="no toy checkpoint is shipped"):
            resolve_checkpoint("embedded", metric="toy")
        save_toy(tmp_path / "toy")
        assert resolve_checkpoint("embedded", metric="toy") == tmp_path / "toy"

    @pytest.mark.timeout(60)
    @pytest.mark.parametrize(
        ("source", "revision", "message"),
        [
            *(  # and are not looked for on the Hub
                (folder, None, "toy checkpoint folder .* does not exist")
                for folder in ("./absent", "../absent", "/absent/it", "a/b/c", "there/absent", Path("absent"))
            ),
            ("./model.safetensors", None, "is a file; give the folder"),
            (".", "v1", "revision='v1' needs a Hub id"),
            ("no such id!", None, "no folder .* here, and it is no valid Hub id"),
            # conftest points the client at a closed port
            (
                "a/toy",
                "v2",
                r"(?s)no folder 'a/toy' here.*a/toy at revision v2.*Hub cannot be reached.*hf download a/toy",
            ),
        ],
    )
    def test_what_is_not_there_is_told(
        self, source: str | Path, revision: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_toy(tmp_path)
        (tmp_path / "there").mkdir()
        monkeypatch.chdir(tmp_path)
        with pytest.raises(CheckpointError, match=message):
            resolve_checkpoint(source, metric="toy", revision=revision)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"metric": "vela"}', "checkpoint of metric 'vela', but a checkpoint of 'toy' is needed"),
        (b'{"architectures": ["Qwen2ForCausalLM"]}', "of no metric of this library"),
        (b"[1, 2]", "must hold a JSON object, got list"),
        (b'{"metric": ', "not valid JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested"),
        (None, r"not a toy checkpoint: it has no config\.json"),
    ],
)
def test_other_files_named_config_are_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_config(tmp_path, metric="toy")


class RunsCode:
    """Unpickling this makes a folder, as a hostile file would do worse."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


class TestTensors:
    def test_safetensors_and_pytorch_files_give_the_same_tensors(self, tmp_path: Path) -> None:
        tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
        safetensors.torch.save_file(tensors, tmp_path / "w.safetensors")
        torch.save(tensors, tmp_path / "w.pt")
        torch.save({"epoch": 3, "model": OrderedDict(tensors)}, tmp_path / "w.pth")
        torch.save({"state_dict": tensors}, tmp_path / "w.bin", _use_new_zipfile_serialization=False)
        for name in ("w.safetensors", "w.pt", "w.pth", "w.bin"):
            loaded = load_tensors(tmp_path / name)
            assert loaded.keys() == tensors.keys(), name
            assert all(torch.equal(loaded[key], tensors[key]) for key in tensors), name

    def test_a_pickle_with_code_is_refused_and_not_run(self, tmp_path: Path) -> None:
        for name, write in (("a.pt", torch.save), ("b.bin", lambda value, path: path.write_bytes(pickle.dumps(value)))):
            write({"w": RunsCode(tmp_path / "made by the pickle")}, tmp_path / name)
            with pytest.raises(CheckpointError, match="refused because loading it could run code"):
                load_tensors(tmp_path / name)
        assert not (tmp_path / "made by the pickle").exists()

    @pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
    def test_damaged_and_empty_files_are_refused(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        save = torch.save if name.endswith("pt") else safetensors.torch.save_file
        save({"w": torch.ones(1000)}, path)
        whole = path.read_bytes()
        for content in (whole[:500], whole[:-100], b"", b"<html>Not found</html>"):
            path.write_bytes(content)
            with pytest.raises(CheckpointError, match=r"w\."):
                load_tensors(path)

    def test_missing_files_unknown_suffixes_and_other_contents(self, tmp_path: Path) -> None:
        (tmp_path / "w.npz").touch()
        torch.save([torch.ones(1)], tmp_path / "list.pt")
        torch.save({"w": torch.ones(1), "step": 3}, tmp_path / "mixed.pt")
        for name, message in (
            ("w.safetensors", "does not exist"),
            ("w.npz", r"unknown suffix; known: \.safetensors"),
            ("list.pt", "does not hold a dict of tensors"),
            ("mixed.pt", "does not hold a dict of tensors"),
        ):
            with pytest.raises(CheckpointError, match=message):
                load_tensors(tmp_path / name)


class TestLoadStrict:
    def test_a_fitting_dict_fills_a_module_that_has_storage_and_keeps_its_dtype(self) -> None:
        tensors = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
        module = nn.Linear(3, 2).half()
        load_strict(module, tensors, where="toy checkpoint")
        assert module.weight.tolist() == [[1.0] * 3] * 2
        assert module.weight.dtype == torch.float16
        with pytest.raises(CheckpointError, match=r"no memory for 2 keys \(weight, bias\)"):
            load_strict(nn.Linear(3, 2, device="meta"), tensors, where="toy checkpoint")

    def test_missing_extra_and_mis_shaped_keys_are_all_told_at_once_and_nothing_changes(self) -> None:
        module = nn.Sequential(*(nn.Linear(3, 2) for _ in range(5)))
        before = {key: value.clone() for key, value in module.state_dict().items()}
        tensors = {"0.weight": torch.ones(2, 4), "0.bias": torch.ones(2), "extra": torch.ones(1)}
        faults = (
            "toy checkpoint lacks 8 keys (1.weight, 1.bias, 2.weight, 2.bias, 3.weight, and 3 more)",
            "has unknown 1 key (extra)",
            "has mis-shaped 1 key (0.weight is (2, 4), not (2, 3))",
        )
        with pytest.raises(CheckpointError, match=".*".join(map(re.escape, faults))):
            load_strict(module, tensors, where="toy checkpoint")
        assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())


class TestSave:
    def test_round_trip_with_tied_sliced_and_transposed_tensors(self, tmp_path: Path) -> None:
        base = torch.arange(12.0).reshape(3, 4)
        tensors = {"a": base, "tied": base, "slice": base[1], "turned": base.T, "leaf": nn.Parameter(torch.ones(2))}
        save_checkpoint(tmp_path / "new" / "folder", config={"metric": "toy", "é": 1}, tensors=tensors, card="# Käse")
        loaded = load_tensors(tmp_path / "new" / "folder" / "model.safetensors")
        assert loaded.keys() == tensors.keys()
        assert all(torch.equal(loaded[key], tensors[key]) for key in tensors)
        assert read_config(tmp_path / "new" / "folder", metric="toy") == {"metric": "toy", "é": 1}
        assert (tmp_path / "new" / "folder" / "README.md").read_text(encoding="utf-8") == "# Käse"

    def test_saving_again_replaces_all_or_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        save_toy(tmp_path, 1.0)
        (tmp_path / "tokenizer.json").write_text("{}")
        save_toy(tmp_path, 2.0)
        assert held_value(tmp_path) == 2.0

        def full_disk(tensors: Any, path: Path, **options: Any) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(safetensors.torch, "save_file", full_disk)
        with pytest.raises(CheckpointError, match=r"cannot be written: .*No space left"):
            save_toy(tmp_path, 3.0)
        assert held_value(tmp_path) == 2.0
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]

    @pytest.mark.parametrize("there", [True, False])
    def test_a_crash_never_leaves_a_new_tokenizer_beside_old_weights(
        self, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever write fails: the files that are read are all old or all new, or the folder is refused."""
        folder = tmp_path / "toy"

        def save(value: float, **files: str) -> None:
            def write_tokenizer(into: Path) -> None:
                for name, text in files.items():
                    (into / f"{name}.json").write_text(text)

            config, tensors = {"metric": "toy", "value": value}, {"w": torch.full((2, 3), value)}
            save_checkpoint(folder, config=config, tensors=tensors, card="", write_tokenizer=write_tokenizer)

        for crash_at in range(20):
            shutil.rmtree(folder, ignore_errors=True)
            if there:
                save(1.0, tokenizer="old", added_tokens="old")
                (folder / "training.json").touch()
            steps = iter(range(20))

            def step(original: Any, *paths: Any, at: int = crash_at, steps: Any = steps, **options: Any) -> Any:
                if next(steps) == at:
                    raise KeyboardInterrupt
                return original(*paths, **options)

            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                for name in ("replace", "unlink", "write_text"):
                    original = getattr(Path, name)
                    patch.setattr(Path, name, lambda *a, original=original, **k: step(original, *a, **k))
                save(2.0, tokenizer="new")
            try:
                value = held_value(folder)
            except CheckpointError:
                continue
            texts = {file.stem: file.read_text() for file in folder.glob("*token*")}
            assert texts == ({"tokenizer": "old", "added_tokens": "old"} if value == 1 else {"tokenizer": "new"})
        assert value == 2
        assert (folder / "training.json").exists() == there
        assert not list(tmp_path.glob(".*"))


class TestHub:
    @pytest.mark.slow
    def test_push_then_resolve_gives_the_same_checkpoint(self, tmp_path: Path, hub: LoopbackHub) -> None:
        (tmp_path / "local").mkdir()
        save_toy(tmp_path / "local", 3.0)
        (tmp_path / "local" / "setup.py").write_text("raise SystemExit")
        save_toy(tmp_path / "local" / "stages" / "1a")
        (tmp_path / "local" / "README.md").write_text(f'load_scorer("toy", "{HUB_ID}")')
        address = push_checkpoint(tmp_path / "local", "someone/toy", private=True, commit_message="First")
        assert address.startswith(hub.endpoint)
        assert sorted(hub.files("someone/toy")) == [".gitattributes", "README.md", "config.json", "model.safetensors"]
        assert hub.files("someone/toy")["README.md"] == b'load_scorer("toy", "someone/toy")'
        folder = resolve_checkpoint("someone/toy", metric="toy")
        assert held_value(folder) == 3.0
        save_toy(tmp_path / "local", 4.0)
        push_checkpoint(tmp_path / "local", "someone/toy", revision="next")
        assert held_value(resolve_checkpoint("someone/toy", metric="toy", revision="next")) == 4.0
        assert held_value(resolve_checkpoint("someone/toy", metric="toy")) == 3.0
        with pytest.raises(CheckpointError, match=r"refuses someone/toy at revision absent: .*Revision Not Found"):
            resolve_checkpoint("someone/toy", metric="toy", revision="absent")
        with pytest.raises(CheckpointError, match=r"the Hub refuses someone/absent: .*Repository Not Found"):
            resolve_checkpoint("someone/absent", metric="toy")

    def test_only_what_the_checkpoint_needs_is_fetched(self, tmp_path: Path, hub: LoopbackHub) -> None:
        save_toy(tmp_path / "toy", 6.0)
        needed = {file.name: file for file in (tmp_path / "toy").iterdir()}
        needed |= dict.fromkeys(("model-00001-of-00002.safetensors", "adapter_model.safetensors", "merges.txt"), b"1")
        names = ("consolidated.safetensors", "optimizer.safetensors", "model.fp16.safetensors", "code.py", "model.pt")
        below = ("checkpoint-5/model.safetensors", "original/config.json", "a/b/model.safetensors")
        hub.add_repo("someone/large", needed | dict.fromkeys((*names, *below), b"1"))
        folder = resolve_checkpoint("someone/large", metric="toy")
        assert {str(file.relative_to(folder)) for file in folder.rglob("*")} == set(needed)

    def test_downloads_outlive_the_hub(self, tmp_path: Path, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
        save_toy(tmp_path, 5.0)
        push_checkpoint(tmp_path, "someone/kept")
        resolve_checkpoint("someone/kept", metric="toy")
        hub.endpoint = os.environ["HF_ENDPOINT"]  # where nothing listens
        hub.point_client(monkeypatch, Path(constants.HF_HUB_CACHE))
        assert held_value(resolve_checkpoint("someone/kept", metric="toy")) == 5.0
        with pytest.raises(CheckpointError, match="cannot be uploaded to someone/kept"):
            push_checkpoint(tmp_path, "someone/kept")


class TestUnshardedLoading:
    def test_fsdp_loading_is_off_inside_and_back_after(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
        with unsharded_loading():
            assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false"
        assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true"
        monkeypatch.delenv("FSDP_CPU_RAM_EFFICIENT_LOADING")
        with pytest.raises(KeyError), unsharded_loading():
            raise KeyError
        assert "FSDP_CPU_RAM_EFFICIENT_LOADING" not in os.environ

    def test_zero3_is_unseen_inside_and_back_after(self) -> None:
        from transformers.integrations import deepspeed

        config = Mock(is_zero3=lambda: True)
        deepspeed.set_hf_deepspeed_config(config)
        try:
            assert deepspeed.is_deepspeed_zero3_enabled()
            with unsharded_loading():
                assert not deepspeed.is_deepspeed_zero3_enabled()
            assert deepspeed.is_deepspeed_zero3_enabled()
        finally:
            deepspeed.unset_hf_deepspeed_config()


@pytest.mark.parametrize("name", ["model.safetensors", "open_clip_pytorch_model.bin", "vocab.txt", "longclip-L.pt"])
@pytest.mark.parametrize("prefix", ["", "local-dir:"])
def test_weights_changed_in_place_are_others(tmp_path: Path, name: str, prefix: str) -> None:
    file = tmp_path / name
    for source in (f"{prefix}{tmp_path}", f"{prefix}{file}"):
        file.write_text("one")
        before = fingerprint_source(source)
        assert fingerprint_source(source) == before
        file.write_text("two")
        assert fingerprint_source(source) != before


def test_a_copy_is_the_same_without_its_card_and_other_names_stand_for_themselves(tmp_path: Path) -> None:
    assert [fingerprint_source(name) for name in ("name/repo", "embedded")] == ["name/repo", "embedded"]
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "model.safetensors").write_text("weights")
    (tmp_path / "b" / "README.md").write_text("a card")
    assert fingerprint_source(tmp_path / "a") == fingerprint_source(str(tmp_path / "b"))


@pytest.mark.parametrize("named", ["backbone", "backbone/model.pt"])
def test_weights_that_the_configuration_names_count(tmp_path: Path, named: str) -> None:
    folder, weights = tmp_path / "saved", tmp_path / "backbone" / "model.pt"
    folder.mkdir()
    weights.parent.mkdir()
    config = {"metric": "fleur", "_name_or_path": str(folder), "prompt": "x" * 9000}
    config["judge"] = {"source": str(tmp_path / named)}
    (folder / "config.json").write_text(json.dumps(config))
    weights.write_text("one")
    before = fingerprint_source(folder)
    weights.write_text("two")
    assert fingerprint_source(folder) != before
