"""BEiT-3: its encoder beside the reference's recorded outputs, its two towers, what training changes; checkpoints."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from reward.backbones.fit import on_meta
from reward.errors import CheckpointError
from reward.metrics.beitscore.checkpoint import load_beit3
from reward.metrics.beitscore.config import PRESETS, BeitScoreConfig
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.beitscore.retrieval import load_beit3_towers
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.training.corruptions.retrieved import clip_embeddings
from tests.contract import TOLERANCE
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_model, make_scorer, train_spm

GOLDEN = Path(__file__).parents[3] / "golden"
WEIGHTS = GOLDEN / "beit3_tiny_weights.safetensors"
CAPTIONS = ["a red star", "a red star on a long green beach", "a ring"]


def inputs(batch=3, length=9):
    numbers = torch.Generator().manual_seed(0)
    image = torch.randn(batch, 3, 32, 32, generator=numbers)
    return image, torch.randint(3, 300, (batch, length), generator=numbers)


def test_encoder_pooler_and_answers_match_the_reference():
    model, _ = load_beit3(WEIGHTS)
    recorded = load_file(GOLDEN / "beit3_tiny_io.safetensors")
    image, ids, padding = (recorded[name] for name in ("image", "text_ids", "text_padding_mask"))
    assert padding.any()
    with torch.no_grad():
        states, pooled = model.encode(image, ids, padding)
    assert (states - recorded["encoder_out"]).abs().max() < TOLERANCE
    assert (pooled - recorded["pooled"]).abs().max() < TOLERANCE
    head = {key: value for key, value in load_file(WEIGHTS).items() if key.startswith("head.")}
    hidden = F.linear(pooled, head["head.0.weight"], head["head.0.bias"])
    hidden = F.gelu(F.layer_norm(hidden, hidden.shape[1:], head["head.1.weight"], head["head.1.bias"]))
    answers = F.linear(hidden, head["head.3.weight"], head["head.3.bias"])
    assert (answers - recorded["vqa_logits"]).abs().max() < TOLERANCE


@pytest.mark.parametrize(("size", "millions"), [("base", 222.32), ("large", 674.74)])
def test_published_sizes_have_the_published_number_of_parameters(size, millions):
    with on_meta(needs_transformers=False):
        model = BeitScoreModel(PRESETS[size])
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == millions


def test_gradient_checkpointing_gives_the_same_gradients_and_keeps_fewer_activations():
    gradients, kept = [], []

    def count(tensor):
        kept[-1] += tensor.numel()
        return tensor

    for checkpointed in (False, True):
        model = make_model(make_config(drop_path=0.5, layers=6)).train()
        model.beit3.gradient_checkpointing = checkpointed
        torch.manual_seed(1)  # the same layers are dropped
        kept.append(0)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            logits = model(*inputs()).logits
        logits.square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert len(gradients[0]) > 100
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)
    assert kept[1] < 0.5 * kept[0]


def test_layers_are_dropped_in_training_only():
    model = make_model(make_config(drop_path=0.5, layers=4))
    without = make_model(make_config(drop_path=0.0, layers=4)).train()
    with torch.no_grad():
        whole = model(*inputs()).logits
        assert torch.allclose(without(*inputs()).logits, whole)
        model.train()
        assert not torch.equal(model(*inputs()).logits, model(*inputs()).logits)


def test_a_tokenizer_that_does_not_fit_is_refused():
    for sizes in ({"text_positions": 20}, {"vocab_size": 50}):
        with pytest.raises(ValueError, match=r"the tokenizer has .* but the model has"):
            BeitScoreScorer(make_model(make_config(**sizes)), make_scorer().tokenizer)


def test_a_caption_and_an_image_are_embedded_alone(tmp_path):
    spm = tmp_path / "beit3.spm"
    spm.write_bytes(train_spm())
    with pytest.raises(CheckpointError, match=r"has no vision_head: give a checkpoint of BEiT-3 for retrieval"):
        load_beit3_towers(WEIGHTS, spm)
    heads = {f"{name}_head.weight": torch.randn(32, 32) for name in ("vision", "language")}
    save_file({**load_file(WEIGHTS), **heads}, tmp_path / "itc.safetensors", metadata={"heads": "4"})
    towers = load_beit3_towers(tmp_path / "itc.safetensors", spm, device="cpu")
    images = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    texts, pictures = clip_embeddings(towers, CAPTIONS, images)
    for row, caption in enumerate(CAPTIONS):  # padding changes nothing
        np.testing.assert_allclose(clip_embeddings(towers, [caption])[0][0], texts[row], atol=1e-5)
    ids, cut = towers.tokenize(["star " * 100])
    assert (ids.shape[1] <= 64, cut) == (True, [True])
    # the same states as in the encoder's own pass over an empty other stream
    pixels = torch.stack([towers.preprocess(image) for image in images])
    no_text = towers.beit3.embed_text(torch.zeros(2, 0, dtype=torch.long), None)
    states = towers.beit3(towers.beit3.embed_image(pixels), no_text, None)[0][:, 0]
    np.testing.assert_allclose((states @ heads["vision_head.weight"].T).detach().numpy(), pictures, atol=1e-5)


TENSORS = load_file(WEIGHTS)
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
    model, report = load_beit3(WEIGHTS)
    assert model.config == CONFIG
    assert not model.training
    assert {key.split(".")[0] for key in report.used} == {"beit3", "pooler"}
    assert set(report.unused) == {f"head.{layer}.{kind}" for layer in (0, 1, 3) for kind in ("weight", "bias")}
    assert (report.missing, report.interpolated) == (NEW_HEAD, ())
    assert str(report).startswith("95 keys used (0 interpolated), 6 dropped, 4 new: head.0.weight")
    assert 0 < model.head[0].weight.std() < 1  # drawn anew, not left as memory happened to be
    with pytest.raises(CheckpointError, match=r"no trained score head: start from them with .*load_beit3"):
        BeitScoreScorer.from_pretrained(WEIGHTS)


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


@pytest.mark.parametrize("image_size", [16, 48])
def test_another_resolution_interpolates_the_patches_of_the_table(image_size):
    model, report = load_beit3(WEIGHTS, config=replace(CONFIG, image_size=image_size))
    side, table, old = image_size // 8, model.state_dict()[TABLE], TENSORS[TABLE]
    assert report.interpolated == (TABLE,)
    assert TABLE in report.used
    assert torch.equal(table[:3], old[:3])  # two reserved rows and CLS stay
    for channel in (0, 31):
        expected = F.interpolate(old[3:, channel].view(1, 1, 4, 4), size=(side, side), mode="bicubic")
        assert torch.allclose(table[3:, channel].view(side, side), expected[0, 0], atol=1e-6)
    states, _ = model.encode(torch.zeros(1, 3, image_size, image_size), torch.tensor([[0, 5, 2]]))
    assert states.shape == (1, 1 + side**2 + 3, 32)
