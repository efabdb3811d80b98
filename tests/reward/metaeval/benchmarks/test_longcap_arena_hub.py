"""LongCap-Arena and Nebula from the Hub, through the real client: only the files of the part are asked for."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import load_benchmark
from reward.scenes import make_dataset
from tests.loopback_hub import LoopbackHub

ARENA, NEBULA = "Ka2ukiMatsuda/LongCap-Arena", "Ka2ukiMatsuda/Nebula"


@pytest.fixture
def filled(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LoopbackHub:
    """Both data sets under their real names, splits and columns, and a cache of the test's own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    rows = make_dataset(3, 5, aspect="flu").select_columns(["file_name", "image", "refs", "cand", "score"])
    names = [f"{part}.{aspect}" for part in ("dci_val", "dci_test", "test") for aspect in ("desc", "rel", "flu")]
    nebula = rows.rename_columns({"cand": "mt", "score": "human_score"})
    for repository, splits, table in ((ARENA, names, rows), (NEBULA, ["valid", "test"], nebula)):
        buffer = io.BytesIO()
        table.to_parquet(buffer)
        files = {f"data/{split}-00000-of-00001.parquet": buffer.getvalue() for split in splits}
        hub.add_repo(repository, {"README.md": b"# Data\n", **files}, kind="datasets")
    return hub


def test_only_the_files_of_a_part_are_asked_for(filled: LoopbackHub) -> None:
    row = make_dataset(3, 5, aspect="flu")[0]
    arena, nebula = load_benchmark("longcap-arena"), load_benchmark("nebula", part="valid")
    assert (len(arena.items), arena.part, len(nebula.items)) == (3, "TestA", 3)
    assert (arena.aspects, nebula.aspects) == (("descriptiveness", "relevance", "fluency"), ("overall",))
    item = arena.items[0]
    assert (item.candidate, list(item.references)) == (row["cand"], row["refs"])
    assert item.ratings["fluency"] == pytest.approx([row["score"]])
    assert item.image["bytes"][:4] == b"\x89PNG"  # encoded still
    names = {path.rpartition("/")[2] for _, path in filled.requests if "/resolve/" in path}
    assert {name.partition("-")[0] for name in names if name.endswith(".parquet")} == {
        *("dci_val.desc", "dci_val.rel", "dci_val.flu", "valid")
    }
    assert load_benchmark("longcap-arena", part="test").aspects == arena.aspects


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
def test_what_the_hub_does_not_have(filled: LoopbackHub, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_benchmark(name, part="train")
