"""A training that learns nothing stops with the reason, and leaves no checkpoint that looks finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from reward.errors import ConfigError, TrainingError
from reward.metrics.vela import training as vela_training
from reward.training.loop import train
from tests.reward.training.small_runs import small_beitscore, small_config


def test_a_loss_that_is_no_number_stops_at_its_step(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"loss is nan at step [23]: lower learning_rate"):
        train("vela", "scenes", tmp_path / "run", small_config(learning_rate=1e30, schedule="constant", epochs=1))
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("metric", ["vela", "beitscore"])
def test_one_score_for_everything_is_no_result(tmp_path: Path, metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = {"vela": small_config, "beitscore": small_beitscore}[metric]
    settings: dict[str, Any] = {}
    if metric == "beitscore":  # VELA's head starts with zeros, and a first step of the warm-up has no size
        settings = {"loss": "l1", "stages": dict.fromkeys(("1a", "1b", "1c", "2"))}
        from reward.metrics.beitscore.model import BeitScoreModel

        monkeypatch.setattr(BeitScoreModel, "logits", lambda self, pooled: 0 * pooled.sum(-1).float())
    config = make(max_steps=1, warmup_ratio=0.9, **settings)
    with pytest.raises(
        TrainingError, match=r"nothing was learned: every caption of the part 'val' gets the score 0\.5"
    ):
        train(metric, "scenes", tmp_path / "run", config)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_network_of_frozen_weights_is_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = vela_training.make_model

    def frozen(*args: Any, **kwargs: Any) -> torch.nn.Module:
        return real(*args, **kwargs).requires_grad_(False)

    monkeypatch.setattr(vela_training, "make_model", frozen)
    with pytest.raises(ConfigError, match="nothing to train"):
        train("vela", "scenes", tmp_path / "run", small_config())
