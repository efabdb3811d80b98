"""`capreward train`: settings from preset, file and options, resuming, several seeds, publishing."""

import json
from pathlib import Path

import numpy as np
import pytest

from reward.registry import metric_spec
from reward.training.loop import metric_training
from tests.reward.training.small_runs import NO_STAGES, record, small_beitscore, small_config, small_data

pytestmark = pytest.mark.slow


def write_settings(file, settings):
    file.write_text(json.dumps(settings))
    return file


def stopped(*_):
    raise KeyboardInterrupt


def test_train_then_resume_a_stopped_run(tmp_path, run, monkeypatch):
    config = write_settings(tmp_path / "small.json", {**small_config().to_dict(), "max_steps": 2})
    arguments = ("train", "vela", "--config", config, "--seed", 5, "-o", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("reward.training.stage.evaluate_parts", stopped)
        run(*arguments, code=130)
    out, said = run(*arguments)
    assert "out holds an unfinished run, which goes on" in said
    assert "kept step 2 of 2" in out
    again, said = run(*arguments)
    assert (again, "out is complete already" in said) == (out, True)
    written = record(tmp_path / "out")
    assert (written["config"]["seed"], written["config"]["max_steps"], written["data"]) == (5, 2, "scenes")
    assert written["command"].startswith("capreward train vela --config")


def test_several_seeds_and_one_more(tmp_path, run):
    settings = {**small_config(model={"fusion": {"width": 16, "heads": 2}}).to_dict(), "max_steps": 2}
    config = write_settings(tmp_path / "small.json", settings)
    arguments = ("train", "vela", "--config", config, "-o", tmp_path / "out", "--seed", 3, "--seed", 4)
    run(*arguments)
    folders = [tmp_path / "out" / f"seed-{seed}" for seed in (3, 4, 5)]
    first = [record(folder) for folder in folders[:2]]
    out, _ = run(*arguments, "--seed", 5)
    records = [record(folder) for folder in folders]
    assert records[:2] == first
    errors = [written["figures"]["val"]["mse"] for written in records]
    assert len(set(errors)) == 3
    assert "mean ± standard deviation of 3 runs" in out
    assert f"{np.mean(errors):.4f} ± {np.std(errors, ddof=1):.4f}" in out
    write_settings(config, {**settings, "max_steps": 3})
    assert "config.max_steps was 2 and is 3" in run(*arguments, code=1)[1]


def test_train_on_from_a_checkpoint_with_two_sets(tmp_path, run):
    old, new, first, out = (tmp_path / name for name in ("old", "new", "first", "out"))
    small_data().save_to_disk(old)
    small_data().save_to_disk(new)
    config = write_settings(tmp_path / "first.json", small_beitscore(loss="l1").to_dict() | {"stages": NO_STAGES})
    run("train", "beitscore", "--config", config, "--data", old, "-o", first)
    own = {"epochs": 1, "batch_size": 4, "loss": "l1", "stages": NO_STAGES}
    config = write_settings(tmp_path / "own.json", own)
    arguments = ("train", "beitscore", "--init", first, "--config", config, "--data", old, "--data", new)
    assert "val: Kendall's tau-c x 100 was" in run(*arguments, "-o", out)[0]
    written = record(out)
    assert (written["data"], written["rows"]) == ([str(old), str(new)], {"train": 12, "val": 12})
    write_settings(config, {**own, "model": {"config": {"hidden_size": 64}}})
    assert "leave out the settings of model config" in run(*arguments, "-o", tmp_path / "other", code=1)[1]


def unreachable(*_, **__):
    raise ConnectionError("the line is dead")


def test_a_push_is_checked_first_and_can_be_made_up_for(tmp_path, run, hub, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_settings(Path("small.json"), {**small_beitscore(scenes_train=4, scenes_val=4).to_dict(), "batch_size": 8})
    train = ("train", "beitscore", "--config", "small.json")
    assert "is missing: name a folder, or publish with --push-to" in run(*train, code=2)[1]
    arguments = (*train, "--push-to", "tester/mine", "--private")
    hub.token, hub.closed = "any", {"closed"}
    monkeypatch.setenv("HF_TOKEN", "any")
    assert "the rights to create a model under" in run(*train, "--push-to", "closed/mine", code=1)[1]
    assert not any(path.is_dir() and any(path.iterdir()) for path in tmp_path.iterdir())  # nothing was trained

    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.HfApi.upload_folder", unreachable)
        out, said = run(*arguments, code=1)
    for text in ("Stage 1a: Pairs ranked right", "Stage 1c:", "Stage 2: Kendall's tau-c", "checkpoint: mine"):
        assert text in out
    assert "uploaded to tester/mine: the line is dead The checkpoint is complete in mine. This pushes it" in said
    assert said.endswith(f"capreward {' '.join(arguments)}")
    out, said = run(*arguments)
    assert "mine is complete already" in said
    assert 'load it with load_scorer("beitscore", "tester/mine")' in out
    assert set(hub.files("tester/mine")) >= {"config.json", "model.safetensors", "README.md", "training.json"}
    assert not any("/" in name for name in hub.files("tester/mine"))


def test_help_names_every_preset(run):
    shown, _ = run("train", "--help")
    metrics = map(metric_spec, ("vela", "beitscore", "vlmreward"))
    presets = {name for spec in metrics for name in metric_training(spec).PRESETS}
    assert {name for name in presets if name not in shown} == set()
