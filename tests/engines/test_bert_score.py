"""bert-score, which needs transformers 4: its scores behind worker_for.py are its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import reward.service.worker_for as worker_for
from reward import CaptionSample, MetricReward, load_scorer
from reward.scoring.dataset import score_dataset
from tests.engines.environments import program
from tests.engines.servers import EngineServer
from tests.toys.json_lines import read_lines

WORDS = [*"abcdefghijklmnopqrstuvwxyz.", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
ROWS = [
    ("a red star on the grass.", ["there is a red star.", "a star shines."]),
    ("a dog runs.", ["two dogs run on a beach."]),
    ("a dog runs.", ["a dog runs."]),
    ("zebra", ["a striped animal", "a zebra."]),
]
FUNCTION = Path(__file__).with_name("bert_score_metric.py")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A tiny BERT that both versions of transformers read, and nothing of this project on the path."""
    folder = tmp_path_factory.mktemp("bert") / "bert-tiny"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48}
    BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "model_max_length": 64}')
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CAPREWARD_TOKEN")}
    return {**kept, "TINY_BERT": str(folder)}


@pytest.fixture(scope="module")
def url(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ["--needs", "references", "--aspects", "precision,recall,f1", "--range=-1,1", "--port", "{port}"]
    command = [str(program("bert_score", "python")), worker_for.__file__, f"{FUNCTION}:bertscore", *options]
    log = tmp_path_factory.mktemp("log") / "worker.log"
    with EngineServer(command, log, {**environment, "PYTHONPATH": ""}) as server:
        yield server.url.removesuffix("/v1")


def own_scores(environment: dict[str, str], tmp_path: Path) -> np.ndarray:
    """(rows, 3) by the package itself, in its environment."""
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    command = [str(program("bert_score", "python")), FUNCTION, tmp_path / "rows.json"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return np.array(json.loads(done.stdout)).T


def test_its_scores_are_its_own(environment: dict[str, str], url: str, tmp_path: Path) -> None:
    expected = own_scores(environment, tmp_path)
    samples = [CaptionSample(text, references=references) for text, references in ROWS]
    table = load_scorer("bertscore", url).score(samples)
    assert table.aspects == ("precision", "recall", "f1")
    assert table.scores == pytest.approx(expected, abs=1e-6)  # measured 1.2e-7: rows share a batch otherwise
    rewards: Any = MetricReward("bertscore", url, {"f1": 1}).rewards(samples)
    assert rewards == pytest.approx(expected[:, 2], abs=1e-6)
    lines = [json.dumps({"caption": text, "references": references}) for text, references in ROWS]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    score_dataset(tmp_path / "rows.jsonl", f"bertscore={url}", tmp_path / "scores.jsonl")
    assert [row["f1"] for row in read_lines(tmp_path / "scores.jsonl")] == pytest.approx(expected[:, 2], abs=1e-6)
