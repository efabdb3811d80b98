"""Runs that are killed and resumed, and runs in two processes, end where an unbroken run in one process ends."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import DatasetDict

from reward.errors import OutputError
from reward.scenes import make_dataset
from reward.training import figures
from reward.training.loop import train
from tests.reward.training.small_runs import (
    TWO,
    Killed,
    record,
    same_weights,
    small_beitscore,
    small_config,
    train_until_killed,
    weights,
)

pytestmark = pytest.mark.slow

# Every source of chance at once: dropout, references left out and chosen, a schedule, and states between epochs.
CHANCY = small_config(
    **{"scenes_train": 6, "epochs": 2, "eval_steps": 1, "accumulation": 2, "batch_size": 3, "schedule": "linear"},
    **{"warmup_ratio": 0.0, "reference_free_rate": 0.5, "max_references": 1},
    model={"text": {"architecture": {"attention_dropout": 0.3}}},
)  # three steps an epoch
STAGED = small_beitscore(
    **{"stages": TWO, "schedule": "linear", "eval_steps": 2, "eval_batch_size": 16},
    model={"config": {"drop_path": 0.3}},
)
RUNS = {"vela": CHANCY, "beitscore": STAGED}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return {metric: train(metric, "scenes", folder / metric, config) for metric, config in RUNS.items()}


@pytest.mark.parametrize(
    ("metric", "batches", "left"),
    [
        pytest.param("vela", 7, "checkpoints/checkpoint-2", id="in the middle of an epoch"),
        pytest.param("beitscore", 5, "stages/1a/checkpoints/checkpoint-2", id="in the middle of a stage"),
        pytest.param("beitscore", 9, "stages/2/training.json", id="in the last stage, before its first state"),
    ],
)
def test_a_killed_run_ends_as_an_unbroken_one(metric, batches, left, whole, tmp_path, monkeypatch):
    config = RUNS[metric]
    train_until_killed(metric, tmp_path, config, monkeypatch, batches=batches)
    assert (tmp_path / left).exists()
    assert not (tmp_path / "model.safetensors").exists()
    resumed = train(metric, "scenes", tmp_path, config, resume=True)
    assert same_weights(whole[metric].folder, tmp_path)
    assert (resumed.figures, resumed.steps) == (whole[metric].figures, whole[metric].steps)
    assert not list(tmp_path.rglob("checkpoints"))
    assert metric != "vela" or record(tmp_path)["resumed"]


@pytest.mark.parametrize("taus", [[0.5, 0.4], [0.5, 0.4, 0.3]], ids=["before its early stop", "after it"])
def test_a_killed_run_keeps_what_is_used_of_its_patience(taus, tmp_path, monkeypatch):
    real, left = figures.rating_figures, list(taus)

    def scripted(*args):
        if not left:
            raise Killed
        return {**real(*args), "tau_c": left.pop(0)}

    monkeypatch.setattr(figures, "rating_figures", scripted)
    config = small_config(epochs=9, patience=2, eval_steps=4)
    with pytest.raises(Killed):
        train("vela", "scenes", tmp_path, config)
    left += [0.3] * 9
    result = train("vela", "scenes", tmp_path, config, resume=True)
    assert (result.steps, result.best_step) == (12, 4)


def test_a_run_from_a_checkpoint_goes_on_from_its_own_state_and_with_that_one_alone(whole, tmp_path, monkeypatch):
    settings = {"epochs": 1, "eval_steps": 2, "learning_rates": {"text": 1e-4}}  # two more groups of the optimizer
    config, start = replace(small_config(**settings), model={}), whole["vela"].folder
    unbroken = train("vela", "scenes", tmp_path / "unbroken", config, init=start)
    folder = tmp_path / "killed"
    train_until_killed("vela", folder, config, monkeypatch, batches=8, init=start)
    with pytest.raises(OutputError, match=r"init\.source was .*vela.* and is .*unbroken.*init\.fingerprint was"):
        train("vela", "scenes", folder, config, resume=True, init=unbroken.folder)
    assert train("vela", "scenes", folder, config, resume=True, init=start).before == unbroken.before
    assert same_weights(unbroken.folder, folder)


TWO_PROCESSES = """
import sys
from accelerate import debug_launcher
import reward.metrics.vela.training, reward.training.trainer  # once, before there are two processes
from reward.training.loop import train
from tests.reward.training.small_runs import small_config

if __name__ == "__main__":
    data = ["scenes", sys.argv[2]]
    debug_launcher(train, ("vela", data, sys.argv[1], small_config(batch_size=3, max_steps=3)), num_processes=2)
"""


def test_two_processes_train_like_one_with_twice_the_batch(tmp_path):
    script, extra = tmp_path / "two.py", str(tmp_path / "extra")
    script.write_text(TWO_PROCESSES)
    DatasetDict({part: make_dataset(4, seed) for seed, part in enumerate(("train", "val"))}).save_to_disk(extra)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, script, tmp_path / "two", extra]
    launched = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert launched.returncode == 0, launched.stderr
    train("vela", ["scenes", extra], tmp_path / "one", small_config(batch_size=6, max_steps=3))
    two, one = record(tmp_path / "two"), record(tmp_path / "one")
    assert (two["processes"], one["processes"], two["steps"]) == (2, 1, one["steps"])
    assert (two["data"], two["rows"]) == (["scenes", extra], {"train": 48, "val": 36})
    assert two["figures"]["val"]["mse"] == pytest.approx(one["figures"]["val"]["mse"], abs=1e-4)
    large, small = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(large[name], small[name], atol=1e-3) for name in large)
