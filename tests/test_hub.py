"""VELA against a Hub: the paper's recipe on the real names, pushed, loaded back and evaluated, through real clients."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load, load_file
from scipy.stats import kendalltau

from reward.metrics.vela.training import make_tokenizer
from reward.scenes import make_dataset
from tests.loopback_hub import LoopbackHub, loopback_hub

LANGUAGE_MODEL, CLIP, DATA = "Qwen/Qwen2.5-3B-Instruct", "BeichenZhang/LongCLIP-L", "Ka2ukiMatsuda/LongCap-Arena"
PARTS = ("train", "val", "dci_val", "dci_test")  # each part's place is the seed of its scenes
TEST_A = PARTS.index("dci_val")
TOKEN = "a-token-of-the-test"
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


def add_data(hub: LoopbackHub, scenes: int = 8) -> None:
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


def run(hub: LoopbackHub, home: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python code in a process of its own, whose clients read HF_ENDPOINT as they are imported."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(home),
        "HF_TOKEN": TOKEN,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


TRAIN = """
import sys
from reward.cli.app import app

train = ["train", "vela", "--preset", "paper", "--data", "longcap-arena", "--config", "few.json"]
sys.argv = ["capreward", *train, "--push-to", "tester/vela-arena"]  # which the card tells
app(standalone_mode=False)
"""
LOAD_SCORE_BENCH = """
import contextlib, io, json
from reward import CaptionSample, VelaReward, load_scorer
from reward.cli.app import app
from reward.scenes import make_dataset

rows = make_dataset(5, 99)
samples = [CaptionSample(row["cand"], row["image"], row["refs"]) for row in rows]
trained, pushed = (load_scorer("vela", name, device="cpu") for name in ("vela-arena", "tester/vela-arena"))
scores = [scorer.score(samples).scores.tolist() for scorer in (trained, pushed)]
reward = VelaReward("tester/vela-arena", device="cpu")
rewards = reward(["Describe it."] * 5, list(rows["cand"]), image=list(rows["image"]), references=list(rows["refs"]))
rows.select_columns(["image", "cand", "refs"]).to_parquet("rows.parquet")
app(["score", "rows.parquet", "--metric", "tester/vela-arena", "--output", "scored.jsonl"],
    standalone_mode=False)
rated = make_dataset(8, TEST_A)
on_test_a = trained.score([CaptionSample(row["cand"], row["image"], row["refs"]) for row in rated]).scores.tolist()
tables = []
for name in ("vela-arena", "tester/vela-arena"):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        app(["bench", "--benchmark", "longcap-arena", "--part", "TestA", "--part", "TestB", "--metric", f"vela={name}",
             "--metric", "length", "--resamples", "50", "--json"], standalone_mode=False)
    tables.append(json.loads(printed.getvalue()))
print(json.dumps({"scores": scores, "rewards": rewards, "on_test_a": on_test_a, "tables": tables}))
""".replace("TEST_A", str(TEST_A))


def test_one_command_from_hub_to_hub(filled_hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = {"max_steps": 3, "eval_steps": 1, "patience": 9, "learning_rate": 0.01, "max_references": 1}
    Path("few.json").write_text(json.dumps(few))
    done = run(filled_hub, tmp_path / "home", TRAIN)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "vela-arena"
    record = json.loads((folder / "training.json").read_text())
    assert record["rows"] == {"train": 24, "val": 24, "dci_val": 24, "dci_test": 24}
    assert (record["config"]["precision"], record["steps"]) == ("bf16", 3)
    own = [record["figures"][part][f"tau_c_{aspect}"] for part in ("dci_val", "dci_test") for aspect in ASPECTS]
    assert all(f"{100 * value:.1f}" in done.stdout for value in own)

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

    loaded = run(filled_hub, tmp_path / "another-home", LOAD_SCORE_BENCH)
    assert loaded.returncode == 0, loaded.stderr
    answer = json.loads(loaded.stdout.splitlines()[-1])
    trained, pushed = map(torch.tensor, answer["scores"])
    assert torch.equal(trained, pushed)
    assert trained.shape == (5, 3)
    assert len(trained.unique()) == 15  # the head is trained: every score is its own, none is the initial 0.5
    scored = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in scored] == pytest.approx(answer["rewards"])
    assert answer["rewards"] == pytest.approx(trained.mean(1).tolist())

    for name, table in zip(("vela-arena", "tester/vela-arena"), answer["tables"], strict=True):
        assert [(each["name"], each["part"], each["items"]) for each in table["benchmarks"]] == [
            ("longcap-arena", "TestA", 8),
            ("longcap-arena", "TestB", 8),
        ]
        vela, length = table["benchmarks"][0]["rows"]
        assert (vela["source"], vela["scored"], vela["errors"]) == (name, 8, 0)
        raters = make_dataset(8, TEST_A)
        for place, (aspect, short) in enumerate(ASPECTS.items()):
            expected = kendalltau([row[place] for row in answer["on_test_a"]], raters[short], variant="c").statistic
            assert vela["estimates"][aspect]["value"] == pytest.approx(expected), aspect
        words = [len(caption.split()) for caption in raters["cand"]]
        expected = kendalltau(words, raters["desc"], variant="c").statistic
        assert length["estimates"]["descriptiveness"]["value"] == pytest.approx(expected)

    asked = {path for _, path in filled_hub.requests}
    assert any(path.startswith(f"/{CLIP}/resolve/") and path.endswith("longclip-L.pt") for path in asked)
    assert any(path.startswith(f"/datasets/{DATA}/resolve/") for path in asked)
    assert "/api/models/tester/vela-arena/commit/main" in asked
