"""Policies come back from checkpoints with every weight, and a resumed training equals one that never stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from PIL import Image as PILImage
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from integrations.trl import ResumeWeights, last_checkpoint, load_policy
from reward import MetricReward
from reward.errors import CheckpointError
from tests.integrations.short_training import make_trainer, with_images
from tests.toys.toy_captioners import llava, qwen2_5_vl

pytestmark = pytest.mark.slow

LORA = LoraConfig(r=2, target_modules="all-linear")


class Stop(Exception):
    pass


class Watch(TrainerCallback):
    """Keeps the weights that steps begin with, and interrupts after a step."""

    def __init__(self, stop_after=None):
        self.stop_after, self.weights = stop_after, {}

    def on_step_begin(self, args, state, control, model=None, **_):
        self.weights[state.global_step] = {name: value.clone() for name, value in model.state_dict().items()}

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.stop_after:
            raise Stop


def trainer_for(policy, folder, *callbacks, lora=False, **options):
    """A trainer as a user's script makes it, each time it is run; an epoch is four steps."""
    data = with_images([PILImage.new("RGB", (32, 32), (30 * i, 255 - 30 * i, 128)) for i in range(8)])
    # without the image token, as one more image would be asked for
    sizes = {"per_device_train_batch_size": 8, "num_generations": 4, "max_steps": 4, "learning_rate": 3e-2}
    sizes |= {"save_strategy": "steps", "save_steps": 2}
    sizes["generation_kwargs"] = {"suppress_tokens": [policy[0].config.image_token_id]}
    options |= {"callbacks": callbacks, "peft_config": LORA if lora else None}
    torch.manual_seed(0)  # an adapter begins the same way
    return make_trainer(policy, [MetricReward("length", name="length")], data, folder, **sizes, **options)


def curve(trainer):
    names = ("reward", "reward_std", "loss", "grad_norm", "completions/mean_length")
    return [[float(entry[name]) for name in names] for entry in trainer.state.log_history if "reward" in entry]


def assert_same(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module", params=[llava, qwen2_5_vl], ids=["llava", "qwen2_5_vl"])
def make(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["full", "lora"])
def lora(request):
    return request.param


@pytest.fixture(scope="module")
def unbroken(make, lora, tmp_path_factory):
    """The folder of a whole training, its trainer, and the weights at its first checkpoint."""
    folder, watch = tmp_path_factory.mktemp("unbroken"), Watch()
    trainer = trainer_for(make(), folder, watch, lora=lora)
    trainer.train()
    return folder, trainer, watch.weights[2]


def test_a_resumed_training_equals_an_unbroken_one(make, lora, unbroken, tmp_path):
    _, whole, at_two = unbroken
    with pytest.raises(Stop):
        trainer_for(make(), tmp_path, Watch(stop_after=3), lora=lora).train()
    seen = Watch()
    resumed = trainer_for(make(), tmp_path, ResumeWeights(), seen, lora=lora)
    (tmp_path / "checkpoint-99").mkdir()  # cut by a kill
    resumed.train(resume_from_checkpoint=last_checkpoint(tmp_path))
    assert min(seen.weights) == 2
    assert_same(seen.weights[2], at_two)
    assert curve(resumed) == curve(whole)
    assert len(curve(whole)) == 4
    assert_same(resumed.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize(
    ("name", "kept"), [("trainer_state.json", 0.5), ("*model.safetensors", 0.5), ("optimizer.pt", 0.9), ("rng*", 0)]
)
def test_a_checkpoint_that_was_cut_is_passed_over(name, kept, unbroken, tmp_path, caplog):
    shutil.copytree(unbroken[0], tmp_path, dirs_exist_ok=True)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-4"
    (file,) = (tmp_path / "checkpoint-4").glob(name)
    file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    assert "checkpoint-4 is not complete, as after a kill, and is passed over" in caplog.text
    assert file.name in caplog.text


def test_a_policy_is_loaded_with_the_weights_of_its_checkpoint(make, lora, unbroken):
    folder, _, at_two = unbroken
    base = make()[0] if lora else None
    model, processor = load_policy(folder / "checkpoint-2", base=base)
    assert isinstance(model, PeftModel) == lora
    assert any(parameter.requires_grad for parameter in model.parameters())
    assert_same(model.state_dict(), at_two)
    assert type(processor) is type(make()[1])


def damaged(folder, tmp_path, change):
    """A copy of a checkpoint with other weights."""
    copy = tmp_path / "damaged"
    copy.mkdir()
    for file in filter(Path.is_file, folder.iterdir()):
        if file.suffix == ".safetensors":
            save_file(change(load_file(file)), copy / file.name, metadata={"format": "pt"})
        else:
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def without_last(weights):
    weights.pop(sorted(weights)[-1])
    return weights


def with_another(weights):
    name = sorted(weights)[-1]
    return {
        **weights,
        name.replace("layers.0", "layers.9") + ("" if "layers.0" in name else ".more"): weights[name] + 0,
    }


@pytest.mark.parametrize(("change", "message"), [(without_last, "lacks 1 weight"), (with_another, "has 1 weight")])
def test_a_weight_that_is_missing_or_left_over_raises(change, message, make, lora, unbroken, tmp_path):
    folder = damaged(unbroken[0] / "checkpoint-2", tmp_path, change)
    with pytest.raises(CheckpointError, match=message):
        load_policy(folder, base=make()[0] if lora else None)
    trainer = trainer_for(make(), tmp_path, ResumeWeights(folder), lora=lora)
    with pytest.raises(CheckpointError, match=message):
        trainer.train(resume_from_checkpoint=str(folder))


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_the_reference_of_the_kl_term_is_the_policy_before_training(adapter, tmp_path):
    """TRL would take it from the checkpoint if the policy were loaded from there."""
    model, processor = llava()
    model.save_pretrained(tmp_path / "base")
    processor.save_pretrained(tmp_path / "base")
    out = tmp_path / "out"

    def first(*callbacks):
        policy = load_policy(tmp_path / "base")
        return trainer_for(policy, out, *callbacks, lora=adapter, beta=0.1)

    with pytest.raises(Stop):
        first(Watch(stop_after=3)).train()
    wrong = trainer_for(load_policy(out / "checkpoint-2"), out, ResumeWeights(), beta=0.1)
    with pytest.raises(CheckpointError, match="reference of the KL"):
        wrong.train(resume_from_checkpoint=True)
    resumed = first(ResumeWeights())
    resumed.train(resume_from_checkpoint=True)
    if not adapter:  # with an adapter, it is the network without it
        assert_same(resumed.ref_model.state_dict(), model.state_dict())


def test_another_checkpoint_than_the_one_resumed_from_raises(unbroken, make, lora, tmp_path):
    (tmp_path / "checkpoint-2").mkdir()
    state = unbroken[0] / "checkpoint-2" / "trainer_state.json"
    other = json.loads(state.read_text())
    other["log_history"][0]["reward"] = "9"
    for content in (None, json.dumps(other)):
        if content:
            (tmp_path / "checkpoint-2" / state.name).write_text(content)
        trainer = trainer_for(make(), tmp_path, ResumeWeights(), lora=lora)
        with pytest.raises(CheckpointError, match="give the folder that it resumes from"):
            trainer.train(resume_from_checkpoint=str(state.parent))


def test_files_that_do_not_fit_are_refused(tmp_path):
    (tmp_path / "checkpoint-5").mkdir()
    with pytest.raises(CheckpointError, match=r"neither config.json nor .* it holds checkpoint-5"):
        load_policy(tmp_path)

    model, processor = llava()
    full = tmp_path / "full"
    model.save_pretrained(full)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_policy(full)  # no processor there
    with pytest.raises(CheckpointError, match="needs no base"):
        load_policy(full, base=model)

    def shorter(weights):
        return {name: value[:1].clone() if value.ndim == 1 else value for name, value in weights.items()}

    processor.save_pretrained(full)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_policy(damaged(full, tmp_path, shorter))
    get_peft_model(model, LORA).save_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="give base="):
        load_policy(tmp_path / "adapter")
