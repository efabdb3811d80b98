"""VELA against a Hub: the paper's recipe on the real names, pushed, loaded back and evaluated, through real clients."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file
from scipy.stats import kendalltau

from reward import CaptionSample, VelaReward, load_scorer
from reward.cli.app import app
from reward.metrics.vela.prompts import DEFAULT_PROMPTS
from reward.metrics.vela.training import make_tokenizer
from reward.scenes import make_dataset
from tests.reward.metrics.tiny_vela import CHAT_TEMPLATE
from tests.toys.json_lines import read_lines

LANGUAGE_MODEL, CLIP, DATA = "Qwen/Qwen2.5-3B-Instruct", "BeichenZhang/LongCLIP-L", "Ka2ukiMatsuda/LongCap-Arena"
PARTS = ("train", "val", "dci_val", "dci_test")  # each part's place is the seed of its scenes
TEST_A = PARTS.index("dci_val")
SCENES = 3
ASPECTS = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}


def add_language_model(hub, folder):
    """A Qwen2 with random weights of a few thousand parameters, with a chat template, as a real repository has it."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = make_tokenizer([prompt.system for prompt in DEFAULT_PROMPTS.values()], 900)  # so that prompts are short
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), **sizes, **heads)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    hub.add_folder(LANGUAGE_MODEL, folder)


def add_clip(hub):
    """The golden Long-CLIP in its original layout, with CLIP's vocabulary, as the .pt file its authors publish."""
    tensors = load_file(Path(__file__).parent / "golden" / "longclip_tiny_weights.safetensors")
    torch.manual_seed(0)
    tensors["token_embedding.weight"] = 0.02 * torch.randn(49408, tensors["token_embedding.weight"].shape[1])
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    hub.add_repo(CLIP, {"longclip-L.pt": buffer.getvalue(), "README.md": b"# Long-CLIP\n"})


def add_data(hub, scenes=SCENES):
    """So many scenes a split under LongCap-Arena's splits and columns, as Parquet."""
    files, lines = {}, ""
    for seed, part in enumerate(PARTS):
        rows = make_dataset(scenes, seed).remove_columns("score")
        for aspect in ASPECTS.values():
            split, buffer = f"{part}.{aspect}", io.BytesIO()
            arena = rows.rename_column(aspect, "score")
            arena.select_columns(["file_name", "image", "refs", "cand", "score"]).to_parquet(buffer)
            files[f"data/{split}-00000-of-00001.parquet"] = buffer.getvalue()
            lines += f"  - split: {split}\n    path: data/{split}-*\n"
    readme = f"---\nconfigs:\n- config_name: default\n  data_files:\n{lines}---\n"
    hub.add_repo(DATA, {"README.md": readme.encode(), **files}, kind="datasets")


def samples_of(rows):
    return [CaptionSample(row["cand"], row["image"], row["refs"]) for row in rows]


@pytest.mark.parametrize("metric", ["vela", "beitscore"])
def test_a_scorer_is_pushed_and_loaded_back(metric, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", hub.token or "")
    rows = samples_of(make_dataset(1, 99))
    scorer = load_scorer(metric, device="cpu")
    assert scorer.push_to_hub(f"tester/my-{metric}").startswith("http")
    assert f'load_scorer("{metric}", "tester/my-{metric}")' in hub.files(f"tester/my-{metric}")["README.md"].decode()
    pushed = load_scorer(f"tester/my-{metric}", device="cpu")
    assert np.array_equal(pushed.score(rows).scores, scorer.score(rows).scores)


@pytest.mark.slow
def test_one_command_from_hub_to_hub(hub, tmp_path, monkeypatch, capsys):
    add_language_model(hub, tmp_path / "language_model")
    add_clip(hub)
    add_data(hub)
    hub.token = "a-token-of-the-test"
    monkeypatch.setenv("HF_TOKEN", hub.token)
    monkeypatch.chdir(tmp_path)
    few = {"max_steps": 3, "eval_steps": 3, "patience": 9, "learning_rate": 0.01, "max_references": 1}
    Path("few.json").write_text(json.dumps(few))
    command = ["train", "vela", "--preset", "paper", "--data", "longcap-arena", "--config", "few.json"]
    command += ["--push-to", "tester/vela-arena"]
    monkeypatch.setattr(sys, "argv", ["capreward", *command])  # which the card tells
    app(command, standalone_mode=False)
    record = json.loads(Path("vela-arena", "training.json").read_text())
    assert record["rows"] == dict.fromkeys(PARTS, 3 * SCENES)
    assert (record["config"]["precision"], record["steps"]) == ("bf16", 3)

    files = hub.files("tester/vela-arena")
    card = files["README.md"].decode()
    for text in (
        *(f"- {LANGUAGE_MODEL}\n", f"- {CLIP}\n", f"datasets:\n- {DATA}\n", "| descriptiveness | "),
        *('load_scorer("vela", "tester/vela-arena")', "Seed 0.", "--push-to tester/vela-arena"),
    ):
        assert text in card, text
    config = json.loads(files["config.json"])
    assert (config["text"]["backbone"], config["image"]["backbone"]) == (LANGUAGE_MODEL, CLIP)
    tensors = load(files["model.safetensors"])
    # The head, and adapters of rank 16 on q (32 to 32) and v (32 to 16) of two layers; no weight of a backbone.
    assert sum(value.numel() for value in tensors.values()) == 3 * (2 * 32 + 2 * 32 + 1) + 2 * 16 * (64 + 48)
    assert all(".lora_" in name or name in ("weight", "bias") for name in tensors)
    assert any(value.abs().sum() > 0 for name, value in tensors.items() if "lora_B" in name)

    hub.point_client(monkeypatch, tmp_path / "another-cache")
    rated = make_dataset(SCENES, TEST_A)
    trained, pushed = (load_scorer("vela", name, device="cpu") for name in ("vela-arena", "tester/vela-arena"))
    scores = pushed.score(samples_of(rated)).scores
    assert np.array_equal(trained.score(samples_of(rated)).scores, scores)
    assert len(np.unique(scores)) == scores.size  # the head is trained: every score is its own, none is the initial 0.5
    reward = VelaReward("tester/vela-arena", device="cpu")
    columns = {"image": list(rated["image"]), "references": list(rated["refs"])}
    rewards = reward(["Describe it."] * len(rated), list(rated["cand"]), **columns)
    assert rewards == pytest.approx(scores.mean(1))
    rated.select_columns(["image", "cand", "refs"]).to_parquet("rows.parquet")
    app(["score", "rows.parquet", "--metric", "tester/vela-arena", "--output", "scored.jsonl"], standalone_mode=False)
    assert [row["reward"] for row in read_lines(Path("scored.jsonl"))] == pytest.approx(rewards)

    capsys.readouterr()
    bench = ["bench", "--benchmark", "longcap-arena", "--part", "TestA", "--metric", "vela=tester/vela-arena"]
    app([*bench, "--resamples", "50", "--json"], standalone_mode=False)
    [table] = json.loads(capsys.readouterr().out)["tables"]
    [vela] = table["rows"]
    assert ("TestA" in table["title"], vela["name"], vela["scored"]) == (True, "vela=tester/vela-arena", SCENES)
    for place, (aspect, short) in enumerate(ASPECTS.items()):
        expected = kendalltau(scores[:, place], rated[short], variant="c").statistic
        assert vela[aspect]["value"] == pytest.approx(100 * expected), aspect
