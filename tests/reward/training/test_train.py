"""Whole training runs: what they and their stages leave, when they stop, what ends them early."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import DatasetDict

from reward import CaptionSample, load_scorer
from reward.errors import ConfigError, DataError, OutputError, TrainingError
from reward.metaeval import kendall_tau
from reward.scenes import make_dataset
from reward.training import figures
from reward.training.loop import train
from tests.reward.training.small_runs import (
    TWO,
    pair_rows,
    record,
    same_weights,
    small_beitscore,
    small_config,
    small_data,
    weights,
)

pytestmark = pytest.mark.slow

STEADY = {"schedule": "constant", "warmup_ratio": 0.0}


def test_a_run_leaves_a_checkpoint_whose_scores_have_the_reported_figures(tmp_path):
    aspects = ["fluency", "relevance"]
    # a high rate, so that scores differ enough for figures that tell aspects apart
    config = small_config(scenes_train=30, scenes_test=30, learning_rate=1e-2, model={"aspects": aspects})
    result = train("vela", "scenes", tmp_path, config, command="capreward train vela")
    rows = make_dataset(30, config.scenes_seed + 2)
    targets = np.stack([rows["flu"], rows["rel"]], axis=1)
    scorer = load_scorer("vela", tmp_path, device="cpu")
    # as in training: no more references than the settings allow
    for part, most in (("test", config.max_references), ("test (reference-free)", 0)):
        table = scorer.score([CaptionSample(row["cand"], row["image"], row["refs"][:most]) for row in rows])
        assert table.aspects == tuple(aspects)
        taus = [kendall_tau(table.column(name), targets[:, place]) for place, name in enumerate(aspects)]
        expected = {f"tau_c_{name}": tau for name, tau in zip(aspects, taus, strict=True)}
        expected |= {"tau_c": np.mean(taus), "mse": np.mean((table.scores - targets) ** 2), "n": 30 * len(aspects)}
        assert result.figures[part] == pytest.approx(expected, abs=1e-5)

    card, written = (tmp_path / "README.md").read_text(), record(tmp_path)
    facts = ("capreward train vela", "Seed 0", "| test (reference-free) |", '"learning_rate": 0.01')
    assert [fact for fact in facts if fact not in card] == []
    assert (written["figures"], written["rows"]) == (result.figures, {"train": 60, "val": 16, "test": 60})


def test_training_lowers_the_loss(tmp_path):
    train("vela", "scenes", tmp_path, small_config(scenes_train=4, epochs=20, eval_steps=20, **STEADY))
    first, last = (entry["loss"] for entry in record(tmp_path)["history"] if "loss" in entry)
    assert last < 0.8 * first


def test_the_last_micro_batch_weighs_by_its_rows(tmp_path):
    """30 ratings in batches of 4, the last of 2, are a step of 30."""
    for name, sizes in (("large", {"batch_size": 30}), ("small", {"batch_size": 4, "accumulation": 8})):
        train("vela", "scenes", tmp_path / name, small_config(epochs=1, scenes_train=10, **STEADY, **sizes))
    histories = [record(tmp_path / name)["history"] for name in ("large", "small")]
    large, small = ([entry["train_loss"] for entry in history if "train_loss" in entry] for history in histories)
    assert small == pytest.approx(large, abs=1e-6)
    after, other = weights(tmp_path / "large"), weights(tmp_path / "small")
    assert all(torch.allclose(after[name], other[name], atol=2e-4) for name in after)


def test_mixed_precision_keeps_trained_weights_in_float32(tmp_path):
    exact, mixed = (
        train("vela", "scenes", tmp_path / precision, small_config(max_steps=3, precision=precision))
        for precision in ("fp32", "bf16")
    )
    assert {value.dtype for value in weights(mixed.folder).values()} == {torch.float32}
    assert mixed.figures["val"]["mse"] == pytest.approx(exact.figures["val"]["mse"], abs=0.01)
    assert mixed.figures != exact.figures


def test_training_stops_by_tau_c_and_keeps_the_best(tmp_path, monkeypatch):
    real, found = figures.rating_figures, {}
    for name, epochs, taus in (("stopped", 9, [0.1, 0.5, 0.4, 0.3, 0.9]), ("short", 2, [0.1, 0.5])):
        left = iter(taus)
        monkeypatch.setattr(
            figures, "rating_figures", lambda *args, left=left: {**real(*args), "tau_c": next(left, 0.0)}
        )
        config = small_config(scenes_train=4, batch_size=6, epochs=epochs, patience=2, **STEADY)  # two steps an epoch
        found[name] = train("vela", "scenes", tmp_path / name, config)
    assert (found["stopped"].steps, found["stopped"].best_step) == (8, 4)  # evaluated four times, best at the second
    assert same_weights(found["short"].folder, found["stopped"].folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"txt": {}}}, "txt"),
        ({"model": {"aspects": "relevance"}}, "aspects must be a list of different names"),
        ({"loss": "bce"}, "vela cannot be trained with the loss bce; known: mse, l1"),
        ({"precision": "fp16"}, "needs a CUDA device"),
        ({"learning_rates": {"head": 1e-3}}, "begins with 'head'; they begin with weight, bias, text, image"),
        ({}, "cannot write to the output folder"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_the_folder_stays_free(settings, message, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    folder = tmp_path / "run"
    if not settings:  # there is a file where a folder should be
        folder.write_text("mine")
        folder = folder / "in it"
    with pytest.raises((ConfigError, OutputError), match=message):
        train("vela", "scenes", folder, small_config(**settings))
    assert not list(tmp_path.rglob("*.*"))


@pytest.mark.filterwarnings("ignore:the training did not help")
def test_parts_of_a_network_have_their_own_learning_rates(tmp_path):
    settings = {"max_steps": 2, "learning_rate": 1e-2, "learning_rates": {"text": 1e-12, "image": 1e-12}}
    settings |= {"scenes_train": 6, "weight_decay": 0.0, **STEADY}
    start = train("vela", "scenes", tmp_path / "start", small_config(max_steps=2, **STEADY))
    train("vela", "scenes", tmp_path / "run", replace(small_config(**settings), model={}), init=start.folder)
    before, after = weights(start.folder), weights(tmp_path / "run")
    changed = {name.split(".")[0] for name in before if not torch.allclose(before[name], after[name], atol=1e-8)}
    assert changed == {"weight", "bias"}


def out_of_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 1e30}, r"loss is nan at step [23]: lower learning_rate"),
        # a head of zeros, and a first step without a size
        ({"max_steps": 1, "warmup_ratio": 0.9}, r"every caption of the part 'val' gets the score 0\.5"),
        ({"accumulation": 2}, "too little memory for a step with batch_size 6 and accumulation 2: set a smaller batch"),
    ],
)
def test_a_run_that_cannot_end_well_says_what_to_change(settings, message, tmp_path, monkeypatch):
    if "accumulation" in settings:
        monkeypatch.setattr("transformers.Trainer.training_step", out_of_memory)
    with pytest.raises(TrainingError, match=message):
        train("vela", "scenes", tmp_path / "run", small_config(**{**STEADY, "epochs": 1, **settings}))
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_run_leaves_each_stages_checkpoint_and_the_last_one_as_its_own(tmp_path):
    config = small_beitscore(scenes_val=11, scenes_test=6)
    result = train("beitscore", "scenes", tmp_path, config, command="capreward train beitscore")
    folders = {name: stage.folder for name, stage in result.stages.items()}
    assert list(folders) == ["1a", "1b", "1c", "2"]
    assert same_weights(tmp_path, folders["2"])
    assert not any(same_weights(one, two) for one, two in itertools.pairwise(folders.values()))
    assert [record(folder).get("start") for folder in folders.values()] == [None, "../1a", "../1b", "../1c"]
    assert "accuracy_scene_text" not in result.stages["1b"].figures["val"]
    assert "accuracy_scene_text" in result.stages["1c"].figures["val"]

    rows = make_dataset(6, config.scenes_seed + 2)
    scores = (
        load_scorer("beitscore", tmp_path, device="cpu").score(list(rows["image"]), list(rows["cand"])).scores[:, 0]
    )
    assert result.figures["test"]["tau_c"] == pytest.approx(kendall_tau(scores, np.array(rows["score"])), abs=1e-6)
    card = (tmp_path / "README.md").read_text()
    facts = ("capreward train beitscore", "## Stage 1a", "| scene_text | ", "## Stage 2", "Data: `scenes`", "tau-c")
    assert [fact for fact in facts if fact not in card] == []


def test_a_stage_starts_from_the_weights_that_the_last_one_kept_and_may_have_data_of_its_own(tmp_path):
    pairs, ratings = str(tmp_path / "pairs"), str(tmp_path / "ratings")
    DatasetDict({"train": pair_rows(), "val": pair_rows()}).save_to_disk(pairs)
    small_data().save_to_disk(ratings)
    stages = {**TWO, "1a": {"categories": []}, "2": {"loss": "l1", "learning_rate": 1e-12}}
    run = tmp_path / "run"
    result = train("beitscore", "scenes", run, small_beitscore(stages=stages, pairs=pairs, data=ratings))
    first, last = weights(result.stages["1a"].folder), weights(run)
    assert all(torch.allclose(first[name], last[name], atol=1e-8) for name in first)
    assert {name: stage.figures["val"]["n"] for name, stage in result.stages.items()} == {"1a": 12, "2": 6}
    assert record(result.stages["1a"].folder)["pairs"]["train"] == {"count": 4, "repeat": 4, "shuffle": 4}
    assert f"Data: `{pairs}`; captions of pairs: train 24, val 24." in (run / "README.md").read_text()


def test_a_mistake_in_the_last_stage_shows_at_once_and_leaves_the_folder_free(tmp_path):
    taste = small_beitscore(stages={**TWO, "2": {"loss": "bce", "categories": ["taste"]}})
    with pytest.raises(DataError, match="no errors of the kinds taste"):
        train("beitscore", "scenes", tmp_path, taste)
    assert list(tmp_path.iterdir()) == []
