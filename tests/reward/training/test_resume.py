"""Runs that are killed and resumed, and runs in two processes, end where an unbroken run in one process ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from reward.errors import OutputError
from reward.training import evaluation, run
from reward.training.loop import train
from reward.training.trainer import last_checkpoint
from tests.reward.training.small_runs import Killed, record, same_weights, small_config, train_until_killed, weights

# Every source of chance at once: dropout, references left out and chosen, a schedule, and states between epochs.
CHANCY: dict[str, Any] = {
    "epochs": 3,
    "schedule": "linear",
    "reference_free_rate": 0.5,
    "max_references": 1,
    "accumulation": 2,
    "batch_size": 3,
    "model": {"text": {"architecture": {"attention_dropout": 0.3}}},
}


@pytest.mark.parametrize(
    ("settings", "batches", "state"),
    [
        pytest.param({"eval_steps": 4}, 22, "checkpoint-8", id="in the middle of an epoch"),
        pytest.param({}, 20, "checkpoint-6", id="between epochs"),
    ],
)
def test_a_killed_run_ends_as_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], batches: int, state: str
) -> None:
    config = small_config(**CHANCY, **settings)
    whole = train("vela", "scenes", tmp_path / "whole", config)
    train_until_killed("vela", tmp_path / "killed", config, monkeypatch, batches=batches)
    states = tmp_path / "killed" / "checkpoints"
    assert last_checkpoint(states) == states / state
    # What a kill in the middle of writing a state leaves behind.
    shutil.copytree(states / state, states / "checkpoint-99")
    (states / "checkpoint-99" / "trainer_state.json").unlink()

    resumed = train("vela", "scenes", tmp_path / "killed", config, resume=True)
    assert resumed.figures == whole.figures
    assert (resumed.steps, resumed.best_step) == (whole.steps, whole.best_step)
    assert same_weights(tmp_path / "whole", tmp_path / "killed")
    assert record(tmp_path / "killed")["resumed"] is True


def test_a_run_killed_after_its_early_stop_stays_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(epochs=9, patience=1, eval_steps=4)
    taus = iter([0.5, 0.4, 0.9, 0.9, 0.9])
    real = evaluation.agreement
    monkeypatch.setattr(evaluation, "agreement", lambda *args: {**real(*args), "tau_c": next(taus)})
    monkeypatch.setattr(run, "evaluate_parts", lambda *args: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        train("vela", "scenes", tmp_path / "run", config)
    monkeypatch.undo()
    result = train("vela", "scenes", tmp_path / "run", config, resume=True)
    assert (result.steps, result.best_step) == (8, 4)  # in the middle of an epoch


def test_resume_refuses_other_settings_and_finished_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(epochs=1)
    train_until_killed("vela", tmp_path / "run", config, monkeypatch, batches=3)
    with pytest.raises(OutputError, match="resume the run in it"):
        train("vela", "scenes", tmp_path / "run", config)
    with pytest.raises(OutputError, match=r"other settings: config.epochs was 1 and is 2$"):
        train("vela", "scenes", tmp_path / "run", small_config(epochs=2), resume=True)
    train("vela", "scenes", tmp_path / "run", config, resume=True)  # killed before any state: starts over
    with pytest.raises(OutputError, match="is complete"):
        train("vela", "scenes", tmp_path / "run", config, resume=True)


TWO_PROCESSES = """
import sys
from accelerate import debug_launcher
from reward.training.loop import train
from tests.reward.training.small_runs import small_config

if __name__ == "__main__":
    debug_launcher(train, ("vela", "scenes", sys.argv[1], small_config(batch_size=3)), num_processes=2)
"""


def test_two_processes_train_like_one_with_twice_the_batch(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run([sys.executable, script, tmp_path / "two"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    train("vela", "scenes", tmp_path / "one", small_config(batch_size=6))
    two, one = record(tmp_path / "two"), record(tmp_path / "one")
    assert (two["processes"], one["processes"]) == (2, 1)
    assert two["steps"] == one["steps"]
    assert two["figures"]["val"]["n"] == 24
    assert two["figures"]["val"]["mse"] == pytest.approx(one["figures"]["val"]["mse"], abs=1e-4)
    large, small = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(large[name], small[name], atol=1e-3) for name in large)
