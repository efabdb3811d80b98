"""VELA's part in training: batches of judgments."""

import pytest
import torch

from reward.data.samples import CaptionSample
from reward.errors import ConfigError, InvalidSampleError
from reward.metrics.vela.training import VelaCollator, make_model
from reward.scenes import make_dataset
from tests.reward.training.small_runs import small_config

TEXTS = ["the red star is above a blue ring"] * 3
SAMPLES = [CaptionSample(row["cand"], row["image"], row["refs"]) for row in make_dataset(4, 7)]


def build(**settings):
    torch.manual_seed(0)
    model = make_model({**small_config().model, **settings}, texts=lambda: TEXTS)
    torch.nn.init.normal_(model.weight)  # the head starts at zero, where every score is the same
    return model


def batch_of(model, *order):
    """A batch of (sample, aspect) rows; the target is half the aspect's number."""
    return VelaCollator(model)([{"sample": SAMPLES[k], "aspect": a, "target": a / 2} for k, a in order])


def test_one_image_with_two_captions_is_two_pairs_and_an_absent_one_is_named():
    collate, image = VelaCollator(build()), SAMPLES[0].image
    rows = [{"sample": CaptionSample(text, image), "aspect": 0, "target": 0} for text in ("A star.", "A ring.")]
    batch = collate([*rows, {**rows[0], "aspect": 1}])
    assert batch["sample"].tolist() == [0, 1, 0]
    assert not torch.equal(batch["clip_ids"][0], batch["clip_ids"][1])
    with pytest.raises(InvalidSampleError, match=r"absent\.png"):
        collate([{"sample": CaptionSample("A star.", "absent.png"), "aspect": 0, "target": 0}])


def test_an_ablated_model_gets_only_what_it_reads():
    for absent, present in (("image", {"input_ids", "attention_mask"}), ("text", {"pixels", "clip_ids", "sample"})):
        assert set(batch_of(build(**{absent: None}), (0, 0))) == {"labels", "aspect", *present}


def test_gradient_checkpointing_recomputes_states_and_gives_the_same_gradients():
    passes, gradients = [], []
    for checkpointing in (False, True):
        model = build(gradient_checkpointing=checkpointing).train()
        calls = []
        model.text.decoder.layers[0].mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        batch = batch_of(model, (0, 0), (1, 1))
        torch.nn.functional.mse_loss(batch.pop("labels"), model(**batch).scores).backward()
        passes.append(len(calls))
        gradients.append([value.grad for value in model.parameters() if value.grad is not None])
    assert passes == [1, 2]
    torch.testing.assert_close(*gradients)
    with pytest.raises(ConfigError, match="gradient_checkpointing must be true or false, got 'yes'"):
        build(gradient_checkpointing="yes")
