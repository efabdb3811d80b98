"""Reward models learn from pairs: what is trained is what is saved, and one pass over an image is as good as two."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import Gemma3ForConditionalGeneration

from reward import CaptionSample, load_scorer
from reward.errors import CapRewardError
from reward.metrics.vlmreward import training
from reward.training.config import make_config
from reward.training.loop import train
from reward.training.trainer import bradley_terry
from tests.reward.metrics.test_vlmreward import gemma3
from tests.reward.training.small_runs import record, same_weights, train_until_killed
from tests.toys import toy_judges

pytestmark = pytest.mark.slow

CAPTIONS = ["A red star left of a circle.", "A blue star left of a circle. It is small."]
SMALL = {
    **{"scenes_train": 8, "scenes_val": 4, "scenes_test": 0, "batch_size": 4, "eval_batch_size": 8},
    **{"epochs": 1, "patience": 5, "schedule": "constant", "eval_steps": 2},
}


def writing_gemma3():
    """A Gemma 3 that writes; its type has a class with a head for scores."""
    classifier, processor = gemma3()
    model = Gemma3ForConditionalGeneration(classifier.config)
    return toy_judges.with_random_weights(model, processor.tokenizer), processor


BACKBONES = {"llava": toy_judges.llava, "qwen2-vl": toy_judges.qwen2_vl, "gemma3": writing_gemma3}


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in BACKBONES}
    for kind, make in BACKBONES.items():
        for part in make():
            part.save_pretrained(folders[kind])
    return folders


@pytest.fixture(scope="module")
def samples():
    """Two pairs, the better caption first."""
    return [CaptionSample(caption, image) for image in toy_judges.pictures(2) for caption in CAPTIONS]


def make_network(folder, **settings):
    """A network to train, whose adapters change something already."""
    torch.manual_seed(0)
    network = training.make_model({"backbone": str(folder), "lora": {"r": 2}, **settings}, texts=list)
    with torch.no_grad():
        for name, value in network.named_parameters():
            if "lora_B" in name:
                value.normal_(std=0.1)
    return network.train()


def scores_of(network, samples):
    rows = [{"sample": sample, "aspect": 0, "target": 1 - row % 2} for row, sample in enumerate(samples)]
    batch = training.make_collator(network)(rows)
    assert batch.pop("labels").tolist() == [1, 0, 1, 0]
    return network(**batch).scores


@pytest.mark.parametrize("kind", ["llava", "qwen2-vl"])
def test_loss_and_gradient_of_one_pass_over_an_image_are_those_of_two(kind, backbones, samples):
    settings = {"one pass": {}, "two": {}, "two, recomputed": {"gradient_checkpointing": True}}
    losses, gradients, tokens = {}, {}, {}
    for name, values in settings.items():
        network = make_network(backbones[kind], **values)
        reader = network.scorer.reader
        if name == "two":
            reader.shares[True] = False
        scores_of(network, samples)  # the reader checks itself the first time
        tokens[name] = -reader.tokens_read
        loss = bradley_terry(scores_of(network, samples), torch.ones(4))
        tokens[name] += reader.tokens_read
        loss.backward()
        losses[name] = loss.item()
        gradients[name] = {key: value.grad for key, value in network.named_parameters() if value.requires_grad}
        assert reader.shares[True] == (name == "one pass")
    assert tokens["one pass"] < 0.8 * tokens["two"]
    one = gradients["one pass"]
    assert any(value.abs().max() > 1e-3 for key, value in one.items() if "lora_A" in key)
    for name in ("two", "two, recomputed"):
        assert losses[name] == pytest.approx(losses["one pass"], abs=1e-5)
        # Gradients are as large as 12.
        assert all(torch.allclose(value, one[key], atol=1e-4) for key, value in gradients[name].items())


def test_a_picture_that_cannot_be_read_ends_the_training(backbones):
    network = make_network(backbones["llava"])
    with pytest.raises(CapRewardError, match=r"no\.png"):
        scores_of(network, [CaptionSample(caption, "no.png") for caption in CAPTIONS * 2])


@pytest.mark.parametrize(("kind", "has_file"), [("llava", True), ("qwen2-vl", True), ("gemma3", False)])
def test_a_saved_folder_scores_as_the_network_that_was_trained(kind, has_file, backbones, samples, tmp_path):
    network = make_network(backbones[kind])
    with torch.no_grad():
        expected = scores_of(network, samples).numpy()
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        training.save_model(network, folder, card="# Card")
        scores = load_scorer("vlmreward", folder, device="cpu").score(samples).scores[:, 0]
        assert scores == pytest.approx(expected, abs=1e-5)
        assert np.ptp(scores) > 1e-3
        assert (folder / "value_head.safetensors").is_file() == has_file
        network = training.load_for_training(folder, {"gradient_checkpointing": False})


def test_a_killed_run_ends_as_an_unbroken_one_and_another_goes_on_from_it(tmp_path, monkeypatch):
    config = make_config(training.PRESETS["tiny"], SMALL)
    result = train("vlmreward", "scenes", tmp_path / "whole", config)
    figures = result.figures["val"]
    assert 0 <= figures["low"] <= figures["accuracy"] <= figures["high"] <= 1
    assert "| highest of 95 % |" in (tmp_path / "whole" / "README.md").read_text()
    killed = tmp_path / "killed"
    train_until_killed("vlmreward", killed, config, monkeypatch, batches=4)
    assert (killed / "checkpoints" / "checkpoint-2").exists()
    assert train("vlmreward", "scenes", killed, config, resume=True).figures == result.figures
    assert record(killed)["resumed"]
    assert same_weights(tmp_path / "whole", killed)
    further = replace(config, model={"gradient_checkpointing": False}, learning_rate=1e-12)
    with pytest.warns(UserWarning, match="the training did not help on the part 'val': pairs ranked right x 100 was"):
        again = train("vlmreward", "scenes", tmp_path / "again", further, init=tmp_path / "whole")
    assert again.before["accuracy"] == figures["accuracy"]
