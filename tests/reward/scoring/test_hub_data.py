"""Data sets of the Hub by name, in a process of its own: its clients read HF_ENDPOINT as they are imported."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
for name, split in json.load(sys.stdin):
    try:
        print(json.dumps([row["caption"] for row in open_source(name, split=split).rows(["caption"])]))
    except DataError as error:
        print(error)
"""
NAME, PAGE = "some-one/captions.v1", "https://huggingface.co/datasets/some-one/captions.v1"
README = "---\nconfigs:\n- config_name: small\n  data_files:\n"
NAMES: list[tuple[str, str | None, list[str]]] = [  # and what is in the answer
    *((name, "test", ['["a star", "two"]']) for name in (NAME, f"{NAME}:small", f"{NAME}@main", PAGE)),
    (NAME, None, ["captions.v1 has several splits; choose one with --split", "train, test"]),
    ("some-one/absent", None, ["there is no file some-one/absent, and no data set of that name can be loaded from"]),
    (f"{NAME}:large", None, ["there is no file", "'small'"]),
    ("some-one/script", None, ["there is no file", "cript"]),
    ("photos/captions.jsonl", None, ["there is no file photos/captions.jsonl"]),
]


def opened(names: list[Any], folder: Path, **environment: str) -> list[str]:
    """What is said of each name."""
    place = {**os.environ, "HF_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), **environment}
    run = subprocess.run(
        [sys.executable, "-c", OPEN],
        input=json.dumps([each[:2] for each in names]),
        cwd=folder,
        env=place,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_names_of_data_sets(tmp_path: Path) -> None:
    image = str(save_greys(tmp_path / "images") / "0.png")
    files: dict[str, bytes | Path] = {}
    readme = README
    for split, captions in (("train", ["a"]), ("test", ["a star", "two"])):
        data = datasets.Dataset.from_dict({"caption": captions, "image": [image] * len(captions)})
        buffer = io.BytesIO()
        data.cast_column("image", datasets.Image()).to_parquet(buffer)
        files[f"{split}.parquet"] = buffer.getvalue()
        readme += f"  - split: {split}\n    path: {split}.parquet\n"
    (tmp_path / "work").mkdir()
    with loopback_hub() as hub:
        hub.add_repo(NAME, {**files, "README.md": f"{readme}---\n".encode()}, kind="datasets")
        script = {"script.py": b"open('ran', 'w')\n", "README.md": b"# x\n"}
        hub.add_repo("some-one/script", script, kind="datasets")
        said = opened(NAMES, tmp_path / "work", HF_ENDPOINT=hub.endpoint)
        offline = opened(
            [(NAME, None)], tmp_path / "work", HF_ENDPOINT=hub.endpoint, HF_HUB_OFFLINE="1", HF_HOME="none"
        )
    for (name, _, expected), answer in zip(NAMES, said, strict=True):
        assert all(each in answer for each in expected), (name, answer)
    assert "can be loaded from the Hub: ConnectionError: " in offline[0]
    assert not list(tmp_path.rglob("ran"))  # nothing of the repository did
