"""Bad rows, bad files and bad outputs: what is refused at once, and what becomes a row's error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.errors import DataError, OutputError
from reward.scoring import score_dataset
from tests.picture_scorer import PictureScorer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.new("RGB", (64, 64), (90, 80, 70)).save(tmp_path / "good.png")
    return tmp_path


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if a scorer is loaded."""

    def refuse(*arguments: Any, **options: Any) -> None:
        pytest.fail("a model was loaded before the output was checked")

    monkeypatch.setattr("reward.scoring.dataset.load_scorer", refuse)


def score_lines(folder: Path, lines: list[str]) -> tuple[list[dict[str, Any]], Any]:
    (folder / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    summary = score_dataset(folder / "data.jsonl", PictureScorer(), folder / "out.jsonl")
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()], summary


GOOD = '{"image": "good.png", "candidate": "a b"}'


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ('{"image": "good.png", "candidate": "cut of', "row", "line 2 is not valid JSON: Unterminated string"),
        ('["good.png", "a"]', "row", "line 2 is not a JSON object but list"),
        ('{"image": "good.png"}', "candidate", "candidate must be a string, got NoneType"),
        ('{"image": "good.png", "candidate": ""}', "candidate", "candidate is empty"),
        ('{"image": "good.png", "candidate": " \\n\\t"}', "candidate", "candidate is empty"),
        ('{"image": "good.png", "candidate": 5}', "candidate", "candidate must be a string, got int: 5"),
        ('{"image": "missing.png", "candidate": "a"}', "image", "does not exist"),
        ('{"image": null, "candidate": "a"}', "image", "the row has no image in column 'image'"),
        ('{"image": " ", "candidate": "a"}', "image", "the row has no image in column 'image'"),
        ('{"image": 5, "candidate": "a"}', "image", "got int"),
        ('{"image": "torn.jpg", "candidate": "a"}', "image", "torn.jpg"),
        ('{"image": "text.png", "candidate": "a"}', "image", "is not an image"),
        ('{"image": "bomb.png", "candidate": "a"}', "image", "pixels"),
        ('{"image": "good.png", "candidate": "fail"}', "metric", "the caption says fail"),
    ],
)
def test_bad_row_keeps_its_place_and_the_others_are_scored(line: str, kind: str, message: str, folder: Path) -> None:
    Image.effect_noise((64, 64), 50).save(folder / "whole.jpg")
    whole = (folder / "whole.jpg").read_bytes()
    (folder / "torn.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("no image at all")
    Image.new("1", (9_000, 9_000)).save(folder / "bomb.png")
    rows, summary = score_lines(folder, [GOOD, line, GOOD])
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert message in rows[1]["error"]
    assert (rows[1]["reward"], rows[1]["brightness"]) == (None, None)
    assert rows[0]["reward"] == rows[2]["reward"] is not None
    assert summary.errors == {kind: 1}
    assert summary.examples[kind] == f"row 2: {rows[1]['error']}"


def test_very_long_caption_is_scored_and_flagged(folder: Path) -> None:
    caption = json.dumps({"image": "good.png", "candidate": "word " * 20_000})
    rows, summary = score_lines(folder, [GOOD, caption, GOOD])
    assert [row["truncated"] for row in rows] == [False, True, False]
    assert (summary.scored, summary.truncated) == (3, 1)


def test_blank_lines_and_byte_order_mark_are_no_rows(folder: Path) -> None:
    rows, summary = score_lines(folder, ["\ufeff" + GOOD, "", "   ", GOOD, ""])
    assert (len(rows), summary.scored) == (2, 2)


def test_ragged_csv_rows_and_long_fields(folder: Path) -> None:
    long = "word " * 40_000  # longer than the csv module allows by itself
    (folder / "data.csv").write_text(f"id,candidate\n1,a b\n2\n3,a,b\n4,{long}\n", encoding="utf-8")
    score_dataset(folder / "data.csv", "length", folder / "out.jsonl")
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["length"] for row in rows] == [2, None, None, 40_000]
    assert rows[1]["error"] == "the row that ends in line 3 has 1 fields, but the header has 2"
    assert rows[3]["id"] == "4"


def test_text_that_is_no_unicode(folder: Path) -> None:
    (folder / "data.csv").write_bytes(b"candidate\na b\ncaf\xe9\n\xc3\xa9 c\n")
    score_dataset(folder / "data.csv", "length", folder / "csv.jsonl")
    rows = [json.loads(line) for line in (folder / "csv.jsonl").read_text().splitlines()]
    assert [row["length"] for row in rows] == [2, None, 2]
    assert rows[1]["error"] == "the row that ends in line 3 is not UTF-8"
    lines = [rb'{"candidate": "a \ud83c\udf1f"}', rb'{"candidate": "half \uD83C"}', b'{"candidate": "caf\xe9"}']
    (folder / "data.jsonl").write_bytes(b"\n".join(lines))
    for output in ("out.jsonl", "out.parquet"):
        assert score_dataset(folder / "data.jsonl", "length", folder / output).errors == {"row": 2}
    errors = [json.loads(line)["error"] for line in (folder / "out.jsonl").read_text().splitlines()]
    assert errors[0] is None
    assert "surrogates not allowed" in errors[1]
    assert "can't decode byte 0xe9" in errors[2]


def make_bad_input(kind: str, folder: Path) -> Any:
    path = folder / f"data.{kind.partition('-')[0]}"
    match kind:
        case "jsonl-missing":
            pass
        case "jsonl-empty" | "csv-empty":
            path.write_text("\n \n" if kind[0] == "j" else "")
        case "csv-header":
            path.write_text("id,candidate\n")
        case "csv-doubled":
            path.write_text("candidate,id,candidate\na,b,c\n")
        case "jsonl-first":
            path.write_text('{"candidate": \n' + GOOD)
        case "jsonl-array":
            path.write_text('[{"candidate": "a"}]')
        case "parquet-text":
            path.write_text("no parquet")
        case "parquet-empty":
            pq.write_table(pa.table({"candidate": pa.array([], pa.string())}), path)
        case "parquet-torn":
            pq.write_table(pa.table({"candidate": ["a"] * 1000}), path)
            path.write_bytes(path.read_bytes()[:-20])
        case "xlsx-kind":
            path.write_text("table")
        case "folder-plain":
            path.mkdir()
        case "folder-splits":
            datasets.DatasetDict({"train": datasets.Dataset.from_dict({"candidate": ["a"]})}).save_to_disk(str(path))
        case "dict-splits":
            return datasets.DatasetDict({"train": datasets.Dataset.from_dict({"candidate": ["a"]})})
        case "dataset-empty":
            return datasets.Dataset.from_dict({"candidate": []})
        case "list-rows":
            return [{"candidate": "a"}]
    return path


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("jsonl-missing", "there is no file"),
        ("jsonl-empty", "holds no rows"),
        ("jsonl-first", "is no JSONL file: line 1 is not valid JSON"),
        ("jsonl-array", "is no JSONL file: line 1 is not a JSON object but list"),
        ("csv-empty", "holds no header line"),
        ("csv-header", "holds no rows"),
        ("csv-doubled", "several columns named 'candidate'"),
        ("parquet-text", "cannot be read as Parquet"),
        ("parquet-torn", "cannot be read as Parquet"),
        ("parquet-empty", "holds no rows"),
        ("xlsx-kind", "has no known suffix; known: .jsonl, .ndjson, .csv, .parquet"),
        ("folder-plain", "is no data set folder"),
        ("folder-splits", "holds several splits; pass one of them: "),
        ("dict-splits", "several splits; pass one of them: train"),
        ("dataset-empty", "holds no rows"),
        ("list-rows", "data must be a path or a datasets.Dataset, got list"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(kind: str, message: str, folder: Path) -> None:
    with pytest.raises(DataError) as caught:
        score_dataset(make_bad_input(kind, folder), "length", folder / "out.jsonl")
    assert message in str(caught.value)
    assert not list(folder.glob("out*"))


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("out.txt", "must end in .parquet or .jsonl"),
        ("good.png/out.jsonl", "cannot write"),
        ("data.jsonl", "is the input"),
        ("taken.jsonl", "is a folder"),
        ("x" * 300 + ".jsonl", "cannot write"),
        ("blocked.jsonl", "cannot write"),
    ],
)
def test_bad_output_is_refused_before_a_model_is_loaded(output: str, message: str, folder: Path) -> None:
    (folder / "data.jsonl").write_text(GOOD)
    (folder / "taken.jsonl").mkdir()
    (folder / "blocked.jsonl.partial").mkdir()
    with pytest.raises(OutputError) as caught:
        score_dataset(folder / "data.jsonl", "length", folder / output)
    assert message in str(caught.value)
    assert (folder / "data.jsonl").read_text() == GOOD


@pytest.mark.usefixtures("no_model")
def test_full_disk_is_found_before_a_model_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "data.jsonl").write_text(f"{GOOD}\n" * 1000)
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    with pytest.raises(OutputError, match=r"has 0\.1 MB free, but scoring data\.jsonl takes about 0\.2 MB"):
        score_dataset(folder / "data.jsonl", "length", folder / "out.jsonl")
    assert not list(folder.glob("out*"))


def test_failing_metric_leaves_no_journal_of_nothing(folder: Path) -> None:
    class Broken(PictureScorer):
        def score(self, samples: Any, *, batch_size: int | None = None, progress: bool = False) -> Any:
            raise RuntimeError("out of memory")

    (folder / "data.jsonl").write_text(GOOD)
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(folder / "data.jsonl", Broken(), folder / "out.jsonl")
    assert not list(folder.glob("out*"))
