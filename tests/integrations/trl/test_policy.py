"""Policies come back from checkpoints with every weight, and a resumed training equals one that never stopped."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from PIL import Image as PILImage
from safetensors.torch import load_file, save_file

from integrations.trl import ResumeWeights, last_checkpoint, load_policy
from reward import MetricReward
from reward.errors import CheckpointError, ConfigError
from tests.integrations.short_training import Stop, StopAfter, make_trainer, with_images
from tests.toys.toy_captioners import llava, qwen2_5_vl

pytestmark = pytest.mark.slow

only_full = pytest.mark.parametrize("whole", ["full"], indirect=True)
LORA = LoraConfig(r=2, target_modules="all-linear")
# names of weights in memory are not those in files
KINDS = {"full": (llava, None), "lora": (llava, LORA), "qwen": (qwen2_5_vl, None)}


def trainer_in(folder, base, adapter, *callbacks, policy=None, rewards=None, **more):
    """A trainer as a user's script makes it each time it is run, of two steps with a KL term."""
    data = with_images([PILImage.new("RGB", (32, 32), (30 * i, 255 - 30 * i, 128)) for i in range(8)])
    policy = policy or load_policy(base)
    options = {"per_device_train_batch_size": 8, "num_generations": 4, "max_steps": 2, "learning_rate": 3e-2}
    options |= {"save_strategy": "steps", "save_steps": 1, "beta": 0.1, "peft_config": adapter, "callbacks": callbacks}
    if "eval_strategy" in more:
        options["evaluated"] = data
    # as one more image would be asked for
    options["generation_kwargs"] = {"suppress_tokens": [policy[0].config.image_token_id]}
    torch.manual_seed(0)  # an adapter begins the same way
    rewards = rewards or [MetricReward("length", name="length")]
    return make_trainer(policy, rewards, data, folder, **options, **more)


@pytest.fixture(scope="module", params=KINDS)
def whole(request, tmp_path_factory):
    """A whole training: its trainer, its folder, and its adapter."""
    (make, adapter), folder = KINDS[request.param], tmp_path_factory.mktemp("whole")
    for part in make():
        part.save_pretrained(folder / "base")
    trainer = trainer_in(folder, folder / "base", adapter)
    trainer.train()
    return SimpleNamespace(trainer=trainer, folder=folder, adapter=adapter)


def curve(trainer):
    names = ("reward", "reward_std", "loss", "kl", "grad_norm", "completions/mean_length")
    return [[float(entry[name]) for name in names] for entry in trainer.state.log_history if "reward" in entry]


def assert_same(first, second):
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def run_again(whole, folder, *callbacks):
    return trainer_in(folder, whole.folder / "base", whole.adapter, *callbacks)


def test_a_resumed_training_equals_an_unbroken_one_and_its_policy_is_loaded_whole(whole, tmp_path):
    with pytest.raises(Stop):
        run_again(whole, tmp_path, StopAfter(2)).train()
    resumed = run_again(whole, tmp_path, ResumeWeights())
    (tmp_path / "checkpoint-99").mkdir()  # cut by a kill
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    resumed.train(resume_from_checkpoint=last_checkpoint(tmp_path))
    assert curve(resumed) == curve(whole.trainer)
    assert len(curve(resumed)) == 2
    policy, processor = load_policy(tmp_path / "checkpoint-2")
    assert isinstance(policy, PeftModel) == (whole.adapter is not None)
    assert any(parameter.requires_grad for parameter in policy.parameters())
    assert type(processor) is type(whole.trainer.processing_class)
    for model in (resumed.model, policy):
        assert_same(model.state_dict(), whole.trainer.model.state_dict())


@only_full
def test_the_best_policy_is_the_one_in_memory_at_the_end(whole, tmp_path):
    def first_step_is_best(trainer_state, completions, **_):
        bonus = 1000.0 * (trainer_state.global_step == 1)
        return [bonus + len(completion[0]["content"].split()) for completion in completions]

    best = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8, "load_best_model_at_end": True}
    best |= {"metric_for_best_model": "eval_reward", "rewards": [first_step_is_best]}
    trainer = trainer_in(tmp_path, whole.folder / "base", whole.adapter, ResumeWeights(), **best)
    trainer.train()
    assert trainer.state.best_global_step == 1
    best_policy, _ = load_policy(tmp_path / "checkpoint-1")
    assert_same(trainer.model.state_dict(), best_policy.state_dict())
    last_policy, _ = load_policy(tmp_path / "checkpoint-2")
    assert not all(map(torch.equal, last_policy.parameters(), best_policy.parameters()))


@only_full
def test_a_reference_that_moves_is_refused(whole, tmp_path):
    with pytest.raises(ConfigError, match="set sync_ref_model=False, or leave out ResumeWeights"):
        trainer_in(tmp_path, whole.folder / "base", None, ResumeWeights(), sync_ref_model=True).train()


def changed(folder, tmp_path, change):
    """A copy of a checkpoint with other weights."""
    copy = shutil.copytree(folder, tmp_path / change.__name__)
    (file,) = copy.glob("*.safetensors")
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    return copy


def without_one(weights):
    weights.pop(max(weights))
    return weights


def with_another(weights):
    name = max(weights)
    other = name.replace("layers.0", "layers.9") if "layers.0" in name else f"{name}.more"
    return {**weights, other: weights[name] + 0}


def test_a_weight_that_is_missing_or_left_over_raises(whole, tmp_path):
    for change, message in ((with_another, "has 1 weight"), (without_one, "lacks 1 weight")):
        folder = changed(whole.folder / "checkpoint-1", tmp_path, change)
        with pytest.raises(CheckpointError, match=message):
            load_policy(folder)
    with pytest.raises(CheckpointError, match=message):
        run_again(whole, tmp_path, ResumeWeights(folder)).train(resume_from_checkpoint=str(folder))


def test_a_policy_from_the_checkpoint_is_no_reference_of_the_kl_term(whole):
    """TRL would take the reference from where the policy was loaded."""
    checkpoint = whole.folder / "checkpoint-1"
    trainer = trainer_in(whole.folder, None, None, ResumeWeights(), policy=load_policy(checkpoint))
    with pytest.raises(CheckpointError, match="reference of the KL"):
        trainer.train(resume_from_checkpoint=str(checkpoint))


@only_full
def test_another_checkpoint_than_the_one_resumed_from_raises(whole, tmp_path):
    state = whole.folder / "checkpoint-1" / "trainer_state.json"
    other = json.loads(state.read_text())
    other["log_history"][0]["reward"] = "9"
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / state.name).write_text(json.dumps(other))
    with pytest.raises(CheckpointError, match="give the folder that it resumes from"):
        run_again(whole, tmp_path, ResumeWeights()).train(resume_from_checkpoint=str(state.parent))


@only_full
@pytest.mark.parametrize(
    ("name", "kept"), [("trainer_state.json", 0.5), ("*model.safetensors", 0.5), ("optimizer.pt", 0.9), ("rng*", 0)]
)
def test_a_checkpoint_that_was_cut_is_passed_over(name, kept, whole, tmp_path, caplog):
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    (file,) = (tmp_path / "checkpoint-2").glob(name)
    file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    assert "checkpoint-2 is not complete, as after a kill, and is passed over" in caplog.text
    assert file.name in caplog.text


def shorter(weights):
    return {name: value[:1].clone() if value.ndim == 1 else value for name, value in weights.items()}


def test_files_that_do_not_fit_are_refused(tmp_path):
    for wrong in ({"peft_config": LORA}, {"lora": True}):
        with pytest.raises(ConfigError, match=r"give peft_config=LoraConfig\(...\) to the trainer"):
            load_policy("embedded", **wrong)
    (tmp_path / "checkpoint-5").mkdir()
    with pytest.raises(CheckpointError, match=r"has no config\.json; it holds checkpoint-5"):
        load_policy(tmp_path)
    model, processor = llava()
    model.save_pretrained(tmp_path / "full")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_policy(tmp_path / "full")  # no processor there
    with pytest.raises(CheckpointError, match="needs no base"):
        load_policy(tmp_path / "full", base=model)
    processor.save_pretrained(tmp_path / "full")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_policy(changed(tmp_path / "full", tmp_path, shorter))
    get_peft_model(model, LORA).save_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="give base="):
        load_policy(tmp_path / "adapter")
