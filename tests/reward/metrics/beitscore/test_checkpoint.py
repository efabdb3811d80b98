"""load_beit3: published layouts in, a report out; nothing is loaded that does not fit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from reward.errors import CheckpointError
from reward.metrics.beitscore.checkpoint import load_beit3
from reward.metrics.beitscore.config import PRESETS, BeitScoreConfig
from reward.metrics.beitscore.scorer import BeitScoreScorer
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_model

GOLDEN = Path(__file__).parents[3] / "golden" / "beit3_tiny_weights.safetensors"
TENSORS = load_file(GOLDEN)
TABLE = "beit3.encoder.embed_positions.A.weight"
CONFIG = BeitScoreConfig(
    hidden_size=32, layers=2, heads=4, ffn_size=128, image_size=32, patch_size=8, vocab_size=97, text_positions=1024
)
NEW_HEAD = ("head.0.weight", "head.0.bias", "head.2.weight", "head.2.bias")


@pytest.fixture
def save(tmp_path):
    """Writes tensors as a `.pth` of the published layout, or as safetensors with the metadata given."""

    def write(tensors, metadata=None):
        if metadata is not None:
            save_file(tensors, tmp_path / "x.safetensors", metadata=metadata)
            return tmp_path / "x.safetensors"
        torch.save({"model": tensors, "epoch": 9}, tmp_path / "x.pth")
        return tmp_path / "x.pth"

    return write


def test_sizes_come_from_shapes_and_metadata():
    model, report = load_beit3(GOLDEN)
    assert model.config == CONFIG
    assert not model.training
    assert {key.split(".")[0] for key in report.used} == {"beit3", "pooler"}
    assert set(report.unused) == {f"head.{layer}.{kind}" for layer in (0, 1, 3) for kind in ("weight", "bias")}
    assert (report.missing, report.interpolated) == (NEW_HEAD, ())
    assert str(report).startswith("95 keys used (0 interpolated), 6 dropped, 4 new: head.0.weight")
    assert 0 < model.head[0].weight.std() < 1  # drawn anew, not left as memory happened to be


def test_pth_files_under_the_key_model_give_the_same(save):
    model, report = load_beit3(save({key: value.half() for key, value in TENSORS.items()}), config=CONFIG)
    assert set(report.used) == {key for key in TENSORS if not key.startswith("head.")}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(torch.equal(model.state_dict()[key], TENSORS[key].half().float()) for key in report.used)


@pytest.mark.parametrize(("width", "heads"), [(768, 12), (1024, 16)])
def test_heads_of_published_widths_are_known(width, heads, save):
    small = make_config(hidden_size=width, heads=heads, layers=1, ffn_size=8, text_positions=10)
    assert load_beit3(save(make_model(small).state_dict()))[0].config.heads == heads
    assert replace(PRESETS["large"], image_size=384).patches == 576


def test_a_checkpoint_without_pooler_gets_a_new_one(save):
    encoder = {key: value for key, value in TENSORS.items() if key.startswith("beit3.")}
    model, report = load_beit3(save({**encoder, "mlm_head.weight": torch.zeros(3)}), config=CONFIG)
    pooler = ("pooler.norm.weight", "pooler.norm.bias", "pooler.dense.weight", "pooler.dense.bias")
    assert (report.unused, set(report.missing)) == (("mlm_head.weight",), {*NEW_HEAD, *pooler})
    assert torch.equal(model.pooler.norm.weight, torch.ones(32))
    assert 0 < model.pooler.dense.weight.std() < 1


ODD_TABLE = {**TENSORS, TABLE: TENSORS[TABLE][:-1].clone()}


@pytest.mark.parametrize(
    ("tensors", "metadata", "config", "message"),
    [
        (TENSORS, None, None, r"width 32.*not known: pass config="),
        (TENSORS, {"heads": "many"}, None, "heads='many'"),
        (TENSORS, {"heads": "4"}, replace(CONFIG, layers=1), "unknown"),
        (ODD_TABLE, {"heads": "4"}, CONFIG, "18 rows, which is not a square number"),
        ({"weight": torch.zeros(2)}, {}, None, "not a BEiT-3 checkpoint in its published layout"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tensors, metadata, config, message, save):
    with pytest.raises(CheckpointError, match=message):
        load_beit3(save(tensors, metadata), config=config)


def test_published_weights_are_no_checkpoint_of_beitscore():
    with pytest.raises(CheckpointError, match=r"no trained score head: start from them with .*load_beit3"):
        BeitScoreScorer.from_pretrained(GOLDEN)


@pytest.mark.parametrize("image_size", [16, 48])
def test_another_resolution_interpolates_the_patches_of_the_table(image_size):
    model, report = load_beit3(GOLDEN, config=replace(CONFIG, image_size=image_size))
    side, table, old = image_size // 8, model.state_dict()[TABLE], TENSORS[TABLE]
    assert report.interpolated == (TABLE,)
    assert TABLE in report.used
    assert torch.equal(table[:3], old[:3])  # two reserved rows and CLS stay
    for channel in (0, 31):
        expected = F.interpolate(old[3:, channel].view(1, 1, 4, 4), size=(side, side), mode="bicubic")
        assert torch.allclose(table[3:, channel].view(side, side), expected[0, 0], atol=1e-6)
    states, _ = model.encode(torch.zeros(1, 3, image_size, image_size), torch.tensor([[0, 5, 2]]))
    assert states.shape == (1, 1 + side**2 + 3, 32)
