"""Whole training runs of a small VELA: checkpoint, aspects, early stopping, precision, output folder, all presets."""

from __future__ import annotations

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
from reward.metrics.vela import training as vela_training
from reward.metrics.vela.training import PRESETS
from reward.scenes import make_dataset
from reward.training import evaluation
from reward.training.config import make_config
from reward.training.loop import train
from tests.reward.metrics.tiny_vela import language_architecture, make_tokenizer
from tests.reward.training.small_runs import pair_rows, record, same_weights, small_beitscore, small_config, weights
from tests.toys.small_clip import small_clip

pytestmark = pytest.mark.slow

SMALL = {"vela": small_config, "beitscore": small_beitscore}
STAGES = dict.fromkeys(("1a", "1b", "1c", "2"))
without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="half precision is fine with CUDA")
COLUMNS = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}
# a high rate, so that scores differ enough for figures that tell aspects apart
QUICK = {"learning_rate": 1e-2, "scenes_test": 30, "scenes_train": 30}


@pytest.mark.parametrize("aspects", [["fluency", "descriptiveness", "relevance"], ["relevance"]])
def test_a_run_leaves_a_checkpoint_whose_scores_have_the_reported_figures(aspects: list[str], tmp_path: Path) -> None:
    config = small_config(**QUICK, model={"aspects": aspects})
    result = train("vela", "scenes", tmp_path / "run", config, command="capreward train vela")
    rows = make_dataset(30, config.scenes_seed + 2)
    targets = np.stack([rows[COLUMNS[aspect]] for aspect in aspects], axis=1)
    scorer = load_scorer("vela", tmp_path / "run", device="cpu")
    # as in training: no more references than the settings allow
    for part, most in (("test", config.max_references), ("test (reference-free)", 0)):
        table = scorer.score([CaptionSample(row["cand"], row["image"], row["refs"][:most]) for row in rows])
        assert table.aspects == tuple(aspects)
        found = {name: value for name, value in result.figures[part].items() if name.startswith("tau_c_")}
        expected = {f"tau_c_{name}": kendall_tau(table.column(name), targets[:, n]) for n, name in enumerate(aspects)}
        assert found == pytest.approx(expected, abs=1e-6)
        assert result.figures[part]["mse"] == pytest.approx(np.mean((table.scores - targets) ** 2), abs=1e-5)

    for weighted in (None, {"rel": 1}, {"relevance": 2.0}) if len(aspects) == 1 else ():
        reward = VelaReward(tmp_path / "run", weighted, device="cpu")
        expected_reward = scorer.score([CaptionSample("A red star.", rows[0]["image"])]).scores[0, 0]
        assert reward(["What is it?"], ["A red star."], image=[rows[0]["image"]]) == pytest.approx([expected_reward])

    card = (tmp_path / "run" / "README.md").read_text()
    for fact in ("capreward train vela", "Seed 0", "| test (reference-free) |", '"learning_rate": 0.01'):
        assert fact in card
    assert record(tmp_path / "run")["figures"] == result.figures
    expected_rows = {"train": 30 * len(aspects), "val": 8 * len(aspects), "test": 30 * len(aspects)}
    assert record(tmp_path / "run")["rows"] == expected_rows
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("ratings", "message"),
    [
        ({"rel": [0.0, 0.25, 0.5, 0.75, 1.0, 0.5]}, r"rate descriptiveness, fluency.*model\.aspects: \[relevance\]"),
        ({"desc": [0.5] * 6, "rel": [1.0] * 6, "flu": [0.25] * 6}, "all ratings of the part 'train' are equal"),
    ],
)
def test_an_aspect_is_not_left_at_its_start(ratings: dict[str, list[float]], message: str, tmp_path: Path) -> None:
    splits = DatasetDict()
    for seed, part in enumerate(("train", "val")):
        splits[part] = make_dataset(6, seed).remove_columns(list(COLUMNS.values()))
        for name, values in ratings.items():
            splits[part] = splits[part].add_column(name, values)
    splits.save_to_disk(tmp_path / "data")
    with pytest.raises(DataError, match=message):
        train("vela", tmp_path / "data", tmp_path / "run", small_config())


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    train("vela", "scenes", tmp_path / "run", small_config(epochs=7, schedule="constant"))
    losses = [entry["loss"] for entry in record(tmp_path / "run")["history"] if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]


def test_the_last_micro_batch_weighs_by_its_rows(tmp_path: Path) -> None:
    """30 ratings in batches of 4, the last of 2, are a step of 30."""
    plain = {"epochs": 1, "scenes_train": 10, "schedule": "constant", "warmup_ratio": 0.0}
    for name, sizes in (("large", {"batch_size": 30}), ("small", {"batch_size": 4, "accumulation": 8})):
        train("vela", "scenes", tmp_path / name, small_config(**plain, **sizes))
    histories = [record(tmp_path / name)["history"] for name in ("large", "small")]
    large, small = ([entry["train_loss"] for entry in history if "train_loss" in entry] for history in histories)
    assert small == pytest.approx(large, abs=1e-6)
    after, other = weights(tmp_path / "large"), weights(tmp_path / "small")
    assert all(torch.allclose(after[name], other[name], atol=2e-4) for name in after)


def test_pairs_that_are_one_input_after_the_cut_are_counted(tmp_path: Path) -> None:
    long = "A cat looks at the red star. " * 80
    data = {part: pair_rows() for part in ("train", "val")}
    columns = {"caption": [f"{long}It is {word}." for word in ("red", "big", "old")] + ["A red star."]}
    columns |= {"incorrect": [f"{long}It is {word}." for word in ("blue", "small", "new")] + ["A blue star."]}
    data["train"] = pair_rows(**columns)
    DatasetDict(data).save_to_disk(tmp_path / "data")
    pairs = {"loss": "bce", "categories": ["count"], "stages": dict.fromkeys(STAGES), "epochs": 1}
    with pytest.warns(UserWarning, match="3 of 4 pairs so far are the same input once their captions are cut"):
        train("beitscore", tmp_path / "data", tmp_path / "run", small_beitscore(**pairs))


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


def test_the_output_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for place, options, message in (
        ("", {}, "not empty"),
        ("notes.txt", {}, "not empty"),
        ("notes.txt/run", {}, "cannot write to the output folder"),
        ("", {"resume": True}, "no run to resume"),
    ):
        with pytest.raises(OutputError, match=message):
            train("vela", "scenes", tmp_path / place, small_config(), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("metric", "settings", "message"),
    [
        ("vela", {"model": {"txt": {}}}, "txt"),
        ("vela", {"model": {"tokenizer": None}}, 'needs the setting "tokenizer"'),
        ("vela", {"model": {"tokenizer": {"vocab_size": 10}}}, "at least 300"),
        ("vela", {"model": {"text": {"backbone": "a/b"}}}, "either a backbone"),
        ("vela", {"model": {"text": None, "image": None}}, "at least one branch"),
        ("vela", {"model": {"aspects": "relevance"}}, "aspects must be a list of different names"),
        ("vela", {"loss": "bce"}, "vela cannot be trained with the loss bce; known: mse, l1"),
        ("beitscore", {"stages": STAGES, "model": {"beit": "x"}}, "unknown beit;"),
        pytest.param("vela", {"precision": "fp16"}, "needs a CUDA device", marks=without_cuda),
    ],
)
def test_bad_settings_are_refused(metric: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(metric, "scenes", tmp_path / "run", SMALL[metric](**settings))
    assert not list(tmp_path.rglob("*.*"))  # so that the corrected command can use the folder


def test_a_loss_that_is_no_number_stops_at_its_step(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"loss is nan at step [23]: lower learning_rate"):
        train("vela", "scenes", tmp_path / "run", small_config(learning_rate=1e30, schedule="constant", epochs=1))
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_too_little_memory_names_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr("transformers.Trainer.training_step", full)
    message = "too little memory for a step with batch_size 6 and accumulation 2: set a smaller batch_size"
    with pytest.raises(TrainingError, match=message):
        train("vela", "scenes", tmp_path / "run", small_config(accumulation=2))


def test_one_score_for_everything_is_no_result(tmp_path: Path) -> None:
    config = small_config(max_steps=1, warmup_ratio=0.9)  # a head of zeros, and a first step without a size
    with pytest.raises(TrainingError, match=r"every caption of the part 'val' gets the score 0\.5"):
        train("vela", "scenes", tmp_path / "run", config)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_network_of_frozen_weights_is_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = vela_training.make_model
    monkeypatch.setattr(vela_training, "make_model", lambda *args, **more: real(*args, **more).requires_grad_(False))
    with pytest.raises(ConfigError, match="nothing to train"):
        train("vela", "scenes", tmp_path / "run", small_config())


# The shipped presets, on small backbones instead of the published ones

FEW_STEPS = {"scenes_train": 4, "scenes_val": 4, "scenes_test": 0, "max_steps": 2}
FEW_STEPS |= {"learning_rate": 1e-2, "warmup_ratio": 0.0}


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of small networks, language models by the model type of the published one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    found = {}
    for kind in ("qwen2", "phi3"):
        settings = {**language_architecture(), "model_type": kind, "pad_token_id": 0}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
        folder = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        found[kind] = str(folder)
    return {**found, "clip": str(small_clip(tmp_path_factory.mktemp("clip")))}


def _small(name: str, backbones: dict[str, str]) -> dict[str, Any]:
    """What stands in for published backbones."""
    kind = "phi3" if name == "paper-phi" else "qwen2"
    branches = {"text": {"backbone": backbones[kind]}, "image": {"backbone": backbones["clip"]}}
    kept = {branch: value for branch, value in branches.items() if PRESETS[name]["model"][branch] is not None}
    return kept


# One of each make-up; `test_ablations_leave_out_what_they_say` reads the others.
@pytest.mark.parametrize("name", ["paper", "paper-one-score", "paper-phi", "paper-transformer"])
def test_a_preset_trains_and_scores(name: str, backbones: dict[str, str], tmp_path: Path) -> None:
    config = make_config(PRESETS[name], FEW_STEPS, {"model": _small(name, backbones)})
    train("vela", "scenes", tmp_path / "run", config)
    trained = weights(tmp_path / "run")
    assert any(weight.abs().max() > 0 for key, weight in trained.items() if "lora_B" in key or key == "weight")
    text = config.model["text"]
    if text is not None and text.get("lora") is not None:
        adapted = {key.split(".lora_A")[0].split(".")[-1] for key in trained if ".lora_A." in key}
        assert adapted == set(text["lora"]["target_modules"])
    if name == "paper":  # adapters go on where they are
        again = replace(config, learning_rate=1e-12, model={})
        with pytest.warns(UserWarning, match="did not help"):
            train("vela", "scenes", tmp_path / "again", again, init=tmp_path / "run")
        same = weights(tmp_path / "again")
        assert same.keys() == trained.keys()
        assert all(torch.allclose(same[key], trained[key], atol=1e-8) for key in same)
    for branch, settings in config.model.items():
        assert settings is not None or not any(key.startswith(f"{branch}.") for key in trained)
    rows = 1 if name == "paper-one-score" else 3
    assert len(trained["weight"]) == len(trained["bias"]) == rows
    row = make_dataset(1, 5)[0]
    table = load_scorer("vela", tmp_path / "run", device="cpu").score([CaptionSample(row["cand"], row["image"])])
    assert table.errors == {}
    assert len(set(table.scores[0])) == len(config.model["aspects"])


def test_ablations_leave_out_what_they_say(backbones: dict[str, str]) -> None:
    paper = make_config(PRESETS["paper"]).to_dict()

    def changed(name: str) -> dict[str, Any]:
        own = make_config(PRESETS[name]).to_dict()
        model = {key: own["model"][key] for key in own["model"] if own["model"][key] != paper["model"].get(key)}
        return {key: own[key] for key in own if key != "model" and own[key] != paper[key]} | model

    assert changed("paper-text-only") == {"image": None}
    assert changed("paper-image-only") == {"text": None}
    assert changed("paper-reference-free") == {"reference_free_rate": 1.0}
    assert changed("paper-transformer") == {"fusion": {"width": 256, "heads": 4, "layers": 1, "dropout": 0.1}}
    assert list(changed("paper-one-score")) == ["aspects", "text"]
    for name in ("paper-clip", "paper-pacs", "paper-longclip-b"):
        assert list(changed(name)) == ["image"]
    for name in ("paper-llama", "paper-phi", "paper-one-prompt"):
        assert list(changed(name)) == ["text"]
    prompts = changed("paper-one-prompt")["text"]["prompts"].values()
    assert len({prompt["system"] for prompt in prompts}) == 1
    assert len({prompt["cue"] for prompt in prompts}) == 3
