"""Whole training runs of a small VELA: what they leave, when they stop, what ends them early, all presets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import DatasetDict

from reward import CaptionSample, VelaReward, load_scorer
from reward.errors import ConfigError, DataError, OutputError, TrainingError
from reward.metaeval import kendall_tau
from reward.metrics.vela.training import PRESETS
from reward.scenes import make_dataset
from reward.training import evaluation
from reward.training.config import TrainingConfig, make_config
from reward.training.loop import train
from tests.reward.metrics.tiny_vela import language_architecture, make_tokenizer
from tests.reward.training.small_runs import (
    NO_STAGES,
    pair_rows,
    record,
    same_weights,
    small_beitscore,
    small_config,
    weights,
)
from tests.toys.small_clip import small_clip

pytestmark = pytest.mark.slow

COLUMNS = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}
STEADY = {"schedule": "constant", "warmup_ratio": 0.0}


@pytest.mark.parametrize("aspects", [["fluency", "descriptiveness", "relevance"], ["relevance"]])
def test_a_run_leaves_a_checkpoint_whose_scores_have_the_reported_figures(aspects: list[str], tmp_path: Path) -> None:
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
    for fact in ("capreward train vela", "Seed 0", "| test (reference-free) |", '"learning_rate": 0.01'):
        assert fact in card
    assert written["figures"] == result.figures
    assert written["rows"] == {"train": 30 * len(aspects), "val": 8 * len(aspects), "test": 30 * len(aspects)}
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("ratings", "message"),
    [
        ({"rel": [0.0, 0.25, 0.5, 0.75, 1.0, 0.5]}, r"rate descriptiveness, fluency.*model\.aspects: \[relevance\]"),
        ({"desc": [0.5] * 6, "rel": [1.0] * 6, "flu": [0.25] * 6}, "all ratings of the part 'train' are equal"),
    ],
)
def test_an_aspect_is_not_left_at_its_start(ratings: dict[str, list[float]], message: str, tmp_path: Path) -> None:
    rows = make_dataset(6, 0).remove_columns(list(COLUMNS.values()))
    for name, values in ratings.items():
        rows = rows.add_column(name, values)
    DatasetDict({"train": rows, "val": rows}).save_to_disk(tmp_path / "data")
    with pytest.raises(DataError, match=message):
        train("vela", tmp_path / "data", tmp_path / "run", small_config())


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    train("vela", "scenes", tmp_path, small_config(scenes_train=4, epochs=20, eval_steps=20, **STEADY))
    first, last = (entry["loss"] for entry in record(tmp_path)["history"] if "loss" in entry)
    assert last < 0.8 * first


def test_the_last_micro_batch_weighs_by_its_rows(tmp_path: Path) -> None:
    """30 ratings in batches of 4, the last of 2, are a step of 30."""
    for name, sizes in (("large", {"batch_size": 30}), ("small", {"batch_size": 4, "accumulation": 8})):
        train("vela", "scenes", tmp_path / name, small_config(epochs=1, scenes_train=10, **STEADY, **sizes))
    histories = [record(tmp_path / name)["history"] for name in ("large", "small")]
    large, small = ([entry["train_loss"] for entry in history if "train_loss" in entry] for history in histories)
    assert small == pytest.approx(large, abs=1e-6)
    after, other = weights(tmp_path / "large"), weights(tmp_path / "small")
    assert all(torch.allclose(after[name], other[name], atol=2e-4) for name in after)


def test_pairs_that_are_one_input_after_the_cut_are_counted(tmp_path: Path) -> None:
    long = "A cat looks at the red star. " * 80
    right = [*(f"{long}It is {word}." for word in ("red", "big", "old")), "A red star."]
    wrong = [*(f"{long}It is {word}." for word in ("blue", "small", "new")), "A blue star."]
    parts = {"train": pair_rows(caption=right, incorrect=wrong), "val": pair_rows()}
    DatasetDict(parts).save_to_disk(tmp_path / "data")
    config = small_beitscore(loss="bce", categories=["count"], stages=NO_STAGES)
    with pytest.warns(UserWarning, match="3 of 4 pairs so far are the same input once their captions are cut"):
        train("beitscore", tmp_path / "data", tmp_path / "run", config)


def test_mixed_precision_keeps_trained_weights_in_float32(tmp_path: Path) -> None:
    exact, mixed = (
        train("vela", "scenes", tmp_path / precision, small_config(max_steps=3, precision=precision))
        for precision in ("fp32", "bf16")
    )
    assert {value.dtype for value in weights(mixed.folder).values()} == {torch.float32}
    assert mixed.figures["val"]["mse"] == pytest.approx(exact.figures["val"]["mse"], abs=0.01)
    assert mixed.figures != exact.figures


def script_tau_c(monkeypatch: pytest.MonkeyPatch, taus: Iterator[float]) -> None:
    real = evaluation.agreement
    monkeypatch.setattr(evaluation, "agreement", lambda *args: {**real(*args), "tau_c": next(taus, 0.0)})


def test_training_stops_by_tau_c_and_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    six = {"scenes_train": 4, "batch_size": 6, **STEADY}  # two steps an epoch
    script_tau_c(monkeypatch, iter([0.1, 0.5, 0.4, 0.3, 0.9]))
    stopped = train("vela", "scenes", tmp_path / "stopped", small_config(epochs=9, patience=2, **six))
    assert (stopped.steps, stopped.best_step) == (8, 4)  # evaluated four times, best at the second
    script_tau_c(monkeypatch, iter([0.1, 0.5]))
    train("vela", "scenes", tmp_path / "short", small_config(epochs=2, **six))
    assert same_weights(tmp_path / "short", tmp_path / "stopped")


def test_the_output_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for place, options, message in (
        ("", {}, "not empty"),
        ("notes.txt/run", {}, "cannot write to the output folder"),
        ("", {"resume": True}, "no run to resume"),
    ):
        with pytest.raises(OutputError, match=message):
            train("vela", "scenes", tmp_path / place, small_config(), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"txt": {}}}, "txt"),
        ({"model": {"tokenizer": None}}, 'needs the setting "tokenizer"'),
        ({"model": {"text": {"backbone": "a/b"}}}, "either a backbone"),
        ({"model": {"text": None, "image": None}}, "at least one branch"),
        ({"model": {"aspects": "relevance"}}, "aspects must be a list of different names"),
        ({"loss": "bce"}, "vela cannot be trained with the loss bce; known: mse, l1"),
        ({"precision": "fp16"}, "needs a CUDA device"),
    ],
)
def test_bad_settings_are_refused_and_the_folder_stays_free(
    settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match=message):
        train("vela", "scenes", tmp_path / "run", small_config(**settings))
    assert not list(tmp_path.rglob("*.*"))


def out_of_memory(*_: Any) -> None:
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
def test_a_run_that_cannot_end_well_says_what_to_change(
    settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "accumulation" in settings:
        monkeypatch.setattr("transformers.Trainer.training_step", out_of_memory)
    with pytest.raises(TrainingError, match=message):
        train("vela", "scenes", tmp_path / "run", small_config(**{**STEADY, "epochs": 1, **settings}))
    assert not (tmp_path / "run" / "model.safetensors").exists()


# The shipped presets, on small backbones instead of the published ones


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of small networks, language models by the model type of the published one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    found = {"clip": str(small_clip(tmp_path_factory.mktemp("clip")))}
    for kind in ("qwen2", "phi3"):
        settings = {**language_architecture(), "num_hidden_layers": 1, "model_type": kind, "pad_token_id": 0}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
        found[kind] = str(tmp_path_factory.mktemp(kind))
        model.save_pretrained(found[kind])
        make_tokenizer().save_pretrained(found[kind])
    return found


def small_preset(name: str, backbones: dict[str, str]) -> TrainingConfig:
    kind = "phi3" if name == "paper-phi" else "qwen2"
    small = {"text": {"backbone": backbones[kind]}, "image": {"backbone": backbones["clip"]}}
    few = {"scenes_train": 2, "scenes_val": 2, "scenes_test": 0, "max_steps": 2, "learning_rate": 1e-2}
    return make_config(PRESETS[name], few, {"model": small})


# One of each make-up; `test_ablations_leave_out_what_they_say` reads the others.
@pytest.mark.parametrize(
    ("name", "heads", "adapted"),
    [
        ("paper-phi", 3, {"qkv_proj"}),
        ("paper-transformer", 3, {"q_proj", "v_proj"}),
        ("paper-one-score", 1, {"q_proj", "v_proj"}),
    ],
)
def test_a_preset_trains_and_its_checkpoint_is_a_reward(
    name: str, heads: int, adapted: set[str], backbones: dict[str, str], tmp_path: Path
) -> None:
    train("vela", "scenes", tmp_path, small_preset(name, backbones))
    trained = weights(tmp_path)
    assert {key.split(".lora_A")[0].split(".")[-1] for key in trained if ".lora_A." in key} == adapted
    assert any(weight.any() for key, weight in trained.items() if "lora_B" in key)
    assert len(trained["weight"]) == len(trained["bias"]) == heads
    row = make_dataset(1, 5)[0]
    scores = load_scorer("vela", tmp_path, device="cpu").score([CaptionSample(row["cand"], row["image"])]).scores[0]
    assert len(set(scores)) == heads
    reward = VelaReward(tmp_path, device="cpu")
    assert reward(["What is it?"], [row["cand"]], image=[row["image"]]) == pytest.approx([scores.mean()])


def test_adapters_go_on_where_they_are(backbones: dict[str, str], tmp_path: Path) -> None:
    config = small_preset("paper", backbones)
    train("vela", "scenes", tmp_path / "run", config)
    still = replace(config, learning_rate=1e-12, model={})
    with pytest.warns(UserWarning, match="did not help"):
        train("vela", "scenes", tmp_path / "again", still, init=tmp_path / "run")
    before, after = weights(tmp_path / "run"), weights(tmp_path / "again")
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[key], after[key], atol=1e-8) for key in before)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("paper-text-only", {"image": None}),
        ("paper-image-only", {"text": None}),
        ("paper-reference-free", {"reference_free_rate": 1.0}),
        ("paper-transformer", {"fusion": {"width": 256, "heads": 4, "layers": 1, "dropout": 0.1}}),
        ("paper-one-score", {"aspects", "text"}),
        *[(name, {"image"}) for name in ("paper-clip", "paper-pacs", "paper-longclip-b")],
        *[(name, {"text"}) for name in ("paper-llama", "paper-phi", "paper-one-prompt")],
    ],
)
def test_ablations_leave_out_what_they_say(name: str, changed: Any) -> None:
    paper, own = (make_config(PRESETS[preset]).to_dict() for preset in ("paper", name))
    found = {key: own[key] for key in own if key != "model" and own[key] != paper[key]}
    found |= {key: own["model"][key] for key in own["model"] if own["model"][key] != paper["model"].get(key)}
    assert (found if isinstance(changed, dict) else set(found)) == changed
