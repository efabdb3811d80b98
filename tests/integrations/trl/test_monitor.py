"""The monitor of TRL's trainers: what it keeps and logs, warnings, stop, the best policy, resume, two processes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from integrations.trl import ResumeWeights, RewardMonitor, load_policy
from reward import CombinedReward, MetricReward
from reward.errors import ConfigError
from tests.integrations.short_training import BOTH_TRAINERS, COLOURS, make_trainer, policy_in, with_images
from tests.integrations.trl.watched import EVALUATING, RISES, TRUTHS, Planted, captioned, held_out, watched, words

pytestmark = pytest.mark.slow


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


class Stop(Exception):
    pass


class StopAfter(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise Stop


@pytest.mark.parametrize(("trainer_class", "config"), BOTH_TRAINERS)
def test_the_training_is_as_without_a_monitor_and_the_second_measure_is_asked_in_evaluations(
    trainer_class, config, tmp_path
):
    options = {"max_steps": 3, "logging_steps": 2, "beta": 0.1, "learning_rate": 3e-2, **EVALUATING}
    options["per_device_eval_batch_size"] = 6
    asked = []

    def second(completions, image, trainer_state, **_):
        asked.append((trainer_state.global_step, len(completions)))
        return captioned(completions, image)

    def make(name):  # which also sets the seed
        policy, data = policy_in(tmp_path / "policy"), with_images(COLOURS * 2)
        rewards = [Planted(RISES, "reward"), words]
        return make_trainer(
            policy, rewards, data, tmp_path / name, trainer_class, config, evaluated=held_out(), **options
        )

    alone = make("alone")
    alone.train()
    seen = make("seen")
    monitor = RewardMonitor(seen, second)
    seen.add_callback(monitor)
    seen.train()
    for prefix in ("loss", "eval_loss"):
        ours, theirs = ([entry for entry in one.state.log_history if prefix in entry] for one in (seen, alone))
        assert len(ours) == len(theirs) > 0
        for one, other in zip(ours, theirs, strict=True):
            names = [name for name in other if "time" not in name and "per_second" not in name]
            assert {name: one[name] for name in names} == {name: other[name] for name in names}
    assert all(map(torch.equal, seen.model.parameters(), alone.model.parameters()))
    assert sum(count for _, count in asked) == 4 * 12
    assert sorted({step for step, _ in asked}) == [0, 1, 2, 3]
    assert logged(seen, "rewards/second/mean") == [None]

    assert [check["step"] for check in monitor.history] == [0, 1, 2, 3]
    rows = list(monitor.history[3]["rows"].values())
    assert len(rows) == 12
    assert logged(seen, "eval_rewards/second/mean")[3] == pytest.approx(np.mean([row["second"] for row in rows]))
    for row in rows:
        assert row["rewards"]["words"] == len(row["caption"].split())
        assert row["reward"] == pytest.approx(sum(row["rewards"].values()))
    lines = (tmp_path / "seen" / "monitor.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == monitor.history


@pytest.mark.parametrize("on_parting", ["warn", "stop"])
def test_a_planted_parting_warns_once_with_step_and_captions_and_may_stop(on_parting, tmp_path, caplog):
    trainer, _ = watched(tmp_path, "parts", on_parting=on_parting)
    trainer.train()
    (warning,) = [record.getMessage() for record in caplog.records if "have parted" in record.getMessage()]
    assert warning.startswith("step 4: the optimised reward (reward, words) and truth have parted. Since step 2")
    assert warning.count("  image ") == 3
    assert "    step 4 (reward" in warning
    assert logged(trainer, "monitor/parted") == [0, 0, 0, 0, 1]
    assert logged(trainer, "monitor/fall")[-1] == pytest.approx(0.5, abs=0.03)
    assert logged(trainer, "monitor/best_step")[-1] == 2
    assert trainer.state.global_step == 4


@pytest.mark.parametrize(("truth", "rewards"), [("holds", RISES), ("parts", (100, 300, 200, 100, 0))])
def test_a_run_that_does_not_part_is_silent(truth, rewards, tmp_path, caplog):
    trainer, _ = watched(tmp_path, truth, rewards=rewards, on_parting="stop")
    trainer.train()
    assert "have parted" not in caplog.text
    assert trainer.state.global_step == 4


class EasyAtFirst(Planted):
    """Before training, only three images have a value, and a high one; at step 1 none has."""

    def __call__(self, completions, image, trainer_state, **columns):
        values = super().__call__(completions, image, trainer_state, **columns)
        step, easy = trainer_state.global_step, [one.tobytes()[3] % 4 == 0 for one in image]
        return values if step > 1 else [0.95 if known and step == 0 else None for known in easy]


def test_checks_are_compared_on_images_that_have_a_score_at_both(tmp_path, caplog):
    trainer, monitor = watched(tmp_path, second=EasyAtFirst(TRUTHS["parts"], "truth"))
    trainer.train()
    assert 0 < sum(row["second"] is not None for row in monitor.history[0]["rows"].values()) < 6
    assert "step 1: truth gave no value for any of the 12 held-out images; the training goes on" in caplog.text
    assert [check["figures"]["best_step"] for check in monitor.history[2:]] == [2, 2, 2]
    assert monitor.history[4]["figures"]["images"] == 12
    assert monitor.history[4]["figures"]["parted"] == 1


def constant(completions, value, **columns):
    return [value] * len(completions)


async def later(completions, **columns):
    return [3.0] * len(completions)


async def second_later(completions, **columns):
    return [0.5 if completion else None for completion in completions]


def test_rewards_of_one_name_are_told_apart_and_asynchronous_ones_are_kept(tmp_path):
    """Two partials of one function have one name."""
    rewards = [functools.partial(constant, value=value) for value in (1.0, None)] + [later]
    trainer, monitor = watched(
        tmp_path, rewards=rewards, second=second_later, max_steps=1, reward_weights=[0.5, 0.25, 0.0]
    )
    trainer.train()
    for row in monitor.history[0]["rows"].values():
        assert row["rewards"] == {"constant": 1.0, "constant_2": None, "later": 3.0}
        assert (row["reward"], row["second"]) == (0.5, 0.5)  # as the trainer adds up: without what does not apply
    assert logged(trainer, "eval_rewards/constant_2/mean") == [None, None]


def test_a_resumed_run_goes_on_with_its_history_and_transformers_keeps_the_best_policy(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 1, "metric_for_best_model": "eval_rewards/truth/mean"}
    whole, monitor = watched(tmp_path / "whole", **saving)
    whole.train()
    best, _ = load_policy(whole.state.best_model_checkpoint)
    assert whole.state.best_global_step == 2
    assert len(list(best.parameters())) > 0

    broken, _ = watched(tmp_path / "broken", **saving)
    broken.add_callback(StopAfter(4))
    with pytest.raises(Stop):
        broken.train()
    resumed, again = watched(tmp_path / "broken", "parts", ResumeWeights(), **saving)
    resumed.train(resume_from_checkpoint=True)
    assert again.history[:3] == monitor.history[:3]
    assert [check["step"] for check in again.history] == [0, 1, 2, 3, 4]
    assert again.history[4]["figures"]["parted"] == 1
    assert [json.loads(line)["step"] for line in (tmp_path / "broken" / "monitor.jsonl").open()] == [0, 1, 2, 3, 4]


def test_two_processes_keep_every_image_once(tmp_path):
    policy_in(tmp_path / "policy")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(
        [*command, "tests.integrations.trl.watched", str(tmp_path / "two"), "1", "5"],
        env=environment, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for images in (1, 5):
        lines = (tmp_path / "two" / str(images) / "monitor.jsonl").read_text().splitlines()
        checks = [json.loads(line) for line in lines]
        assert [check["step"] for check in checks] == [0, 1]
        truth, state = Planted(TRUTHS["parts"], "truth"), SimpleNamespace(global_step=0)
        expected = sorted(truth([None] * images, [row["image"] for row in held_out(images)], state))
        assert sorted(row["second"] for row in checks[0]["rows"].values()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"on_parting": "halt"}, "on_parting must be"),
        ({"eval_on_start": False}, "eval_on_start=True"),
        ({"eval_strategy": "no", "eval_on_start": False}, 'eval_strategy="steps"'),
        ({"second": words}, "'words' is the optimised reward 'words'"),
        (
            {"rewards": [MetricReward("length", name="one")], "second": MetricReward("length", name="other")},
            "optimised",
        ),
        ({"rewards": [CombinedReward([words, captioned])], "second": captioned}, "or a part of it"),
    ],
)
def test_what_cannot_be_watched_says_so_at_once(change, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        watched(tmp_path, **change)


def test_what_is_no_trainer_of_rewards_is_refused():
    with pytest.raises(ConfigError, match="needs a GRPOTrainer"):
        RewardMonitor(object(), words)


def test_a_measure_that_cannot_measure_stops_the_training_at_its_start(tmp_path):
    trainer, _ = watched(tmp_path, second=lambda completions, **_: [None] * len(completions))
    with pytest.raises(ConfigError, match="gave no value for any of the 12"):
        trainer.train()
    assert trainer.state.global_step == 0
