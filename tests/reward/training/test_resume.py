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
from datasets import DatasetDict

from reward.errors import OutputError
from reward.scenes import make_dataset
from reward.training import evaluation, run
from reward.training.loop import train
from reward.training.trainer import last_checkpoint
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
CHANCY: dict[str, Any] = {
    **{"epochs": 3, "schedule": "linear", "reference_free_rate": 0.5, "max_references": 1},
    **{"accumulation": 2, "batch_size": 3, "model": {"text": {"architecture": {"attention_dropout": 0.3}}}},
}
STAGED: dict[str, Any] = {
    **{"stages": TWO, "model": {"config": {"drop_path": 0.3}}, "schedule": "linear"},
    **{"eval_steps": 2, "eval_batch_size": 16},
}
KILLED = {  # {when: (metric, settings, batches until then, what is left)}
    "in the middle of an epoch": ("vela", {**CHANCY, "eval_steps": 4}, 22, "checkpoints/checkpoint-8"),
    "between epochs": ("vela", CHANCY, 20, "checkpoints/checkpoint-6"),
    "before any state, so that it starts over": ("vela", {"epochs": 1}, 3, "training.json"),
    "in the middle of a stage": ("beitscore", STAGED, 5, "stages/1a/checkpoints/checkpoint-2"),
    "between stages": ("beitscore", STAGED, 7, "stages/1a/model.safetensors"),
    "in the last stage": ("beitscore", STAGED, 9, "stages/2/training.json"),
}
OTHER_LOSS = {"stages": {**TWO, "2": {"loss": "mse"}}}
# {metric: (how to make its settings, other ones, how the difference is told)}
METRICS: dict[str, Any] = {
    "vela": (small_config, {"epochs": 2}, r"config\.epochs was [13] and is 2"),
    "beitscore": (small_beitscore, OTHER_LOSS, r"config\.stages\.2\.loss was 'l1' and is 'mse'"),
}


@pytest.mark.parametrize(("metric", "settings", "batches", "left"), KILLED.values(), ids=KILLED)
def test_a_killed_run_ends_as_an_unbroken_one(
    metric: str, settings: dict[str, Any], batches: int, left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, others, difference = METRICS[metric]
    config, killed = make(**settings), tmp_path / "killed"
    whole = train(metric, "scenes", tmp_path / "whole", config)
    train_until_killed(metric, killed, config, monkeypatch, batches=batches)
    assert (killed / left).exists()
    assert not (killed / "model.safetensors").exists()
    if "checkpoint-" in left:
        state = killed / left
        assert last_checkpoint(state.parent) == state
        # What a kill in the middle of writing a state leaves behind.
        shutil.copytree(state, state.with_name("checkpoint-99"))
        (state.with_name("checkpoint-99") / "trainer_state.json").unlink()
    with pytest.raises(OutputError, match="resume the run in it"):
        train(metric, "scenes", killed, config)
    with pytest.raises(OutputError, match=f"other settings: {difference}$"):
        train(metric, "scenes", killed, make(**{**settings, **others}), resume=True)

    resumed = train(metric, "scenes", killed, config, resume=True)
    for one, other in zip(*([*each.stages.values(), each] for each in (whole, resumed)), strict=True):
        assert (one.figures, one.steps, one.best_step) == (other.figures, other.steps, other.best_step)
        assert same_weights(one.folder, other.folder)
    if metric == "vela":
        assert record(killed)["resumed"] == ("checkpoint-" in left)
    written = (killed / "model.safetensors").stat().st_mtime_ns
    again = train(metric, "scenes", killed, config, resume=True)
    assert (again.figures, list(again.stages)) == (resumed.figures, list(resumed.stages))
    assert (killed / "model.safetensors").stat().st_mtime_ns == written


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


TWO_PROCESSES = """
import sys
from accelerate import debug_launcher
from reward.training.loop import train
from tests.reward.training.small_runs import small_config

if __name__ == "__main__":
    data = ["scenes", sys.argv[2]]
    debug_launcher(train, ("vela", data, sys.argv[1], small_config(batch_size=3)), num_processes=2)
"""


def test_two_processes_train_like_one_with_twice_the_batch(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    extra = str(tmp_path / "extra")
    DatasetDict({part: make_dataset(4, seed) for seed, part in enumerate(("train", "val"))}).save_to_disk(extra)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, script, tmp_path / "two", extra]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    train("vela", ["scenes", extra], tmp_path / "one", small_config(batch_size=6))
    two, one = record(tmp_path / "two"), record(tmp_path / "one")
    assert (two["processes"], one["processes"]) == (2, 1)
    assert two["steps"] == one["steps"]
    assert (two["data"], two["rows"]) == (["scenes", extra], {"train": 48, "val": 36})
    assert two["figures"]["val"]["mse"] == pytest.approx(one["figures"]["val"]["mse"], abs=1e-4)
    large, small = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(large[name], small[name], atol=1e-3) for name in large)
