"""Whole training runs of a small VELA: what they leave, when they stop, what ends them early."""

import numpy as np
import pytest
import torch

from reward import CaptionSample, load_scorer
from reward.errors import ConfigError, OutputError, TrainingError
from reward.metaeval import kendall_tau
from reward.scenes import make_dataset
from reward.training import figures
from reward.training.loop import train
from tests.reward.training.small_runs import (
    record,
    same_weights,
    small_config,
    weights,
)

pytestmark = pytest.mark.slow

COLUMNS = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}
STEADY = {"schedule": "constant", "warmup_ratio": 0.0}


@pytest.mark.parametrize("aspects", [["fluency", "descriptiveness", "relevance"], ["relevance"]])
def test_a_run_leaves_a_checkpoint_whose_scores_have_the_reported_figures(aspects, tmp_path):
    # a high rate, so that scores differ enough for figures that tell aspects apart
    config = small_config(scenes_train=30, scenes_test=30, learning_rate=1e-2, model={"aspects": aspects})
    result = train("vela", "scenes", tmp_path, config, command="capreward train vela")
    rows = make_dataset(30, config.scenes_seed + 2)
    targets = np.stack([rows[COLUMNS[aspect]] for aspect in aspects], axis=1)
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
    assert written["figures"] == result.figures
    assert written["rows"] == {"train": 30 * len(aspects), "val": 8 * len(aspects), "test": 30 * len(aspects)}


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
