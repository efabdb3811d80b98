"""LongCap-Arena and Nebula from the Hub, through the real client: only the files of the part are asked for."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset

from reward.scenes import make_dataset
from tests.loopback_hub import LoopbackHub, loopback_hub

ARENA, NEBULA = "Ka2ukiMatsuda/LongCap-Arena", "Ka2ukiMatsuda/Nebula"
CODE = """
import json
from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark

found = {}
for name, part in (("longcap-arena", None), ("longcap-arena", "test"), ("nebula", "valid")):
    benchmark = load_benchmark(name, part=part)
    item = benchmark.items[0]
    found[f"{name} {benchmark.part}"] = [len(benchmark.items), benchmark.aspects, item.candidate, list(item.references),
                                         {name: list(values) for name, values in item.ratings.items()},
                                         item.image["bytes"][:4].hex(), benchmark.samples()[0].candidate]
for name in ("longcap-arena", "polaris"):
    try:
        load_benchmark(name, part="train")
    except DataError as error:
        found[f"{name} error"] = str(error)
print(json.dumps(found))
"""


def parquet(rows: Dataset) -> bytes:
    buffer = io.BytesIO()
    rows.to_parquet(buffer)
    return buffer.getvalue()


def fill(hub: LoopbackHub) -> Dataset:
    """Scenes under the real names, splits and columns; gives the rows of one split."""
    files: dict[str, bytes | Path] = {"README.md": b"# LongCap-Arena\n"}
    rows = {aspect: make_dataset(3, 5, aspect=aspect) for aspect in ("desc", "rel", "flu")}
    for part in ("dci_val", "dci_test", "test"):
        for aspect, split in rows.items():
            table = split.select_columns(["file_name", "image", "refs", "cand", "score"])
            files[f"data/{part}.{aspect}-00000-of-00001.parquet"] = parquet(table)
    hub.add_repo(ARENA, files, kind="datasets")
    nebula = rows["rel"].rename_columns({"cand": "mt", "score": "human_score"})
    nebula = nebula.select_columns(["file_name", "image", "refs", "mt", "human_score"])
    shards = {f"data/{split}-00000-of-00001.parquet": parquet(nebula) for split in ("valid", "test")}
    hub.add_repo(NEBULA, shards, kind="datasets")
    return rows["flu"]


def test_only_the_files_of_a_part_are_asked_for(tmp_path: Path) -> None:
    with loopback_hub() as hub:
        rows = fill(hub)
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[4]),
        }
        command = [sys.executable, "-c", CODE]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
        asked = {path for _, path in hub.requests if "/resolve/" in path}
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    count, aspects, candidate, references, ratings, start, sample = found["longcap-arena TestA"]
    assert (count, aspects) == (3, ["descriptiveness", "relevance", "fluency"])
    assert (candidate, references) == (rows[0]["cand"], rows[0]["refs"])
    assert ratings["fluency"] == pytest.approx([rows[0]["score"]])
    assert sorted(ratings) == ["descriptiveness", "fluency", "relevance"]
    assert start == b"\x89PNG".hex()  # encoded still
    assert sample == candidate
    assert found["longcap-arena test"][1] == aspects
    assert found["nebula valid"][:2] == [3, ["overall"]]
    names = {path.rpartition("/")[2] for path in asked}
    assert {name for name in names if name.startswith("dci_val.")} == {
        f"dci_val.{aspect}-00000-of-00001.parquet" for aspect in ("desc", "rel", "flu")
    }
    assert not any(name.startswith("dci_test.") for name in names)
    assert "valid-00000-of-00001.parquet" in names
    assert "test-00000-of-00001.parquet" not in names
    assert "train.desc" in found["longcap-arena error"]
    assert found["polaris error"].startswith("cannot load 'yuwd/Polaris' from the Hub: RepositoryNotFoundError")
    assert "Polaris needs polaris_test.csv" in found["polaris error"]
