"""Tensors of foreign checkpoints by role; broken files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from reward.errors import CheckpointError
from reward.inspection import group_tensors, inspect_safetensors, lora_summary, role_of
from tests.reward.cli.conftest import Run, run

__all__ = ["run"]  # the fixture

NAMES = {
    "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": "adapter",
    "llm.base_model.model.model.layers.10.self_attn.v_proj.lora_B.default.weight": "adapter",
    "mode_embedding.weight": "mode embedding",
    "mode_emb.weight": "mode embedding",
    "embedding_mode.weight": "mode embedding",
    "clip_model.visual.transformer.resblocks.0.attn.in_proj_weight": "CLIP",
    "vision_model.encoder.layers.0.mlp.fc1.weight": "CLIP",
    "positional_embedding_res": "CLIP",
    "llm.model.embed_tokens.weight": "language model",
    "model.layers.3.mlp.up_proj.weight": "language model",
    "regressor.0.weight": "head",
    "image_projection.weight": "head",
    "mlp.2.bias": "head",
    "model.norm.weight": "other",
    "model.step": "other",
}


@pytest.mark.parametrize(("name", "role"), NAMES.items())
def test_roles(name: str, role: str) -> None:
    assert role_of(name) == role


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As the authors of VELA may store theirs: adapters of rank 4 on two layers, a mode embedding of 8, a head."""
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(3):
        for part in ("q_proj", "v_proj"):
            stem = f"llm.model.layers.{layer}.self_attn.{part}.lora"
            tensors |= {f"{stem}_A.default.weight": torch.zeros(4, 16), f"{stem}_B.default.weight": torch.zeros(8, 4)}
    tensors["mode_embedding.weight"] = torch.zeros(3, 8)
    tensors["regressor.0.weight"] = torch.zeros(1, 40, dtype=torch.bfloat16)
    tensors["scale"] = torch.zeros(())
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path / "model.safetensors"


def test_facts_groups_and_ranks(checkpoint: Path) -> None:
    tensors, metadata = inspect_safetensors(checkpoint)
    facts = {each.name: each for each in tensors}
    assert metadata == {"format": "pt"}
    assert facts["regressor.0.weight"].bytes == 80
    assert facts["scale"].shape == ()
    assert facts["scale"].numbers == 1
    assert sum(each.bytes for each in tensors) == 6 * 4 * (4 * 16 + 8 * 4) + 3 * 8 * 4 + 80 + 4
    assert [(name, len(group)) for name, group in group_tensors(tensors)][:2] == [
        ("llm.model.layers.*.self_attn.q_proj.lora_A.default.weight", 3),
        ("llm.model.layers.*.self_attn.q_proj.lora_B.default.weight", 3),
    ]
    assert lora_summary(tensors) == {"q_proj": [4], "v_proj": [4]}


def test_the_command(run: Run, checkpoint: Path) -> None:
    out, _ = run("inspect", checkpoint)
    assert "mode_embedding.weight" in out
    assert "LoRA: q_proj of rank 4, v_proj of rank 4" in out
    out, _ = run("inspect", checkpoint, "--json")
    found = json.loads(out)
    assert found["roles"]["adapter"]["tensors"] == 12
    assert found["total"]["tensors"] == len(found["tensors"]) == 15
    assert found["lora_ranks"] == {"q_proj": [4], "v_proj": [4]}


def test_broken_files_are_named_in_one_line(run: Run, checkpoint: Path, tmp_path: Path) -> None:
    data = checkpoint.read_bytes()
    broken = {"cut": data[:-9], "half": data[:40], "empty": b"", "huge": b"\xff" * 64, "text": b"not a checkpoint"}
    for name, content in broken.items():
        (tmp_path / f"{name}.safetensors").write_bytes(content)
        with pytest.raises(CheckpointError, match="not a readable safetensors file"):
            inspect_safetensors(tmp_path / f"{name}.safetensors")
    _, err = run("inspect", tmp_path / "cut.safetensors", code=1)
    assert err.startswith("error: ")
    save_file({}, tmp_path / "none.safetensors")
    _, err = run("inspect", tmp_path / "none.safetensors", code=1)
    assert "holds no tensors" in err
    (tmp_path / "old.pt").write_bytes(b"")
    for path, problem in (
        (tmp_path, "cut.safetensors"),
        (tmp_path / "gone", "no file"),
        (tmp_path / "old.pt", "no .safe"),
    ):
        with pytest.raises(CheckpointError, match=problem):
            inspect_safetensors(path)
