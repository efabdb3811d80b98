"""The monitor of TRL's trainers: what it keeps and logs, warnings, stop, the best policy, resume, two processes."""

import functools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trl import RLOOConfig, RLOOTrainer

from integrations.trl import ResumeWeights, RewardMonitor, load_policy
from reward import CombinedReward, MetricReward
from reward.errors import ConfigError
from tests.integrations.short_training import Stop, StopAfter, policy_in
from tests.integrations.trl.watched import (
    PARTS,
    RISES,
    Planted,
    held_out,
    train_as_one_of_two,
    trainer_of,
    watched,
    words,
)
from tests.toys.json_lines import read_lines
from tests.toys.two_processes import run_in_two

pytestmark = pytest.mark.slow

SAVING = {"save_strategy": "steps", "save_steps": 1, "metric_for_best_model": "eval_rewards/truth/mean"}


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def figures(trainer):
    """All that was logged but times."""
    logs = trainer.state.log_history
    return [{name: row[name] for name in row if "time" not in name and "per_second" not in name} for row in logs]


def test_the_training_is_as_without_a_monitor_and_the_second_measure_is_asked_in_evaluations(tmp_path):
    asked = []

    def second(completions, trainer_state, **_):
        asked.append((trainer_state.global_step, len(completions)))
        return [len(completion[0]["content"]) / 100 for completion in completions]

    def make(name):
        options = {"max_steps": 2, "logging_steps": 2, "beta": 0.1, "per_device_eval_batch_size": 2, "images": 4}
        rewards, policy = [Planted(RISES, "reward"), words], policy_in(tmp_path / "policy")
        return trainer_of(tmp_path / name, rewards, RLOOTrainer, RLOOConfig, policy=policy, **options)

    alone = make("alone")
    alone.train()
    seen = make("seen")
    monitor = RewardMonitor(seen, second)
    seen.add_callback(monitor)
    seen.train()
    own = [row for row in figures(seen) if not any(name.startswith("monitor/") for name in row)]
    assert len(own) == len(figures(alone)) > 3
    for ours, theirs in zip(own, figures(alone), strict=True):
        assert {name: ours[name] for name in theirs} == theirs
    assert all(map(torch.equal, seen.model.parameters(), alone.model.parameters()))
    assert asked == [(step, 2) for step in range(3) for _ in range(2)]
    assert logged(seen, "rewards/second/mean") == [None]

    assert [check["step"] for check in monitor.history] == [0, 1, 2]
    rows = list(monitor.history[2]["rows"].values())
    assert len(rows) == 4
    assert logged(seen, "eval_rewards/second/mean")[2] == pytest.approx(np.mean([row["second"] for row in rows]))
    for row in rows:
        assert row["rewards"]["words"] == len(row["caption"].split())
        assert row["reward"] == pytest.approx(sum(row["rewards"].values()))
    assert read_lines(tmp_path / "seen" / "monitor.jsonl") == monitor.history


@pytest.mark.parametrize("on_parting", ["warn", "stop"])
def test_a_planted_parting_warns_once_with_step_and_captions_and_may_stop(on_parting, tmp_path, caplog):
    trainer, _ = watched(tmp_path, on_parting=on_parting, max_steps=5)
    trainer.train()
    (warning,) = [record.getMessage() for record in caplog.records if "have parted" in record.getMessage()]
    assert warning.startswith("step 4: the optimised reward (reward, words) and truth have parted. Since step 2")
    assert warning.count("  image ") == 3
    assert "    step 4 (reward" in warning
    assert re.search(r"the reward by -?\d+\.\d{3} \[.*\]\. Captions", warning)
    assert logged(trainer, "monitor/parted")[:5] == [0, 0, 0, 0, 1]
    assert logged(trainer, "monitor/fall")[1] == pytest.approx(0.5, abs=0.03)
    assert logged(trainer, "monitor/best_step")[4] == 2
    assert trainer.state.global_step == (4 if on_parting == "stop" else 5)


def constant(completions, value, **_):
    return [value] * len(completions)


async def later(completions, **_):
    return [3.0] * len(completions)


async def second_at_first(completions, trainer_state, **_):
    return [None if trainer_state.global_step else 0.5] * len(completions)


def test_rewards_of_one_name_are_told_apart_and_asynchronous_ones_are_kept(tmp_path, caplog):
    """Two partials of one function have one name."""
    rewards = [functools.partial(constant, value=value) for value in (1.0, None)] + [later]
    weights = [0.5, 0.25, 0.0]
    trainer, monitor = watched(tmp_path, second_at_first, rewards=rewards, max_steps=1, reward_weights=weights)
    trainer.train()
    for row in monitor.history[0]["rows"].values():
        assert row["rewards"] == {"constant": 1.0, "constant_2": None, "later": 3.0}
        assert (row["reward"], row["second"]) == (0.5, 0.5)  # as the trainer adds up: without what does not apply
    assert logged(trainer, "eval_rewards/constant_2/mean") == [None, None]
    assert "step 1: second_at_first gave a value for 0 of the 12 held-out images, too few to compare" in caplog.text


def test_a_resumed_run_goes_on_with_its_history_and_transformers_keeps_the_best_policy(tmp_path):
    trainer, broken = watched(tmp_path, **SAVING)
    trainer.add_callback(StopAfter(4))
    with pytest.raises(Stop):
        trainer.train()
    resumed, monitor = watched(tmp_path, **SAVING)
    resumed.add_callback(ResumeWeights())
    resumed.train(resume_from_checkpoint=True)
    assert monitor.history[:3] == broken.history[:3]
    assert [check["step"] for check in monitor.history] == [0, 1, 2, 3, 4]
    assert monitor.history[4]["figures"]["parted"] == 1
    assert read_lines(tmp_path / "monitor.jsonl") == monitor.history
    assert resumed.state.best_global_step == 2
    load_policy(resumed.state.best_model_checkpoint)


def first_image_only_at_step_two(completions, image, trainer_state, **_):
    """Where it is scored, it scores higher than ever; at step 3 nothing has a value."""
    step = trainer_state.global_step
    values = Planted((0.5, 0.6, 0.9, 0.9, 0.5), "truth")(completions, image, trainer_state)
    first = held_out(1)[0]["image"].tobytes()
    scored = [step < 2 or (step == 2 and one.tobytes() == first) for one in image]
    return [value if is_scored else None for value, is_scored in zip(values, scored, strict=True)]


first_image_only_at_step_two.__name__ = "truth"


def test_a_check_that_scored_one_image_is_neither_compared_with_nor_kept_as_the_best(tmp_path, caplog):
    trainer, _ = watched(tmp_path, first_image_only_at_step_two, max_steps=3, **SAVING)
    trainer.train()
    assert logged(trainer, "eval_rewards/truth/mean")[2] > 0.8  # a mean over one image
    assert trainer.state.best_global_step == 1
    assert logged(trainer, "monitor/best_step") == [0, 1, 1, 1]
    assert caplog.text.count("too few to compare with other checks") == 1
    assert "step 2: truth gave a value for 1 of the 12 held-out images" in caplog.text


class Expires:
    """A judge whose key expires after this step."""

    __name__ = "judge"

    def __init__(self, last_step):
        self.last_step = last_step

    def __call__(self, completions, trainer_state, **_):
        if trainer_state.global_step > self.last_step:
            raise PermissionError("401: the key has expired")
        return [0.5] * len(completions)


def test_a_second_measure_that_fails_later_on_does_not_end_the_training(tmp_path, caplog):
    trainer, monitor = watched(tmp_path, Expires(1), max_steps=3, per_device_eval_batch_size=6)
    trainer.train()
    assert trainer.state.global_step == 3
    assert caplog.text.count("401: the key has expired") == 1
    assert logged(trainer, "monitor/failed_calls") == [2, 4]
    assert {row["second"] for row in monitor.history[3]["rows"].values()} == {None}
    assert monitor.history[3]["figures"]["best_step"] == 1


def test_two_processes_keep_every_image_once(tmp_path):
    policy_in(tmp_path / "policy")
    run_in_two(train_as_one_of_two, tmp_path / "two")
    checks = read_lines(tmp_path / "two" / "monitor.jsonl")
    assert [check["step"] for check in checks] == [0, 1]
    shown = [row["image"] for row in held_out(5)]  # which two processes do not share evenly
    expected = Planted(PARTS, "truth")([None] * 5, shown, SimpleNamespace(global_step=0))
    values = [row["second"] for row in checks[0]["rows"].values()]
    assert sorted(values) == pytest.approx(sorted(expected))


def captioned(completions, **_):
    return [0.5] * len(completions)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"on_parting": "halt"}, "on_parting must be"),
        ({"eval_on_start": False}, "eval_on_start=True"),
        ({"evaluated": {"near": held_out(1), "far": held_out(2)}}, "the monitor watches one set of images"),
        ({"second": words}, "'words' is the optimised reward 'words'"),
        ({"rewards": [MetricReward("length", name="one")], "second": MetricReward("length", name="two")}, "optimised"),
        ({"rewards": [CombinedReward([words, captioned])], "second": captioned}, "or a part of it"),
    ],
)
def test_what_cannot_be_watched_says_so_at_once(change, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        watched(tmp_path, **change)
    with pytest.raises(ConfigError, match="needs a GRPOTrainer"):
        RewardMonitor(object(), words)


@pytest.mark.parametrize(
    ("second", "error", "message"),
    [
        (functools.partial(constant, value=None), ConfigError, "gave no value for any of the 12"),
        (Expires(-1), PermissionError, "401"),
    ],
)
def test_a_measure_that_cannot_measure_stops_the_training_at_its_start(second, error, message, tmp_path):
    trainer, _ = watched(tmp_path, second)
    with pytest.raises(error, match=message):
        trainer.train()
    assert trainer.state.global_step == 0
