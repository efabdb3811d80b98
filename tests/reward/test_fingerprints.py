"""What names the weights of a scorer: whatever their scores depend on must change it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reward.fingerprints import fingerprint_source


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


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_weights_that_the_configuration_names_count(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    weights = tmp_path / "backbone.pt"
    if kind == "folder":
        weights = tmp_path / "backbone" / "model.safetensors"
        weights.parent.mkdir()
    named = weights if kind == "file" else weights.parent
    config = {"metric": "fleur", "_name_or_path": str(folder), "judge": {"source": str(named)}, "prompt": "x" * 9000}
    (folder / "config.json").write_text(json.dumps(config))
    weights.write_text("one")
    before = fingerprint_source(folder)
    weights.write_text("two")
    assert fingerprint_source(folder) != before
