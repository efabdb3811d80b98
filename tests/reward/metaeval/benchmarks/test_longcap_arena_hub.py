"""LongCap-Arena and Nebula from the Hub, through the real client: only the files of the part are asked for."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from datasets import Dataset

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.scenes import make_dataset
from tests.loopback_hub import LoopbackHub

ARENA, NEBULA = "Ka2ukiMatsuda/LongCap-Arena", "Ka2ukiMatsuda/Nebula"


def parquet(rows: Dataset) -> bytes:
    buffer = io.BytesIO()
    rows.to_parquet(buffer)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is downloaded here must not be in the cache of other tests."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


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


def test_only_the_files_of_a_part_are_asked_for(hub: LoopbackHub) -> None:
    rows = fill(hub)
    benchmark = load_benchmark("longcap-arena")
    assert (len(benchmark.items), benchmark.part) == (3, "TestA")
    assert benchmark.aspects == ("descriptiveness", "relevance", "fluency")
    item = benchmark.items[0]
    assert (item.candidate, list(item.references)) == (rows[0]["cand"], rows[0]["refs"])
    assert item.ratings["fluency"] == pytest.approx([rows[0]["score"]])
    assert item.image["bytes"][:4] == b"\x89PNG"  # encoded still
    assert load_benchmark("longcap-arena", part="test").aspects == benchmark.aspects
    nebula = load_benchmark("nebula", part="valid")
    assert (len(nebula.items), nebula.aspects) == (3, ("overall",))
    names = {path.rpartition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert {name for name in names if name.startswith("dci_val.")} == {
        f"dci_val.{aspect}-00000-of-00001.parquet" for aspect in ("desc", "rel", "flu")
    }
    assert not any(name.startswith("dci_test.") for name in names)
    assert "valid-00000-of-00001.parquet" in names
    assert "test-00000-of-00001.parquet" not in names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("longcap-arena", r"train\.desc"),
        (
            "polaris",
            r"^cannot load 'yuwd/Polaris' from the Hub: RepositoryNotFoundError[\s\S]*Polaris needs polaris_test\.csv",
        ),
    ],
)
def test_what_the_hub_does_not_have(hub: LoopbackHub, name: str, message: str) -> None:
    fill(hub)
    with pytest.raises(DataError, match=message):
        load_benchmark(name, part="train")
