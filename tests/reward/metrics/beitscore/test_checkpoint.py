"""load_beit3: published layouts in, a report out; nothing is loaded that does not fit."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from reward.errors import CheckpointError
from reward.metrics.beitscore import load_beit3
from reward.metrics.beitscore.config import PRESETS, BeitScoreConfig
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_model

GOLDEN = Path(__file__).parents[3] / "golden" / "beit3_tiny_weights.safetensors"
TABLE = "beit3.encoder.embed_positions.A.weight"
CONFIG = BeitScoreConfig(
    hidden_size=32, layers=2, heads=4, ffn_size=128, image_size=32, patch_size=8, vocab_size=97, text_positions=1024
)


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN)


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Writes tensors as a `.pth` of the published layout, or as safetensors with the metadata given."""

    def write(tensors: dict[str, torch.Tensor], *, metadata: dict[str, str] | None = None, **more: Any) -> Path:
        if metadata is not None:
            save_file(tensors, tmp_path / "x.safetensors", metadata=metadata)
            return tmp_path / "x.safetensors"
        torch.save({"model": tensors, **more}, tmp_path / "x.pth")
        return tmp_path / "x.pth"

    return write


def test_sizes_come_from_shapes_and_metadata() -> None:
    model, report = load_beit3(GOLDEN)
    assert model.config == CONFIG
    assert not model.training
    assert {key.split(".")[0] for key in report.used} == {"beit3", "pooler"}
    assert set(report.unused) == {f"head.{layer}.{kind}" for layer in (0, 1, 3) for kind in ("weight", "bias")}
    assert report.missing == ("head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias")
    assert report.interpolated == ()
    assert str(report).startswith("95 keys used (0 interpolated), 6 dropped, 4 new: head.0.weight")
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert 0 < model.head[0].weight.std() < 1  # drawn anew, not left as memory happened to be


def test_pth_files_under_the_key_model_give_the_same(tensors: dict[str, torch.Tensor], save: Any) -> None:
    model, report = load_beit3(save(tensors, epoch=9), config=CONFIG)
    ours, theirs = model.state_dict(), load_beit3(GOLDEN)[0].state_dict()
    assert set(report.used) == {key for key in tensors if not key.startswith("head.")}
    assert all(torch.equal(ours[key], theirs[key]) for key in report.used)
    half, _ = load_beit3(save({key: value.half() for key, value in tensors.items()}), config=CONFIG)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float32}


@pytest.mark.parametrize(("width", "heads"), [(768, 12), (1024, 16)])
def test_heads_of_published_widths_are_known(width: int, heads: int, save: Any) -> None:
    small = make_config(hidden_size=width, heads=heads, layers=1, ffn_size=8, text_positions=10)
    assert load_beit3(save(make_model(small).state_dict()))[0].config.heads == heads
    assert replace(PRESETS["large"], image_size=384).patches == 576


def test_a_checkpoint_without_pooler_gets_a_new_one(tensors: dict[str, torch.Tensor], save: Any) -> None:
    encoder = {key: value for key, value in tensors.items() if key.startswith("beit3.")}
    extra = {"mlm_head.weight": torch.zeros(3), "vision_head.weight": torch.zeros(3), "logit_scale": torch.ones(())}
    model, report = load_beit3(save({**encoder, **extra}), config=CONFIG)
    assert set(report.unused) == set(extra)
    pooler = {"pooler.norm.weight", "pooler.norm.bias", "pooler.dense.weight", "pooler.dense.bias"}
    assert pooler < set(report.missing)
    assert torch.equal(model.pooler.norm.weight, torch.ones(32))
    assert 0 < model.pooler.dense.weight.std() < 1


HEADS = {"heads": "4"}


def without(part: str) -> Any:
    return lambda tensors: {key: value for key, value in tensors.items() if part not in key}


@pytest.mark.parametrize(
    ("change", "metadata", "config", "message"),
    [
        (dict, None, None, r"width 32.*not known: pass config="),
        (dict, {}, None, "width 32"),
        (dict, {"heads": "many"}, None, "heads='many'"),
        (without("beit3.text_embed.weight"), HEADS, None, r"lacks.*beit3.text_embed.weight"),
        *(
            (dict, HEADS, replace(CONFIG, **changes), "unknown|mis-shaped")
            for changes in ({"layers": 1}, {"patch_size": 16}, {"text_positions": 512}, {"ffn_size": 64})
        ),
        *(
            (lambda tensors: {**tensors, TABLE: tensors[TABLE][:-1].clone()}, HEADS, config, "18 rows, which is not a")
            for config in (None, CONFIG)
        ),
        (lambda tensors: {"weight": torch.zeros(2)}, {}, None, "not a BEiT-3 checkpoint in its published layout"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    change: Any, metadata: Any, config: Any, message: str, tensors: dict[str, torch.Tensor], save: Any
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_beit3(save(change(tensors), metadata=metadata), config=config)


class _Runs:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def test_a_pickle_that_holds_code_is_refused_and_not_run(
    tensors: dict[str, torch.Tensor], save: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "ran"
    (tmp_path / "plain.pth").write_bytes(pickle.dumps({"model": _Runs(f"touch {flag}")}))
    for path in (save(tensors, args=_Runs(f"touch {flag}")), tmp_path / "plain.pth"):
        with pytest.raises(CheckpointError, match="could run code"):
            load_beit3(path, config=CONFIG)
        assert not flag.exists()


@pytest.mark.parametrize("image_size", [16, 48, 64])
def test_another_resolution_interpolates_the_patches_of_the_table(
    image_size: int, tensors: dict[str, torch.Tensor]
) -> None:
    config = replace(CONFIG, image_size=image_size)
    model, report = load_beit3(GOLDEN, config=config)
    side = image_size // 8
    table, old = model.state_dict()[TABLE], tensors[TABLE]
    assert report.interpolated == (TABLE,)
    assert TABLE in report.used
    assert torch.equal(table[:3], old[:3])  # two reserved rows and CLS stay
    for channel in (0, 31):
        expected = F.interpolate(old[3:, channel].view(1, 1, 4, 4), size=(side, side), mode="bicubic")
        assert torch.allclose(table[3:, channel].view(side, side), expected[0, 0], atol=1e-6)
    states, _ = model.encode(torch.zeros(1, 3, image_size, image_size), torch.tensor([[0, 5, 2]]))
    assert states.shape == (1, 1 + side**2 + 3, 32)
