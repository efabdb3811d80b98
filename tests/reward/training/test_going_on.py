"""Training on from a checkpoint."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from reward.errors import CheckpointError, ConfigError, OutputError
from reward.training.loop import train
from tests.reward.training.small_runs import (
    record,
    same_weights,
    small_beitscore,
    small_config,
    train_until_killed,
    weights,
)


@pytest.mark.parametrize("metric", ["vela", "beitscore"])
def test_a_checkpoint_goes_on_with_its_weights_and_says_whether_it_helped(metric: str, tmp_path: Path) -> None:
    make = {"vela": small_config, "beitscore": small_beitscore}[metric]
    one: dict[str, Any] = {"stages": dict.fromkeys(("1a", "1b", "1c", "2"))} if metric == "beitscore" else {}
    first = train(metric, "scenes", tmp_path / "first", make(**one, loss="mse"))
    still = make(**one, loss="mse", learning_rate=1e-12, max_steps=1)
    bare = replace(still, model={})
    with pytest.warns(UserWarning, match="the training did not help on the part 'val': Kendall's tau-c x 100 was"):
        second = train(metric, "scenes", tmp_path / "second", bare, init=tmp_path / "first")
    assert second.before == pytest.approx(first.figures["val"])
    before, after = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.allclose(before[name], after[name], atol=1e-8) for name in before)
    for name in ("config.json", "tokenizer.json"):
        assert (tmp_path / "first" / name).read_text() == (tmp_path / "second" / name).read_text()
    assert f"Went on from the checkpoint `{tmp_path / 'first'}`" in (tmp_path / "second" / "README.md").read_text()

    message = "says what the network is: leave out the settings of model .*tokenizer"
    with pytest.raises(ConfigError, match=message):
        train(metric, "scenes", tmp_path / "run", make(**one, loss="mse"), init=tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "broken")
    lost = next(name for name in before if name.endswith("weight"))
    save_file({name: value for name, value in before.items() if name != lost}, tmp_path / "broken/model.safetensors")
    with pytest.raises(CheckpointError, match=lost.split(".")[-2] if "." in lost else lost):
        train(metric, "scenes", tmp_path / "run", bare, init=tmp_path / "broken")
    with pytest.raises(CheckpointError, match="is a checkpoint of metric"):
        train({"vela": "beitscore", "beitscore": "vela"}[metric], "scenes", tmp_path / "run", bare, init=first.folder)


def test_a_resumed_run_keeps_its_state_and_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = train("vela", "scenes", tmp_path / "start", small_config(seed=3, max_steps=2)).folder
    config = replace(small_config(epochs=2), model={})
    whole = train("vela", "scenes", tmp_path / "whole", config, init=start)
    train_until_killed("vela", tmp_path / "killed", config, monkeypatch, batches=16, init=start)
    assert record(tmp_path / "killed")["before"] == whole.before
    with pytest.raises(OutputError, match=r"with other settings: init was .* and is None"):
        train("vela", "scenes", tmp_path / "killed", config, resume=True)
    with pytest.raises(OutputError, match=r"init\.source was .*start.* and is .*whole.*init\.fingerprint was"):
        train("vela", "scenes", tmp_path / "killed", config, resume=True, init=tmp_path / "whole")
    resumed = train("vela", "scenes", tmp_path / "killed", config, resume=True, init=start)
    assert same_weights(tmp_path / "whole", tmp_path / "killed")
    assert resumed.before == whole.before
