"""Rewards that `trl grpo --reward_funcs` finds by their names."""

import re
from pathlib import Path

import pytest
import trl
from PIL import Image
from trl.scripts import grpo

import reward
from reward.errors import WeightsError
from reward.rewards import named_rewards
from tests.toys.json_lines import write_lines


@pytest.fixture(autouse=True)
def nothing_made():
    """The two rewards are made once a process."""
    named_rewards._from_environment.cache_clear()
    yield
    named_rewards._from_environment.cache_clear()


def test_trl_is_named_up_to_the_version_that_was_tried_and_its_experiments_are_not_needed():
    root = Path(reward.__file__).parents[1]
    tried = re.search(r"trl>=.* # tried up to (.*)", (root / "pyproject.toml").read_text())[1]
    assert f"trl=={tried};" in (root / "constraints.txt").read_text()
    files = [*root.glob("reward/**/*.py"), *root.glob("integrations/**/*.py")]
    assert not [file for file in files if "trl.experimental" in file.read_text(encoding="utf-8")]


def test_trl_finds_them_by_their_names(tmp_path, monkeypatch):
    given = {}

    class Trainer:
        """Takes what the script gives, and trains nothing."""

        def __init__(self, **arguments):
            given.update(arguments)
            self.accelerator = self

        def train(self, resume_from_checkpoint=None): ...

        print = save_model = end = train

    monkeypatch.setattr(trl, "GRPOTrainer", Trainer)
    write_lines(tmp_path / "train.jsonl", [{"prompt": "p"}])
    arguments = ["--model_name_or_path", "none", "--dataset_name", str(tmp_path), "--output_dir", str(tmp_path / "out")]
    arguments += ["--use_cpu", "--bf16", "false", "--reward_funcs", "capreward.vela_reward", "reward.beitscore_reward"]
    grpo.main(*grpo.make_parser().parse_args_and_config(arguments)[:4])
    vela, beitscore = given["reward_funcs"]
    assert (type(vela), type(beitscore)) == (reward.VelaReward, reward.BeitScoreReward)
    assert (vela.__name__, beitscore.__name__) == ("vela", "beitscore")
    images = [Image.new("RGB", (32, 32), "red")] * 2
    for function in (vela, beitscore):
        told = function(prompts=["p"] * 2, completions=["A red star.", "."], image=images)
        assert 0 < told[0] < 1
        assert told[1] == 0


def test_environment_variables_take_the_place_of_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # beside a folder `runs`, a source `runs/photos` would be a path that is not there
    settings = {"VELA_SOURCE": "runs/photos", "VELA_WEIGHTS": "desc=1,rel=3", "BEITSCORE_SOURCE": "name/other"}
    for name, value in settings.items():
        monkeypatch.setenv(f"CAPREWARD_{name}", value)
    weights = "{'descriptiveness': 0.25, 'relevance': 0.75, 'fluency': 0.0}"
    assert repr(reward.vela_reward) == (
        f"VelaReward(name='vela_photos_desc1_rel3', source='runs/photos', weights={weights})"
    )
    assert reward.beitscore_reward.source == "name/other"
    named_rewards._from_environment.cache_clear()
    monkeypatch.setenv("CAPREWARD_VELA_WEIGHTS", "desc")
    with pytest.raises(WeightsError, match="'desc' is not of the form NAME=NUMBER"):
        _ = reward.vela_reward
