"""Rewards that `trl grpo --reward_funcs` finds by their names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trl
from datasets import Dataset
from PIL import Image
from trl.scripts import grpo

from reward.rewards.named_rewards import BeitScoreReward, VelaReward


def test_trl_finds_them_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Trainer:
        """Takes what the script gives, and trains nothing."""

        def __init__(self, **arguments: Any) -> None:
            given.update(arguments)
            self.accelerator = self

        def train(self, resume_from_checkpoint: Any = None) -> None:
            images = [Image.new("RGB", (32, 32), "red")] * 2
            given["rewards"] = [
                reward(prompts=["p"] * 2, completions=["A red star.", "."], image=images)
                for reward in given["reward_funcs"]
            ]

        def print(self, *values: Any) -> None: ...

        save_model = end = print

    monkeypatch.setattr(trl, "GRPOTrainer", Trainer)
    Dataset.from_dict({"prompt": ["p"]}).to_json(tmp_path / "train.jsonl")
    arguments = ["--model_name_or_path", "none", "--dataset_name", str(tmp_path), "--output_dir", str(tmp_path / "out")]
    parser = grpo.make_parser()
    parsed = parser.parse_args_and_config(
        [*arguments, "--use_cpu", "--bf16", "false", "--reward_funcs", "reward.vela_reward", "reward.beitscore_reward"]
    )
    grpo.main(*parsed[:4])
    vela, beitscore = given["reward_funcs"]
    assert (type(vela), type(beitscore)) == (VelaReward, BeitScoreReward)
    assert (vela.__name__, beitscore.__name__) == ("vela", "beitscore")
    for rewards in given["rewards"]:
        assert 0 < rewards[0] < 1
        assert rewards[1] == 0


@pytest.mark.slow
def test_environment_variables_take_the_place_of_arguments(tmp_path: Path) -> None:
    code = "import reward; print(reward.vela_reward, reward.beitscore_reward, 'torch' in __import__('sys').modules)"
    settings = {"CAPREWARD_VELA_SOURCE": "runs/photos", "CAPREWARD_BEITSCORE_SOURCE": "name/other"}

    def shown(**environment: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **environment}
        # in a folder without a folder `runs`, beside which a source `runs/photos` would be a path that is not there
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)

    assert shown(**settings, CAPREWARD_VELA_WEIGHTS="desc=1,rel=3").stdout == (
        "VelaReward(name='vela_photos_desc1_rel3', source='runs/photos', "
        "weights={'descriptiveness': 0.25, 'relevance': 0.75, 'fluency': 0.0}) "
        "BeitScoreReward(name='beitscore_other', source='name/other', weights={'overall': 1.0}) False\n"
    )
    assert "taste" in shown(CAPREWARD_VELA_WEIGHTS="taste=1").stderr
    assert "'desc' is not of the form NAME=NUMBER" in shown(CAPREWARD_VELA_WEIGHTS="desc").stderr
