"""VELA against a Hub: the paper's recipe on the real names, pushed, loaded back and evaluated, through real clients."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load, load_file
from scipy.stats import kendalltau

from reward import CaptionSample, VelaReward, load_scorer
from reward.cli.app import app
from reward.metrics.vela.training import make_tokenizer
from reward.scenes import make_dataset
from tests.toys.loopback_hub import LoopbackHub, loopback_hub

pytestmark = pytest.mark.slow

LANGUAGE_MODEL, CLIP, DATA = "Qwen/Qwen2.5-3B-Instruct", "BeichenZhang/LongCLIP-L", "Ka2ukiMatsuda/LongCap-Arena"
PARTS = ("train", "val", "dci_val", "dci_test")  # each part's place is the seed of its scenes
TEST_A = PARTS.index("dci_val")
TOKEN = "a-token-of-the-test"
SCENES = 8
ASPECTS = {"descriptiveness": "desc", "relevance": "rel", "fluency": "flu"}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def add_language_model(hub: LoopbackHub, folder: Path) -> None:
    """A Qwen2 with random weights of a few thousand parameters, with a chat template, as a real repository has it."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = make_tokenizer(["a red star", "Grade one quality of the caption"], 300)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    hub.add_folder(LANGUAGE_MODEL, folder)


def add_clip(hub: LoopbackHub) -> None:
    """The golden Long-CLIP in its original layout, with CLIP's vocabulary, as the .pt file its authors publish."""
    tensors = load_file(Path(__file__).parent / "golden" / "longclip_tiny_weights.safetensors")
    torch.manual_seed(0)
    tensors["token_embedding.weight"] = 0.02 * torch.randn(49408, tensors["token_embedding.weight"].shape[1])
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    hub.add_repo(CLIP, {"longclip-L.pt": buffer.getvalue(), "README.md": b"# Long-CLIP\n"})


def add_data(hub: LoopbackHub, scenes: int = SCENES) -> None:
    """So many scenes a split under LongCap-Arena's splits and columns, as Parquet."""
    splits = {
        f"{part}.{aspect}": make_dataset(scenes, seed).remove_columns("score").rename_column(aspect, "score")
        for seed, part in enumerate(PARTS)
        for aspect in ("desc", "rel", "flu")
    }
    lines = [f"  - split: {name}\n    path: data/{name}-*\n" for name in splits]
    readme = "---\nconfigs:\n- config_name: default\n  data_files:\n" + "".join(lines) + "---\n"
    files: dict[str, bytes | Path] = {"README.md": readme.encode()}
    for name, split in splits.items():
        buffer = io.BytesIO()
        arena: Dataset = split.select_columns(["file_name", "image", "refs", "cand", "score"])
        arena.to_parquet(buffer)
        files[f"data/{name}-00000-of-00001.parquet"] = buffer.getvalue()
    hub.add_repo(DATA, files, kind="datasets")


@pytest.fixture(scope="module")
def filled_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    with loopback_hub(TOKEN) as hub:
        add_language_model(hub, tmp_path_factory.mktemp("language_model"))
        add_clip(hub)
        add_data(hub)
        yield hub


def samples_of(rows: Dataset) -> list[CaptionSample]:
    return [CaptionSample(row["cand"], row["image"], row["refs"]) for row in rows]


def test_one_command_from_hub_to_hub(
    filled_hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    filled_hub.point_client(monkeypatch, tmp_path / "cache")
    few = {"max_steps": 3, "eval_steps": 3, "patience": 9, "learning_rate": 0.01, "max_references": 1}
    Path("few.json").write_text(json.dumps(few))
    command = ["train", "vela", "--preset", "paper", "--data", "longcap-arena", "--config", "few.json"]
    command += ["--push-to", "tester/vela-arena"]
    monkeypatch.setattr(sys, "argv", ["capreward", *command])  # which the card tells
    app(command, standalone_mode=False)
    printed = capsys.readouterr().out
    folder = tmp_path / "vela-arena"
    record = json.loads((folder / "training.json").read_text())
    assert record["rows"] == {"train": 24, "val": 24, "dci_val": 24, "dci_test": 24}
    assert (record["config"]["precision"], record["steps"]) == ("bf16", 3)
    own = [record["figures"][part][f"tau_c_{aspect}"] for part in ("dci_val", "dci_test") for aspect in ASPECTS]
    assert all(f"{100 * value:.1f}" in printed for value in own)

    files = filled_hub.files("tester/vela-arena")
    assert {"config.json", "model.safetensors", "README.md"} <= set(files)
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

    filled_hub.point_client(monkeypatch, tmp_path / "another-cache")
    rows, rated = make_dataset(5, 99), make_dataset(SCENES, TEST_A)
    trained, pushed = (load_scorer("vela", name, device="cpu") for name in ("vela-arena", "tester/vela-arena"))
    scores = pushed.score(samples_of(rows)).scores
    assert np.array_equal(trained.score(samples_of(rows)).scores, scores)
    assert len(np.unique(scores)) == 15  # the head is trained: every score is its own, none is the initial 0.5
    reward = VelaReward("tester/vela-arena", device="cpu")
    rewards = reward(["Describe it."] * 5, list(rows["cand"]), image=list(rows["image"]), references=list(rows["refs"]))
    assert rewards == pytest.approx(scores.mean(1))
    rows.select_columns(["image", "cand", "refs"]).to_parquet("rows.parquet")
    app(["score", "rows.parquet", "--metric", "tester/vela-arena", "--output", "scored.jsonl"], standalone_mode=False)
    scored = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in scored] == pytest.approx(rewards)

    capsys.readouterr()
    bench = ["bench", "--benchmark", "longcap-arena", "--part", "TestA", "--part", "TestB", "--metric", "length"]
    app([*bench, "--metric", "vela=tester/vela-arena", "--resamples", "50", "--json"], standalone_mode=False)
    table = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["part"], each["items"]) for each in table["benchmarks"]] == [
        ("longcap-arena", "TestA", SCENES),
        ("longcap-arena", "TestB", SCENES),
    ]
    length, vela = table["benchmarks"][0]["rows"]
    assert (vela["source"], vela["scored"], vela["errors"]) == ("tester/vela-arena", SCENES, 0)
    own = pushed.score(samples_of(rated)).scores
    for place, (aspect, short) in enumerate(ASPECTS.items()):
        expected = kendalltau(own[:, place], rated[short], variant="c").statistic
        assert vela["estimates"][aspect]["value"] == pytest.approx(expected), aspect
    words = [len(caption.split()) for caption in rated["cand"]]
    expected = kendalltau(words, rated["desc"], variant="c").statistic
    assert length["estimates"]["descriptiveness"]["value"] == pytest.approx(expected)

    asked = {path for _, path in filled_hub.requests}
    assert any(path.startswith(f"/{CLIP}/resolve/") and path.endswith("longclip-L.pt") for path in asked)
    assert any(path.startswith(f"/datasets/{DATA}/resolve/") for path in asked)
    assert "/api/models/tester/vela-arena/commit/main" in asked
