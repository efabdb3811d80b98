"""Polaris, Nebula, Composite, LongCap-Arena and VICR as tables, in a folder and on the Hub."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, Image

from reward.errors import DataError
from reward.images import load_image
from reward.metaeval import evaluate, load_benchmark
from reward.scenes import make_dataset
from tests.toys.loopback_hub import LoopbackHub
from tests.toys.pictures import png


def polaris(**changes: Any) -> dict[str, list[Any]]:
    """Rows as on the Hub: images have no names there."""
    return {
        "refs": [["A dog.", ""], ["A cat."], ["A dog.", ""], ["A dog.", ""]],
        "cand": ["One.", "Two.", "Three.", "One."],
        "img": [{"bytes": png((shade, 0, 0)), "path": None} for shade in (1, 2, 1, 1)],
        "human_score": [0.25, 0.5, 1.0, 0.75],
        **changes,
    }


def items(name: str, path: Path, **options: Any) -> list[Any]:
    return list(load_benchmark(name, path, **options).rows.itertuples())


def table(rows: Mapping[str, list[Any]], image: str) -> Dataset:
    return Dataset.from_dict(dict(rows)).cast_column(image, Image())


def test_polaris_as_on_the_hub(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = table(polaris(), "img")
    rows.select([0, 1]).to_parquet(tmp_path / "data" / "test-00000-of-00002.parquet")
    rows.select([2, 3]).to_parquet(tmp_path / "data" / "test-00001-of-00002.parquet")
    table(polaris(), "img").select([1]).to_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet")
    found = items("polaris", tmp_path)
    assert [(item.captions[0], item.ratings["overall"], item.references) for item in found] == [
        ("One.", (0.25, 0.75), ("A dog.",)),
        ("Two.", (0.5,), ("A cat.",)),
        ("Three.", (1.0,), ("A dog.",)),
    ]
    assert found[0].image_id == found[2].image_id != found[1].image_id
    assert found[0].images[0] is found[2].images[0]  # held once
    assert isinstance(found[0].images[0], dict)  # encoded still
    assert [load_image(item.images[0]).getpixel((0, 0))[0] for item in found] == [1, 2, 1]
    assert [item.captions[0] for item in items("polaris", tmp_path, part="validation")] == ["Two."]
    assert [item.captions[0] for item in items("polaris", tmp_path, limit=1)] == ["One."]
    with pytest.raises(DataError, match=r"no split train, only validation, test\. Polaris needs"):
        load_benchmark("polaris", tmp_path, part="train")


def test_nebula_has_names_and_nulls(tmp_path: Path) -> None:
    rows = {
        "file_name": ["1.jpg", "2.jpg", "1.jpg"],
        "image": [{"bytes": png((shade, 0, 0)), "path": None} for shade in (1, 2, 1)],
        "refs": [["A dog."], None, ["Another."]],
        "mt": ["One.", None, "Two."],
        "human_score": [1.0, 0.5, None],
    }
    (tmp_path / "data").mkdir()
    table(rows, "image").to_parquet(tmp_path / "data" / "valid-00000-of-00001.parquet")
    found = items("nebula", tmp_path, part="valid")
    assert [(item.image_id, item.captions[0], item.references) for item in found] == [
        ("1.jpg", "One.", ("A dog.",)),
        ("2.jpg", "", ()),
    ]  # nobody rated the third


def test_splits_that_a_readme_names(tmp_path: Path) -> None:
    rows = {"image": ["a.jpg"], "refs": [["A dog."]], "cand": ["One."], "score": [0.5]}
    (tmp_path / "parts").mkdir()
    Dataset.from_dict(rows).to_parquet(tmp_path / "parts" / "x.parquet")
    Dataset.from_dict({**rows, "cand": ["Two."]}).to_parquet(tmp_path / "parts" / "y.parquet")
    configs = "configs:\n- config_name: default\n  data_files:\n  - split: test\n    path: parts/x*\n"
    (tmp_path / "README.md").write_text(f"---\n{configs}  - split: train\n    path: [parts/y.parquet]\n---\n# Data\n")
    assert [item.captions[0] for item in items("composite", tmp_path)] == ["One."]
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").touch()
    assert items("composite", tmp_path)[0].images[0] == tmp_path / "images" / "a.jpg"


def arena(aspect: int) -> dict[str, list[Any]]:
    return {
        "file_name": ["1.jpg", "1.jpg", "2.jpg"],
        "image": [{"bytes": png((shade, 0, 0)), "path": None} for shade in (1, 1, 2)],
        "refs": [["A dog."], ["A dog."], []],
        "cand": ["One.", "Two.", "One."],
        "score": [aspect / 4, 0.5, 0.75],
    }


def test_longcap_arena_merges_the_aspects(tmp_path: Path) -> None:
    splits = {f"dci_val.{name}": table(arena(place), "image") for place, name in enumerate(("desc", "rel", "flu"))}
    splits["dci_val.flu"] = splits["dci_val.flu"].select([2, 1])
    twice = table({**arena(0), "cand": ["Three."] * 3}, "image")
    splits |= {f"dci_test.{name}": twice for name in ("desc", "rel", "flu")}
    (tmp_path / "data").mkdir()
    for name, split in splits.items():
        split.to_parquet(tmp_path / "data" / f"{name}-00000-of-00001.parquet")
    found = items("longcap-arena", tmp_path)
    assert [(item.image_id, item.captions) for item in found] == [
        ("1.jpg", ("One.",)),
        ("1.jpg", ("Two.",)),
        ("2.jpg", ("One.",)),
    ]
    assert [item.ratings for item in found] == [
        {"descriptiveness": (0.0,), "relevance": (0.25,)},
        {"descriptiveness": (0.5,), "relevance": (0.5,), "fluency": (0.5,)},
        {"descriptiveness": (0.75,), "relevance": (0.75,), "fluency": (0.75,)},
    ]
    assert found[0].images[0]["bytes"] == png((1, 0, 0))  # encoded still
    (other, _) = items("longcap-arena", tmp_path, part="TestB")  # two rows of one image and candidate
    assert other.ratings["relevance"] == (0.0, 0.5)
    with pytest.raises(DataError, match=r"no split val\.desc, only dci_test\.desc"):
        load_benchmark("longcap-arena", tmp_path, part="val")


VICR = """\
image,caption,subset,num_ratings,ratings,rating_2,rating_3
http://x.org/val2014/1.jpg,a dog,test,3,4,3,5
http://x.org/val2014/2.jpg,"a cat, too",train,2,1,2,
3.jpg,a bird,test,1,,2,
4.jpg,nobody,test,0,,,
"""


@pytest.mark.parametrize("name", ["vicr.csv", "VICR_Sample250.csv"])
def test_vicr_has_parts(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(VICR)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.jpg").touch()
    data = tmp_path if name == "vicr.csv" else tmp_path / name
    found = [(item.images[0], item.image_id, item.captions, item.ratings["overall"]) for item in items("vicr", data)]
    assert found == [
        (tmp_path / "images" / "1.jpg", "1.jpg", ("a dog",), (4, 3, 5)),
        (tmp_path / "3.jpg", "3.jpg", ("a bird",), (2,)),
    ]
    assert [item.ratings["overall"] for item in items("vicr", data, part="train")] == [(1, 2)]
    means = evaluate(load_benchmark("vicr", data), np.array([1.0, 0.0]), resamples=2)
    assert means.counts == {"overall": 2}  # one mean a caption
    with pytest.raises(DataError, match="holds nothing to score"):
        load_benchmark("vicr", data, part="val")
    (tmp_path / name).write_text("image,caption,ratings\n1.jpg,a dog,4\n")  # without a subset every row counts
    assert len(items("vicr", data, part="train")) == 1


# From the Hub, through the real client

ARENA_REPO, NEBULA_REPO = "Ka2ukiMatsuda/LongCap-Arena", "Ka2ukiMatsuda/Nebula"


@pytest.fixture
def filled(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LoopbackHub:
    """Both data sets under their real names, splits and columns, and a cache of the test's own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("datasets.config.HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = (
        make_dataset(3, 5).select_columns(["file_name", "image", "refs", "cand", "flu"]).rename_column("flu", "score")
    )
    names = [f"{part}.{aspect}" for part in ("dci_val", "dci_test", "test") for aspect in ("desc", "rel", "flu")]
    nebula = rows.rename_columns({"cand": "mt", "score": "human_score"})
    for repository, splits, table in ((ARENA_REPO, names, rows), (NEBULA_REPO, ["valid", "test"], nebula)):
        buffer = io.BytesIO()
        table.to_parquet(buffer)
        files = {f"data/{split}-00000-of-00001.parquet": buffer.getvalue() for split in splits}
        hub.add_repo(repository, {"README.md": b"# Data\n", **files}, kind="datasets")
    return hub


@pytest.mark.slow
def test_only_the_files_of_a_part_are_asked_for(filled: LoopbackHub) -> None:
    row = make_dataset(3, 5)[0]
    arena, nebula = load_benchmark("longcap-arena"), load_benchmark("nebula", part="valid")
    assert (len(arena.rows), arena.part, len(nebula.rows)) == (3, "TestA", 3)
    assert (arena.aspects, nebula.aspects) == (("descriptiveness", "relevance", "fluency"), ("overall",))
    item = arena.rows.iloc[0]
    assert (item.captions[0], list(item.references)) == (row["cand"], row["refs"])
    assert item.ratings["fluency"] == pytest.approx([row["flu"]])
    assert item.images[0]["bytes"][:4] == b"\x89PNG"  # encoded still
    names = {path.rpartition("/")[2] for _, path in filled.requests if "/resolve/" in path}
    assert {name.partition("-")[0] for name in names if name.endswith(".parquet")} == {
        *("dci_val.desc", "dci_val.rel", "dci_val.flu", "valid")
    }
    assert load_benchmark("longcap-arena", part="test").aspects == arena.aspects


def test_what_the_hub_does_not_have(filled: LoopbackHub) -> None:
    with pytest.raises(DataError, match=r"no split train\.desc"):
        load_benchmark("longcap-arena", part="train")
    message = r"^cannot read yuwd/Polaris, item 1: DatasetNotFoundError[\s\S]*Polaris needs the Parquet files"
    with pytest.raises(DataError, match=message):
        load_benchmark("polaris")
