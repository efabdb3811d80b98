"""Whole training runs of a small VELA: the checkpoint, early stopping, accumulation, precision, the output folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reward import CaptionSample, load_scorer
from reward.errors import ConfigError, OutputError, TrainingError
from reward.metaeval import kendall_tau
from reward.metrics.beitscore.model import BeitScoreModel
from reward.metrics.vela import training as vela_training
from reward.registry import metric_spec
from reward.scenes import make_dataset
from reward.training import evaluation
from reward.training.loop import metric_training, train
from tests.reward.training.small_runs import record, same_weights, small_beitscore, small_config, weights


def test_a_run_leaves_a_checkpoint_whose_scores_have_the_reported_figures(tmp_path: Path) -> None:
    config = small_config(scenes_test=10, batch_size=16)
    result = train("vela", "scenes", tmp_path / "run", config, command="capreward train vela")
    rows = make_dataset(10, config.scenes_seed + 2)
    # as in training: no more references than the settings allow
    samples = [CaptionSample(row["cand"], row["image"], row["refs"][: config.max_references]) for row in rows]
    bare = [CaptionSample(row["cand"], row["image"]) for row in rows]
    scorer = load_scorer("vela", tmp_path / "run", device="cpu")
    for name, shown in (("test", samples), ("test (reference-free)", bare)):
        table, found = scorer.score(shown), result.figures[name]
        for aspect, column in zip(table.aspects, ("desc", "rel", "flu"), strict=True):
            expected = kendall_tau(table.column(aspect), np.array(rows[column]))
            assert found[f"tau_c_{aspect}"] == pytest.approx(expected, abs=1e-6)
        targets = np.stack([rows[column] for column in ("desc", "rel", "flu")], axis=1)
        assert found["mse"] == pytest.approx(np.mean((table.scores - targets) ** 2), abs=1e-5)

    card = (tmp_path / "run" / "README.md").read_text()
    for fact in ("capreward train vela", "Seed 0", "| test (reference-free) |", "torch", '"learning_rate": 0.001'):
        assert fact in card
    assert record(tmp_path / "run")["figures"] == result.figures
    assert record(tmp_path / "run")["rows"] == {"train": 36, "val": 24, "test": 30}
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    train("vela", "scenes", tmp_path / "run", small_config(epochs=7, schedule="constant"))
    losses = [entry["loss"] for entry in record(tmp_path / "run")["history"] if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]


def test_accumulated_batches_train_like_one_large_batch(tmp_path: Path) -> None:
    train("vela", "scenes", tmp_path / "large", small_config(batch_size=6, epochs=1))
    train("vela", "scenes", tmp_path / "small", small_config(batch_size=2, accumulation=3, epochs=1))
    large, small = weights(tmp_path / "large"), weights(tmp_path / "small")
    # Adam divides by the gradient's size, which magnifies rounding where a gradient is nearly 0.
    assert all(torch.allclose(large[name], small[name], atol=2e-4) for name in large)
    assert any(not torch.equal(large[name], small[name]) for name in large)


def test_seeds_decide_and_repeat(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train("vela", "scenes", tmp_path / name, small_config(seed=seed, max_steps=2))
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


def test_mixed_precision_keeps_trained_weights_in_float32(tmp_path: Path) -> None:
    exact = train("vela", "scenes", tmp_path / "fp32", small_config(max_steps=4))
    mixed = train("vela", "scenes", tmp_path / "bf16", small_config(max_steps=4, precision="bf16"))
    assert {value.dtype for value in weights(tmp_path / "bf16").values()} == {torch.float32}
    assert mixed.figures["val"]["mse"] == pytest.approx(exact.figures["val"]["mse"], abs=0.01)
    assert mixed.figures != exact.figures


def test_training_stops_by_tau_c_and_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = evaluation.agreement

    def script(*taus: float) -> None:
        left = iter(taus)
        monkeypatch.setattr(evaluation, "agreement", lambda *args: {**real(*args), "tau_c": next(left, 0.0)})

    script(0.1, 0.5, 0.4, 0.3, 0.9)
    steady = {"schedule": "constant", "warmup_ratio": 0.0}
    stopped = train("vela", "scenes", tmp_path / "stopped", small_config(epochs=9, patience=2, **steady))
    # six steps an epoch: evaluated four times, best at the second
    assert (stopped.steps, stopped.best_step) == (24, 12)
    script(0.1, 0.5)
    train("vela", "scenes", tmp_path / "short", small_config(epochs=2, **steady))
    assert same_weights(tmp_path / "short", tmp_path / "stopped")


def test_ablations_train_one_branch(tmp_path: Path) -> None:
    train("vela", "scenes", tmp_path / "text", small_config(max_steps=2, model={"image": None}))
    train("vela", "scenes", tmp_path / "image", small_config(max_steps=2, model={"text": None}))
    assert not any(name.startswith("image.") for name in weights(tmp_path / "text"))
    assert not any(name.startswith("text.") for name in weights(tmp_path / "image"))


def test_the_output_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        train("vela", "scenes", tmp_path, small_config())
    with pytest.raises(OutputError, match="not empty"):
        train("vela", "scenes", tmp_path / "notes.txt", small_config())
    with pytest.raises(OutputError, match="cannot write to the output folder"):
        train("vela", "scenes", tmp_path / "notes.txt" / "run", small_config())
    with pytest.raises(OutputError, match="no run to resume"):
        train("vela", "scenes", tmp_path, small_config(), resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"txt": {}}, "txt"),
        ({"tokenizer": None}, 'needs the setting "tokenizer"'),
        ({"tokenizer": {"vocab_size": 10}}, "at least 300"),
        ({"text": {"backbone": "a/b"}}, "either a backbone"),
        ({"text": None, "image": None}, "at least one branch"),
    ],
)
def test_bad_model_settings_are_refused(tmp_path: Path, model: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train("vela", "scenes", tmp_path / "run", small_config(model=model))
    assert list((tmp_path / "run").iterdir()) == []  # so that the corrected command can use the folder


@pytest.mark.skipif(torch.cuda.is_available(), reason="half precision is fine with CUDA")
def test_fp16_without_cuda_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        train("vela", "scenes", tmp_path / "run", small_config(precision="fp16"))


def test_metrics_without_training_say_so() -> None:
    with pytest.raises(ConfigError, match="'length' cannot be trained"):
        metric_training(metric_spec("length"))


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
