"""`capreward train`: settings from preset, file and options, resuming, and messages."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reward import CaptionSample, load_scorer
from reward.scenes import render, sample_scene
from tests.reward.cli.conftest import Run
from tests.reward.training.small_runs import small_beitscore, small_config


@pytest.fixture
def run(run: Run) -> Run:
    """`capreward train`."""
    return partial(run, "train")


def test_train_then_resume_a_killed_run(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**small_config().to_dict(), "max_steps": 2}
    (tmp_path / "small.json").write_text(json.dumps(settings))
    arguments = ("vela", "--config", tmp_path / "small.json", "--seed", 5, "-o", tmp_path / "out")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("reward.training.run.evaluate_parts", killed)
        code, _, _ = run(*arguments)
    assert code == 130
    code, _, error = run(*arguments)
    assert code == 1
    assert "is not empty: resume the run in it" in error
    code, out, error = run(*arguments, "--resume")
    assert code == 0, error
    assert "kept step 2 of 2" in out
    assert "descriptiveness" in out
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert (record["config"]["seed"], record["config"]["max_steps"], record["data"]) == (5, 2, "scenes")
    assert record["command"].startswith("capreward train vela --config")
    assert load_scorer("vela", tmp_path / "out", device="cpu").spec.name == "vela"


def test_train_in_stages(tmp_path: Path, run: Run) -> None:
    settings = {**small_beitscore(scenes_train=4, scenes_val=4).to_dict(), "batch_size": 8}
    (tmp_path / "small.json").write_text(json.dumps(settings))
    code, out, error = run("beitscore", "--config", tmp_path / "small.json", "-o", tmp_path / "out")
    assert code == 0, error
    for text in ("Stage 1a: Pairs ranked right", "Stage 1c:", "Stage 2: Kendall's tau-c", "spatial", "overall"):
        assert text in out
    score = load_scorer("beitscore", tmp_path / "out", device="cpu").score(
        [CaptionSample("A red star.", render(sample_scene(random.Random(0))))]
    )
    assert 0 <= score.scores[0, 0] <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vela", "--preset", "huge"], "vela has no preset 'huge'; known: paper, paper-clip"),
        (["length"], "'length' cannot be trained"),
        (["beitscore", "--preset", "paper"], "set model.beit3 and model.tokenizer.spm"),
        (["nothing"], "no metric is named 'nothing'"),
        (["vela", "--config", "absent.yaml"], "cannot read the config file absent.yaml"),
        (["vela", "--data", "./absent"], "folder './absent' does not exist"),
    ],
)
def test_mistakes_are_named_in_one_line(tmp_path: Path, run: Run, arguments: list[str], message: str) -> None:
    code, _, error = run(*arguments, "--output", tmp_path / "out")
    assert code == 1
    assert message in error
