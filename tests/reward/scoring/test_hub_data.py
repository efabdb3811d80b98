"""Data sets of the Hub by name, in a process of its own: its clients read HF_ENDPOINT as they are imported."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pytest

from tests.reward.scoring.small_data import save_greys
from tests.toys.loopback_hub import loopback_hub

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
OPEN = """
import json, sys
from reward.errors import DataError
from reward.scoring.readers import open_source
for name, split, _ in json.load(sys.stdin):
    try:
        print(json.dumps([row["caption"] for row in open_source(name, split=split).rows(["caption"])]))
    except DataError as error:
        print(error)
"""
NAME, PAGE = "some-one/captions.v1", "https://huggingface.co/datasets/some-one/captions.v1"
README = """---
configs:
- config_name: small
  data_files:
  - split: train
    path: train.parquet
  - split: test
    path: test.parquet
---
"""
NAMES: list[tuple[str, str | None, list[str]]] = [  # name, split, and what is in the answer
    *((name, "test", ['["a star", "two"]']) for name in (NAME, f"{NAME}:small", f"{NAME}@main", PAGE)),
    (NAME, None, ["captions.v1 has several splits; choose one with --split", "train, test"]),
    ("some-one/absent", None, ["there is no file some-one/absent, and no data set of that name can be loaded from"]),
    (f"{NAME}:large", None, ["there is no file", "'small'"]),
    ("some-one/script", None, ["there is no file", "cript"]),
    ("photos/captions.jsonl", None, ["there is no file photos/captions.jsonl"]),
]


def parquet(captions: list[str], image: str) -> bytes:
    data, buffer = datasets.Dataset.from_dict({"caption": captions, "image": [image] * len(captions)}), io.BytesIO()
    data.cast_column("image", datasets.Image()).to_parquet(buffer)
    return buffer.getvalue()


def test_names_of_data_sets(tmp_path: Path) -> None:
    image = str(save_greys(tmp_path / "images") / "0.png")
    with loopback_hub() as hub:
        files: dict[str, bytes | Path] = {"README.md": README.encode(), "train.parquet": parquet(["a"], image)}
        hub.add_repo(NAME, {**files, "test.parquet": parquet(["a star", "two"], image)}, kind="datasets")
        hub.add_repo("some-one/script", {"script.py": b"open('ran', 'w')\n", "README.md": b"# x\n"}, kind="datasets")
        environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": "home", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", OPEN]
        run = subprocess.run(
            command, input=json.dumps(NAMES), cwd=tmp_path, env=environment, capture_output=True, text=True
        )
    assert run.returncode == 0, run.stderr
    for (name, _, expected), answer in zip(NAMES, run.stdout.splitlines(), strict=True):
        assert all(each in answer for each in expected), (name, answer)
    assert not list(tmp_path.rglob("ran"))  # nothing of the repository did
