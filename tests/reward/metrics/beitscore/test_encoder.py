"""The BEiT-3 encoder against the reference implementation's recorded outputs, and what training changes in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional as F

from reward.metrics.beitscore import BeitScoreModel, load_beit3
from reward.metrics.beitscore.config import PRESETS
from tests.contract import TOLERANCE
from tests.reward.metrics.beitscore.tiny_beitscore import make_config, make_model

GOLDEN = Path(__file__).parents[3] / "golden"
WEIGHTS = GOLDEN / "beit3_tiny_weights.safetensors"


@pytest.fixture(scope="module")
def recorded() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / "beit3_tiny_io.safetensors")


def inputs(batch: int = 3, length: int = 9, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    image = torch.randn(batch, 3, 32, 32, generator=numbers)
    return image, torch.randint(3, 300, (batch, length), generator=numbers)


def test_encoder_pooler_and_answers_match_the_reference(recorded: dict[str, torch.Tensor]) -> None:
    model, _ = load_beit3(WEIGHTS)
    image, ids, padding = (recorded[name] for name in ("image", "text_ids", "text_padding_mask"))
    assert padding.any()
    with torch.no_grad():
        states, pooled = model.encode(image, ids, padding)
        assert (states - recorded["encoder_out"]).abs().max() < TOLERANCE
        assert (pooled - recorded["pooled"]).abs().max() < TOLERANCE
        # an image embedded once serves all its captions
        _, shared = model.encode_embedded(model.beit3.embed_image(image[:1]).expand(3, -1, -1), ids, padding)
        alone = [model.encode(image[:1], ids[[row]], padding[[row]])[1] for row in range(3)]
        assert (shared - torch.cat(alone)).abs().max() < TOLERANCE
    head = {key: value for key, value in load_file(WEIGHTS).items() if key.startswith("head.")}
    hidden = F.linear(pooled, head["head.0.weight"], head["head.0.bias"])
    hidden = F.gelu(F.layer_norm(hidden, hidden.shape[1:], head["head.1.weight"], head["head.1.bias"]))
    answers = F.linear(hidden, head["head.3.weight"], head["head.3.bias"])
    assert (answers - recorded["vqa_logits"]).abs().max() < TOLERANCE


@pytest.mark.parametrize(("size", "millions"), [("base", 222.32), ("large", 674.74)])
def test_published_sizes_have_the_published_number_of_parameters(size: str, millions: float) -> None:
    with torch.device("meta"):
        model = BeitScoreModel(PRESETS[size])
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == millions


_model = make_model()


@settings(max_examples=12, deadline=None)
@given(length=st.integers(1, 20), extra=st.integers(1, 30), token=st.integers(0, 299), seed=st.integers(0, 5))
def test_padding_changes_nothing(length: int, extra: int, token: int, seed: int) -> None:
    model = _model
    image, ids = inputs(2, length, seed)
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
    plain, recomputed = gradients
    assert plain.keys() == recomputed.keys()
    assert len(plain) > 100
    for name, gradient in plain.items():
        assert torch.allclose(gradient, recomputed[name], atol=1e-6), name
    assert kept[1] < 0.5 * kept[0]


def test_layers_are_dropped_in_training_only() -> None:
    model = make_model(make_config(drop_path=0.5, layers=4))
    image, ids = inputs()
    with torch.no_grad():
        assert torch.equal(model(image, ids).logits, model(image, ids).logits)
        model.train()
        assert not torch.equal(model(image, ids).logits, model(image, ids).logits)
        without = make_model(make_config(drop_path=0.0, layers=4)).train()
        assert torch.equal(without(image, ids).logits, without(image, ids).logits)
        assert torch.allclose(without(image, ids).logits, model.eval()(image, ids).logits)


def test_captions_longer_than_the_table_and_images_of_another_size_are_refused() -> None:
    model = make_model()
    with pytest.raises(ValueError, match="65 tokens does not fit: the position table holds 64"):
        model.encode(torch.zeros(1, 3, 32, 32), torch.zeros(1, 65, dtype=torch.long))
    with pytest.raises(ValueError, match=r"\(B, 3, 32, 32\), got \(1, 3, 40, 32\)"):
        model.encode(torch.zeros(1, 3, 40, 32), torch.zeros(1, 5, dtype=torch.long))
