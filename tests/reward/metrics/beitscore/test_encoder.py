"""The BEiT-3 encoder against the reference implementation's recorded outputs, and what training changes in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional as F

from reward.backbones.fit import on_meta
from reward.metrics.beitscore import BeitScoreModel, load_beit3
from reward.metrics.beitscore.config import PRESETS
from tests.contract import TOLERANCE
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_model

GOLDEN = Path(__file__).parents[3] / "golden"
WEIGHTS = GOLDEN / "beit3_tiny_weights.safetensors"


def inputs(batch: int = 3, length: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(0)
    image = torch.randn(batch, 3, 32, 32, generator=numbers)
    return image, torch.randint(3, 300, (batch, length), generator=numbers)


def test_encoder_pooler_and_answers_match_the_reference() -> None:
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
def test_published_sizes_have_the_published_number_of_parameters(size: str, millions: float) -> None:
    with on_meta(own=True):
        model = BeitScoreModel(PRESETS[size])
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == millions


@settings(max_examples=12, deadline=None)
@given(length=st.integers(1, 20), extra=st.integers(1, 30), token=st.integers(0, 299))
def test_padding_changes_nothing(length: int, extra: int, token: int) -> None:
    model, (image, ids) = make_model(), inputs(2, length)
    padded = torch.cat([ids, torch.full((2, extra), token)], dim=1)
    mask = torch.arange(length + extra).expand(2, -1) >= length
    with torch.no_grad():
        states, pooled = model.encode(image, ids)
        longer, pooled_longer = model.encode(image, padded, mask)
    assert (pooled - pooled_longer).abs().max() < TOLERANCE
    assert (states - longer[:, : states.shape[1]]).abs().max() < TOLERANCE


def test_gradient_checkpointing_gives_the_same_gradients_and_keeps_fewer_activations() -> None:
    gradients, kept = [], []

    def count(tensor: torch.Tensor) -> torch.Tensor:
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


def test_layers_are_dropped_in_training_only() -> None:
    model = make_model(make_config(drop_path=0.5, layers=4))
    without = make_model(make_config(drop_path=0.0, layers=4)).train()
    with torch.no_grad():
        whole = model(*inputs()).logits
        assert torch.allclose(without(*inputs()).logits, whole)
        model.train()
        assert not torch.equal(model(*inputs()).logits, model(*inputs()).logits)
