"""The forms in which people have captions: files packed or not, image folders, splits, data sets of the Hub."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reward.errors import DataError
from reward.scoring import rerank_dataset, score_dataset
from tests.json_lines import read_lines, write_lines
from tests.loopback_hub import LoopbackHub, loopback_hub
from tests.picture_scorer import PictureScorer
from tests.reward.scoring.small_data import read_rows, save_greys

ROOT = Path(__file__).resolve().parents[3]
ROWS = [
    {"file_name": "0.png", "caption": "a red star", "refs": ["one star", "red"]},
    {"file_name": "1.png", "caption": "ein Stern,\nschön", "refs": []},
    {"file_name": "0.png", "caption": "two words", "refs": ["x"]},
]
SPLITS = {"train": ROWS[:1], "test": ROWS}
SCORES = [(10, 5), (250, 3), (10, 3)]  # brightness of the image, words and references


def csv_text(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows({**row, "refs": json.dumps(row["refs"])} for row in rows)
    return out.getvalue()


def with_images(rows: list[dict[str, Any]], folder: Path) -> datasets.Dataset:
    named = [{"image": str(folder / row["file_name"]), "cand": row["caption"], "refs": row["refs"]} for row in rows]
    return datasets.Dataset.from_list(named).cast_column("image", datasets.Image())


def make(form: str, folder: Path) -> tuple[Any, str | None]:
    """Data in a form, and the split that holds the rows."""
    path = folder / f"d a t a.{form}"
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    match form:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)
        case "metadata.jsonl" | "metadata.csv":
            (folder / form).write_text(csv_text(ROWS) if form.endswith("csv") else lines, newline="")
            return folder, None
        case "folders of images":
            (folder / "photos").mkdir()
            for split, rows in SPLITS.items():
                write_lines(save_greys(folder / "photos" / split) / "metadata.jsonl", rows)
            return folder / "photos", "test"
        case "files of splits":
            (folder / "files").mkdir()
            for split, rows in SPLITS.items():
                named = [{**row, "file_name": str(folder / row["file_name"])} for row in rows]
                write_lines(folder / "files" / f"{split}.jsonl", named)
            return folder / "files", "test"
        case "saved splits" | "one saved split" | "splits in memory" | "one table":
            whole = with_images(ROWS, folder)
            if form == "one table":
                return whole, None
            splits = datasets.DatasetDict({"test": whole})
            if form != "one saved split":
                splits["train"] = whole.select([0])
            if form == "splits in memory":
                return splits, "test"
            splits.save_to_disk(str(folder / "saved"))
            return folder / "saved", None if form == "one saved split" else "test"
        case _:
            texts = {"json": json.dumps(ROWS, indent=2), "csv": csv_text(ROWS)}
            encoding = "utf-8-sig" if form in ("json", "csv.gz") else "utf-8"  # the former with a byte order mark
            content = texts.get(form.removesuffix(".gz"), lines).encode(encoding)
            path.write_bytes(gzip.compress(content) if form.lower().endswith(".gz") else content)
    return path, None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return save_greys(tmp_path / "a b")


FORMS = [
    *("json", "jsonl", "lines.json", "csv", "parquet", "json.gz", "jsonl.gz", "ndjson.gz", "JSONL.GZ", "csv.gz"),
    *("metadata.jsonl", "metadata.csv"),
    *("folders of images", "files of splits", "saved splits", "one saved split", "splits in memory", "one table"),
]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_scores(form: str, suffix: str, folder: Path, tmp_path: Path) -> None:
    data, split = make(form, folder)
    output = tmp_path / f"out.{suffix}"
    summary = score_dataset(data, PictureScorer(), output, split=split)
    rows = read_rows(output)
    written = [(round(255 * row["brightness"]), row["words"], row.get("caption", row.get("cand"))) for row in rows]
    assert written == [(*scores, row["caption"]) for scores, row in zip(SCORES, ROWS, strict=True)]
    assert (summary.rows, summary.errors) == (3, {})
    assert score_dataset(data, PictureScorer(), output, split=split).already_done


@pytest.mark.parametrize("form", ["folders of images", "files of splits", "saved splits", "splits in memory"])
def test_splits_are_named(form: str, folder: Path, tmp_path: Path) -> None:
    data, _ = make(form, folder)
    for split, problem in ((None, "has several splits"), ("val", "has no split 'val'")):
        names = r"(test, train|train, test)$"
        with pytest.raises(DataError, match=rf"{problem}; choose one with --split \(split=\): {names}"):
            score_dataset(data, PictureScorer(), tmp_path / "out.jsonl", split=split)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = save_greys(tmp_path_factory.mktemp("images"))
    head = "---\nconfigs:\n- config_name: {}\n  data_files:\n  - split: train\n    path: train.parquet\n"
    readme = head.format("small") + "  - split: test\n    path: test.parquet\n---\n"
    files: dict[str, bytes | Path] = {"README.md": readme.encode()}
    for split, rows in SPLITS.items():
        buffer = io.BytesIO()
        with_images(rows, folder).to_parquet(buffer)
        files[f"{split}.parquet"] = buffer.getvalue()
    with loopback_hub() as served:
        served.add_repo("some-one/captions.v1", files, kind="datasets")
        script = b"open('ran', 'w')\n"
        served.add_repo("some-one/script", {"script.py": script, "README.md": b"# x\n"}, kind="datasets")
        yield served


SCORE_FROM_HUB = """
import sys
from reward.cli.main import main
from reward import registry
from tests.picture_scorer import SPEC
registry.installed_specs = lambda: {"picture": SPEC}
sys.argv[0] = "capreward"
main()
"""


def score_from_hub(hub: LoopbackHub, folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`capreward score` in a process of its own, whose clients read HF_ENDPOINT as they are imported."""
    place = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **place, **more}
    command = [sys.executable, "-c", SCORE_FROM_HUB, "score", *arguments, "-m", "picture", "-o", "out.jsonl"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("name", ["some-one/captions.v1", "some-one/captions.v1:small", "some-one/captions.v1@main"])
def test_a_data_set_of_the_hub_by_name(name: str, hub: LoopbackHub, tmp_path: Path) -> None:
    done = score_from_hub(hub, tmp_path, name, "--split", "test")
    assert done.returncode == 0, done.stderr
    rows = read_lines(tmp_path / "out.jsonl")
    assert [(round(255 * row["brightness"]), row["words"]) for row in rows] == SCORES


@pytest.mark.parametrize(
    ("name", "environment", "messages"),
    [
        ("some-one/captions.v1", {}, ["captions.v1 has several splits; choose one with --split", "train, test"]),
        ("some-one/absent", {}, ["there is no file some-one/absent, and no data set of that name can be loaded from"]),
        ("some-one/captions.v1:large", {}, ["there is no file", "'small'"]),
        ("some-one/script", {}, ["there is no file", "cript"]),
        ("photos/captions.jsonl", {}, ["there is no file photos/captions.jsonl"]),
        ("some-one/captions.v1", {"HF_HUB_OFFLINE": "1"}, ["can be loaded from the Hub: ConnectionError: "]),
    ],
)
def test_names_that_cannot_be_loaded_are_one_line(
    name: str, environment: dict[str, str], messages: list[str], hub: LoopbackHub, tmp_path: Path
) -> None:
    done = score_from_hub(hub, tmp_path, name, **environment)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert all(message in done.stderr for message in messages), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) in ([], ["home"])  # nothing of the repository ran


CAPTIONS = ["one two", "one", "one two three", "", "one", "two one"]
CANDIDATES = [
    {"id": group, "cand": text} for group, text in zip(["x", "y", "x", "y", None, "x"], CAPTIONS, strict=True)
]
RANKS = [2, 1, 1, None, None, 3]  # a tie keeps the order


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_one_candidate_a_row_is_ranked_in_its_group(suffix: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "c.jsonl", CANDIDATES)
    output = tmp_path / f"out.{suffix}"
    summary = rerank_dataset(tmp_path / "c.jsonl", "length", output, group_column="id", part_rows=2, prefix="p_")
    rows = read_rows(output)
    assert [row["p_rank"] for row in rows] == RANKS
    assert [row["p_reward"] for row in rows] == [2, 1, 3, None, None, 2]
    assert [{name: row[name] for name in CANDIDATES[0]} for row in rows] == CANDIDATES
    assert (summary.rows, summary.captions, summary.scored, summary.groups) == (6, 6, 4, 2)
    assert summary.errors == {"candidate": 1, "group": 1}
    assert summary.examples["group"] == "row 5: the row has nothing in column 'id', by which rows are ranked"
    again = rerank_dataset(tmp_path / "c.jsonl", "length", output, group_column="id", prefix="p_")
    assert (again.already_done, again.groups) == (True, 2)


@pytest.mark.parametrize("form", ["json", "csv.gz", "one table", "metadata.csv"])
def test_candidates_of_an_image_compete_by_default(form: str, folder: Path, tmp_path: Path) -> None:
    summary = rerank_dataset(make(form, folder)[0], PictureScorer(), tmp_path / "out.jsonl", weights={"words": 1})
    rows = read_lines(tmp_path / "out.jsonl")
    assert [row["rank"] for row in rows] == [1, 1, 2]
    assert summary.groups == 2
    assert summary.columns["group"] == ("image" if form == "one table" else "file_name")


def test_a_list_of_candidates_wins_and_a_group_must_be_a_column(tmp_path: Path) -> None:
    write_lines(tmp_path / "c.jsonl", [{"id": 1, "caption": "one", "candidates": ["a", "b c"]}])
    rerank_dataset(tmp_path / "c.jsonl", "length", tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["best"] == "b c"
    with pytest.raises(DataError, match=r"--group-column names 'ids', which is no column\. Did you mean 'id'\?"):
        rerank_dataset(tmp_path / "c.jsonl", "length", tmp_path / "o.jsonl", group_column="ids")
    write_lines(tmp_path / "c.jsonl", CANDIDATES)
    for name in (None, "cand"):
        with pytest.raises(DataError, match="each row has one candidate, and no column names the image: name the"):
            rerank_dataset(tmp_path / "c.jsonl", "length", tmp_path / "o.jsonl", candidates_column=name)


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        (["a", "a b"], {"candidates_column": "own"}, [2, 1]),
        ([None, "a b"], {"candidates_column": "own", "group_column": "pic"}, [None, 1]),
        ([["a"], ["b c", "d"], "e" * 90], {"candidates_column": "own"}, ["a", "b c", None]),
        ([1, 2.5], {"candidates_column": "own"}, "column 'own' holds float, neither lists of captions nor one a row"),
        ([["a"]], {"candidates_column": "own", "group_column": "pic"}, "compete: leave out --group-column"),
    ],
)
def test_the_type_of_the_column_tells_the_form(
    values: list[Any], options: dict[str, str], expected: Any, tmp_path: Path
) -> None:
    data, output = tmp_path / "c.jsonl", tmp_path / "o.jsonl"
    write_lines(data, [{"pic": "i.png", "own": value} for value in values])
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            rerank_dataset(data, "length", output, image_column="pic", **options)
        assert not list(tmp_path.glob("o.jsonl*"))
        return
    rerank_dataset(data, "length", output, image_column="pic", **options)
    rows = read_lines(output)
    assert [row.get("rank", row.get("best")) for row in rows] == expected
    if len(rows) == 3:
        assert re.search(r"got 'e+\.\.\.e+'$", rows[2]["error"])


@pytest.mark.parametrize("meta", [{}, [{"a": {}}], {"a": {}, "b": 1}])
@pytest.mark.parametrize("form", ["jsonl", "dataset"])
def test_objects_without_a_field_become_json_text_in_parquet(tmp_path: Path, meta: Any, form: str) -> None:
    """Parquet has no type for them; the run ended in a traceback once all rows were scored."""
    rows = [{"caption": "a red star", "meta": meta}, {"caption": "a star", "meta": None}]
    write_lines(tmp_path / "data.jsonl", rows)
    data = tmp_path / "data.jsonl" if form == "jsonl" else datasets.Dataset.from_list(rows)
    score_dataset(data, "length", tmp_path / "scores.parquet")
    first, second = read_rows(tmp_path / "scores.parquet")
    assert (json.loads(first["meta"]), second["meta"]) == (meta, None)
    assert (first["length"], second["length"]) == (3, 2)
