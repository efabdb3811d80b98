"""The monitor of TRL's trainers: figures, warnings, stop, the best policy, resume, two processes."""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback

from integrations.trl import ResumeWeights, RewardMonitor, load_policy
from integrations.trl.held_out import write_held_out
from integrations.trl.monitor_report import show_table
from reward import MetricReward, WeightedReward
from reward.errors import ConfigError
from tests.integrations.short_training import BOTH_TRAINERS, COLOURS, make_trainer, policy_in, with_images
from tests.integrations.trl.watched import TRUTHS, Planted, captioned, held_out, watched, words
from tests.toy_captioners import llava


def entries(trainer, prefix="monitor/"):
    return [entry for entry in trainer.state.log_history if any(name.startswith(prefix) for name in entry)]


class Stop(Exception):
    pass


class StopAfter(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise Stop


@pytest.mark.parametrize(("trainer_class", "config"), BOTH_TRAINERS)
def test_the_training_itself_is_as_without_a_monitor(trainer_class, config, tmp_path):
    options = {"max_steps": 3, "logging_steps": 2, "beta": 0.1, "learning_rate": 3e-2}
    reward = Planted((0.1, 0.2, 0.3, 0.4, 0.5), "reward")

    def make(name):  # which also sets the seed
        policy, data = policy_in(tmp_path / "policy"), with_images(COLOURS * 2)
        return make_trainer(policy, [reward, words], data, tmp_path / name, trainer_class, config, **options)

    alone = make("alone")
    alone.train()
    seen = make("seen")
    monitor = RewardMonitor(seen, held_out(), captioned, every=1, keep_best=False)
    seen.add_callback(monitor)
    seen.train()
    ours, theirs = ([entry for entry in one.state.log_history if "loss" in entry] for one in (seen, alone))
    assert len(ours) == len(theirs) == 1
    for name in theirs[0].keys() - {"step_time"}:
        assert ours[0][name] == theirs[0][name], name
    for one, other in zip(seen.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)

    logs = entries(seen)
    assert [entry["step"] for entry in logs] == [0, 1, 2, 3]
    assert logs[0]["monitor/kl"] == pytest.approx(0, abs=1e-6)
    assert logs[3]["monitor/kl"] > 1e-3
    last = logs[3]
    rows = monitor.history[3]["rows"]
    assert last["monitor/rewards/words"] == np.mean([len(row["caption"].split()) for row in rows])
    parts = [last[f"monitor/rewards/{name}"] for name in ("reward", "words")]
    assert last["monitor/reward"] == pytest.approx(sum(parts))
    assert last["monitor/measures/captioned"] == pytest.approx(np.mean([row["measures"]["captioned"] for row in rows]))
    assert 0 < last["monitor/entropy"] < np.log(30)
    assert 0 <= last["monitor/truncated"] <= 1
    assert last["monitor/length"] <= 6


def test_a_planted_parting_warns_once_with_step_and_captions(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "integrations.trl.monitor"):
        trainer, _ = watched(tmp_path, "parts")
        trainer.train()
    warnings = [record.getMessage() for record in caplog.records if "have parted" in record.getMessage()]
    assert len(warnings) == 1
    assert "step 3: the optimised reward (reward, words) and truth have parted. Since step 2" in warnings[0]
    assert warnings[0].count("  image ") == 3
    assert "    step 3 (reward" in warnings[0]
    assert [entry["monitor/parted"] for entry in entries(trainer)] == [0, 0, 0, 1, 1]
    assert entries(trainer)[3]["monitor/fall"] == pytest.approx(0.3, abs=0.03)
    assert "monitor/kl is not logged" in caplog.text  # a full fine-tune without a reference model
    assert not any("monitor/kl" in entry for entry in entries(trainer))


def test_a_second_measure_that_takes_the_reward_with_it_is_warned_of_once(tmp_path, caplog):
    trainer, monitor = watched(tmp_path, rewards=(100, 300, 200, 100, 0), monitor={"on_parting": "stop"})
    trainer.train()
    warnings = [record.getMessage() for record in caplog.records if "is unstable" in record.getMessage()]
    assert len(warnings) == 1
    assert "step 3: truth and the optimised reward (reward, words) have fallen" in warnings[0]
    assert "Captions that fall most:" in warnings[0]
    assert [check["warned"] for check in monitor.history] == [[], [], ["shared_sentence"], ["fallen"], []]
    assert [check["figures"]["fallen"] for check in monitor.history] == [0, 0, 0, 1, 1]


class EasyAtFirst(Planted):
    """Before training, only three images have a value, and a high one; at step 1 none has."""

    def __call__(self, completions, image, trainer_state, **columns):
        values = super().__call__(completions, image, trainer_state, **columns)
        known = {0: 3, 1: 0}.get(trainer_state.global_step)
        return values if known is None else [0.95] * known + [None] * (len(values) - known)


def test_checks_are_compared_on_images_that_have_a_score_at_both(tmp_path, caplog):
    trainer, monitor = watched(tmp_path, second=EasyAtFirst(TRUTHS["parts"], "truth"))
    trainer.train()
    assert [check["figures"]["best_step"] for check in monitor.history] == [0, 1, 2, 2, 2]
    assert [check["figures"]["images"] for check in monitor.history] == [3, 0, 12, 12, 12]
    assert "step 1: truth gave no value for any of the 12 held-out captions; the training goes on" in caplog.text
    assert monitor.history[3]["warned"] == ["parted"]
    assert "standard errors over 12 images" in caplog.text
    assert json.loads((tmp_path / "best-by-monitor" / "monitor.json").read_text())["step"] == 2


def constant(completions, value, **columns):
    return [value] * len(completions)


def test_rewards_of_one_name_are_told_apart(tmp_path):
    """As two partials of one function have."""
    rewards = [functools.partial(constant, value=value) for value in (1.0, 2.0)]
    trainer = make_trainer(llava(), rewards, with_images(COLOURS), tmp_path, max_steps=1, reward_weights=[0.5, 0.25])
    monitor = RewardMonitor(trainer, held_out(), captioned, keep_best=False)
    trainer.add_callback(monitor)
    trainer.train()
    figures = monitor.history[0]["figures"]
    assert [figures[name] for name in ("rewards/constant", "rewards/constant_2", "reward")] == [1.0, 2.0, 1.0]


def test_a_policy_that_comes_to_write_one_sentence_on_every_image_is_warned_of_once(tmp_path, caplog, monkeypatch):
    def write(trainer, rows, share, **options):
        same = range((0, 0, 8, 12, 12)[trainer.state.global_step])
        texts = [f"{'It is night' if index in same else f'Sky {index}'}. A star, number {index}." for index in share]
        written = write_held_out(trainer, rows, share, **options)
        return [replace(one, text=text) for one, text in zip(written, texts, strict=True)]

    monkeypatch.setattr("integrations.trl.monitor.write_held_out", write)
    trainer, monitor = watched(tmp_path, "holds")
    trainer.train()
    warnings = [record.getMessage() for record in caplog.records if "the same sentence" in record.getMessage()]
    assert len(warnings) == 1
    assert "step 3: the share of captions with one and the same sentence is 1.00, and was 0.08 at step 0" in warnings[0]
    assert "It is night. A star" in warnings[0]
    assert [check["warned"] for check in monitor.history] == [[], [], [], ["shared_sentence"], []]
    shares = [entry["monitor/shared_sentence"] for entry in entries(trainer)]
    assert shares == pytest.approx([1 / 12, 1 / 12, 2 / 3, 1, 1])


def test_a_run_that_does_not_part_is_silent_and_one_that_does_may_stop(tmp_path, caplog):
    trainer, _ = watched(tmp_path / "holds", "holds", monitor={"on_parting": "stop"})
    trainer.train()
    assert trainer.state.global_step == 4
    assert "parted" not in caplog.text
    trainer, monitor = watched(tmp_path / "parts", "parts", monitor={"on_parting": "stop", "keep_best": False})
    trainer.train()
    assert trainer.state.global_step == 3
    assert [check["step"] for check in monitor.history] == [0, 1, 2, 3]
    assert not (tmp_path / "parts" / "best-by-monitor").exists()


def test_a_resumed_run_goes_on_with_history_and_best(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 1}
    whole, monitor = watched(tmp_path / "whole", **saving)
    whole.train()
    broken, _ = watched(tmp_path / "broken", **saving)
    broken.add_callback(StopAfter(3))
    with pytest.raises(Stop):  # after the check of step 3, before its checkpoint
        broken.train()
    resumed, again = watched(tmp_path / "broken", "parts", ResumeWeights(), **saving)
    resumed.train(resume_from_checkpoint=True)
    assert again.history == monitor.history
    assert [check["warned"] for check in again.history] == [[], [], ["shared_sentence"], ["parted"], []]

    for folder in ("whole", "broken"):  # the best is step 2 in both, and can be loaded
        best, _ = load_policy(tmp_path / folder / "best-by-monitor")
        at_two, _ = load_policy(tmp_path / folder / "checkpoint-2")
        assert all(torch.equal(a, b) for a, b in zip(best.parameters(), at_two.parameters(), strict=True))
        record = json.loads((tmp_path / folder / "best-by-monitor" / "monitor.json").read_text())
        assert record["step"] == 2
        assert record["figures"] == monitor.history[2]["figures"]
    assert not list(tmp_path.glob("*/best-by-monitor.*"))

    other, _ = watched(tmp_path / "broken", "parts", rows=held_out(13))
    with pytest.raises(ConfigError, match="with other held_out than"):
        other.train(resume_from_checkpoint=True)


def test_sampled_captions_do_not_depend_on_the_batch_and_adapters_give_the_kl(tmp_path):
    lora = {"peft_config": LoraConfig(r=2, target_modules="all-linear"), "max_steps": 1}
    found = []
    for batch, temperature in ((3, 1.0), (12, 1.0), (12, None)):
        options = {"batch_size": batch, "temperature": temperature, "seed": 5}
        trainer, monitor = watched(tmp_path / f"{batch}{temperature}", monitor=options, **lora)
        trainable = [name for name, value in trainer.model.named_parameters() if value.requires_grad]
        trainer.train()
        assert [name for name, value in trainer.model.named_parameters() if value.requires_grad] == trainable
        found.append([[row["caption"] for row in check["rows"]] for check in monitor.history])
        kl = [entry["monitor/kl"] for entry in entries(trainer)]
        assert kl[0] == pytest.approx(0, abs=1e-6) != kl[1]
    assert found[0] == found[1] != found[2]


def test_a_table_with_pictures_where_a_tracker_is_installed(tmp_path, monkeypatch):
    sent = []
    tracker = types.SimpleNamespace(run=object(), log=sent.append, Image=lambda image: image.size)
    tracker.Table = lambda dataframe: dataframe
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    monkeypatch.setitem(sys.modules, "trackio", None)  # importing it fails
    trainer, monitor = watched(tmp_path, max_steps=1, monitor={"keep_best": False})
    trainer.train()
    show_table(["wandb", "trackio"], monitor.rows, monitor.history, monitor.second)
    (logged,) = sent
    table = logged["monitor/captions"]
    assert len(table) == 12
    assert set(table["image"]) == {(32, 32)}
    assert {"at the start", "now", "reward", "truth"} <= set(table.columns)


def test_two_processes_give_the_figures_of_one(tmp_path):
    trainer, monitor = watched(
        tmp_path / "one", policy=policy_in(tmp_path / "policy"), max_steps=1, beta=0.1, learning_rate=0.0
    )
    trainer.train()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    done = subprocess.run(
        [*command, "tests.integrations.trl.watched", str(tmp_path / "two")],
        env=environment, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "two" / "monitor.jsonl").read_text().splitlines()[1:]]
    assert [line["step"] for line in lines] == [0, 1]
    for ours, theirs in zip(monitor.history, lines, strict=True):
        assert [row["caption"] for row in ours["rows"]] == [row["caption"] for row in theirs["rows"]]
        assert theirs["figures"] == pytest.approx(ours["figures"], abs=1e-5)
    assert load_policy(tmp_path / "two" / "best-by-monitor")


def rows_without(column):
    return held_out().remove_columns(column)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": held_out().select([])}, "held_out has no rows"),
        ({"rows": rows_without("image")}, "no column 'image' or 'images'"),
        ({"rows": rows_without("prompt")}, "'prompt' with messages"),
        ({"rows": held_out().to_iterable_dataset()}, "must be a datasets.Dataset"),
        ({"monitor": {"every": 0}}, "every must be a whole number of at least 1, got 0"),
        ({"monitor": {"temperature": 0.0}}, "temperature must be above 0"),
        ({"monitor": {"on_parting": "halt"}}, "on_parting must be"),
        ({"monitor": {"also": [words, words]}}, "the same name"),
        ({"second": words}, "'words' is the optimised reward 'words'"),
    ],
)
def test_what_cannot_be_watched_says_so_at_once(change, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        watched(tmp_path, **change)


def test_another_metric_on_the_checkpoint_of_the_reward_is_warned_of(tmp_path, caplog):
    trainer = make_trainer(llava(), [MetricReward("refclipscore", "org/clip")], with_images(COLOURS), tmp_path)
    for source, warned in (("org/other", False), ("org/clip", True)):
        RewardMonitor(trainer, held_out(), MetricReward("clipscore", source, name="other"))
        assert ("'other' reads the same checkpoint as the reward 'refclipscore_clip'" in caplog.text) == warned


def test_the_same_metric_under_another_name_is_the_optimised_one(tmp_path):
    trainer = make_trainer(llava(), [MetricReward("length", name="one")], with_images(COLOURS), tmp_path)
    with pytest.raises(ConfigError, match="is the optimised reward"):
        RewardMonitor(trainer, held_out(), MetricReward("length", name="other"))
    both = make_trainer(llava(), [WeightedReward([(words, 0.5), (captioned, 0.5)])], with_images(COLOURS), tmp_path)
    with pytest.raises(ConfigError, match="or a part of it"):
        RewardMonitor(both, held_out(), captioned)
    with pytest.raises(ConfigError, match="is the trainer's train_dataset"):
        RewardMonitor(trainer, trainer.train_dataset, words)
    with pytest.raises(ConfigError, match="needs a GRPOTrainer"):
        RewardMonitor(Dataset.from_dict({}), held_out(), words)


@pytest.mark.parametrize(
    ("second", "error", "message"),
    [
        (lambda completions, **_: [None] * len(completions), ConfigError, "gave no value for any of the 12"),
        (lambda completions, **_: [0.5], ConfigError, "gave 1 values for 12 captions"),
    ],
)
def test_a_measure_that_cannot_measure_stops_the_training_at_its_start(second, error, message, tmp_path):
    trainer, _ = watched(tmp_path, second=second)
    with pytest.raises(error, match=message):
        trainer.train()
    assert trainer.state.global_step == 0


def test_few_images_are_logged_but_never_parted(tmp_path, caplog):
    trainer, _ = watched(tmp_path, "parts", rows=held_out(4))
    assert "nothing will be called parted" in caplog.text
    trainer.train()
    assert all(entry["monitor/parted"] == 0 for entry in entries(trainer))
