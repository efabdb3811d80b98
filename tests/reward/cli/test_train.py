"""`capreward train`: settings from preset, file and options, and resuming."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants

from reward import CaptionSample, load_scorer
from reward.registry import metric_spec
from reward.scenes import render, sample_scene
from reward.training.loop import metric_training
from tests.reward.cli.conftest import Run
from tests.reward.training.small_runs import small_beitscore, small_config
from tests.toys.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow

NO_STAGES = dict.fromkeys(("1a", "1b", "1c", "2"))


def test_train_then_resume_a_killed_run(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**small_config().to_dict(), "max_steps": 2}
    (tmp_path / "small.json").write_text(json.dumps(settings))
    arguments = ("train", "vela", "--config", tmp_path / "small.json", "--seed", 5, "-o", tmp_path / "out")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("reward.training.run.evaluate_parts", killed)
        run(*arguments, code=130)
    assert "is not empty: resume the run in it" in run(*arguments, "--no-resume", code=1)[1]
    out, said = run(*arguments)
    assert "out holds an unfinished run, which goes on" in said
    assert "kept step 2 of 2" in out
    again, said = run(*arguments)
    assert (again, "out is complete already" in said) == (out, True)
    assert "descriptiveness" in out
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert (record["config"]["seed"], record["config"]["max_steps"], record["data"]) == (5, 2, "scenes")
    assert record["command"].startswith("capreward train vela --config")
    assert load_scorer("vela", tmp_path / "out", device="cpu").spec.name == "vela"


def test_several_seeds_and_one_more(tmp_path: Path, run: Run) -> None:
    settings = {**small_config(model={"fusion": {"width": 16, "heads": 2}}).to_dict(), "max_steps": 2}
    (tmp_path / "small.json").write_text(json.dumps(settings))
    arguments = ("train", "vela", "--config", tmp_path / "small.json", "-o", tmp_path / "out", "--seed", 3, "--seed", 4)
    run(*arguments)
    files = [tmp_path / "out" / f"seed-{seed}" / "training.json" for seed in (3, 4, 5)]
    trained = [path.stat().st_mtime_ns for path in files[:2]]
    out, _ = run(*arguments, "--seed", 5)
    assert [path.stat().st_mtime_ns for path in files[:2]] == trained
    records = {path.parent.name[-1]: json.loads(path.read_text()) for path in files}
    errors = [record["figures"]["val"]["mse"] for record in records.values()]
    assert "mean ± standard deviation of 3 runs" in out
    assert f"{np.mean(errors):.4f} ± {np.std(errors, ddof=1):.4f}" in out
    assert len(set(errors)) == 3
    (tmp_path / "small.json").write_text(json.dumps({**settings, "max_steps": 3}))
    assert "config.max_steps was 2 and is 3" in run(*arguments, code=1)[1]


def test_train_on_from_a_checkpoint_with_two_sets(tmp_path: Path, run: Run) -> None:
    render(sample_scene(random.Random(0))).save(tmp_path / "scene.png")
    for folder, parts in (("old", ("train", "val")), ("new", ("train",))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "scene.png").write_bytes((tmp_path / "scene.png").read_bytes())
        for part in parts:  # `datasets` calls the split of val.jsonl "validation"
            rows = [{"image": "scene.png", "cand": f"A picture, {n}.", "score": n / 4} for n in range(5)]
            (tmp_path / folder / f"{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    first = small_beitscore(stages=NO_STAGES, loss="l1", scenes_train=4)
    (tmp_path / "first.json").write_text(json.dumps(first.to_dict() | {"stages": NO_STAGES}))
    run("train", "beitscore", "--config", tmp_path / "first.json", "-o", tmp_path / "first")
    own = {"epochs": 1, "loss": "l1", "batch_size": 4, "stages": NO_STAGES}
    (tmp_path / "own.json").write_text(json.dumps(own))
    arguments = ("train", "beitscore", "--init", tmp_path / "first", "--config", tmp_path / "own.json")
    data = ("--data", tmp_path / "old", "--data", tmp_path / "new")
    out, _ = run(*arguments, *data, "-o", tmp_path / "out")
    assert "val: Kendall's tau-c x 100 was" in out
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert (record["data"], record["rows"]) == ([str(tmp_path / "old"), str(tmp_path / "new")], {"train": 10, "val": 5})
    own["model"] = {"config": {"hidden_size": 64}}
    (tmp_path / "own.json").write_text(json.dumps(own))
    refused = run(*arguments, *data, "-o", tmp_path / "other", code=1)[1]
    assert "leave out the settings of model config" in " ".join(refused.split())


SMALL = {
    "vela": {**small_config().to_dict(), "max_steps": 2},
    "beitscore": {**small_beitscore(scenes_train=4, scenes_val=4).to_dict(), "batch_size": 8},
}


@pytest.mark.parametrize(
    ("metric", "failure"), [("vela", ConnectionError("the line is dead")), ("beitscore", ValueError("bad card"))]
)
def test_a_push_is_checked_first_and_can_be_made_up_for(
    metric: str, failure: Exception, tmp_path: Path, run: Run, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.json").write_text(json.dumps(SMALL[metric]))
    train = ("train", metric, "--config", "small.json")
    assert "is missing: name a folder, or publish with --push-to" in run(*train, code=2)[1]
    arguments = (*train, "--push-to", "tester/mine", "--private")
    hub.token = "any"
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "no-token")
    assert "log in with `hf auth login`" in run(*arguments, code=1)[1]
    monkeypatch.setenv("HF_TOKEN", "any")
    hub.closed = {"closed"}
    assert "the rights to create a model under" in run(*train, "--push-to", "closed/mine", code=1)[1]
    assert not any(path.is_dir() and any(path.iterdir()) for path in tmp_path.iterdir())  # nothing was trained

    def unreachable(*_: Any, **__: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.HfApi.upload_folder", unreachable)
        out, said = run(*arguments, code=1)
    assert "checkpoint: mine" in out
    stages = ("Stage 1a: Pairs ranked right", "Stage 1c:", "Stage 2: Kendall's tau-c", "spatial", "overall")
    assert [text for text in stages if text not in out and metric == "beitscore"] == []
    command = " ".join(map(str, arguments))
    assert f"uploaded to tester/mine: {failure} The checkpoint is complete in mine. This pushes it" in said
    assert said.endswith(f"capreward {command}")
    written = Path("mine/model.safetensors").stat().st_mtime_ns
    out, said = run(*arguments)
    assert "mine is complete already" in said
    assert f'load it with load_scorer("{metric}", "tester/mine")' in out
    assert Path("mine/model.safetensors").stat().st_mtime_ns == written
    assert set(hub.files("tester/mine")) >= {"config.json", "model.safetensors", "README.md", "training.json"}
    assert not any("/" in name for name in hub.files("tester/mine"))
    sample = CaptionSample("A red star.", render(sample_scene(random.Random(0))))
    mine, pushed = (load_scorer(metric, name, device="cpu") for name in (Path("mine"), "tester/mine"))
    assert np.array_equal(mine.score([sample]).scores, pushed.score([sample]).scores)


def test_help_names_every_preset(run: Run) -> None:
    shown, _ = run("train", "--help")
    presets = {name for metric in ("vela", "beitscore") for name in metric_training(metric_spec(metric)).PRESETS}
    assert {name for name in presets if name not in shown} == set()
