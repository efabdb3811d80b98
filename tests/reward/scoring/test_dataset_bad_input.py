"""Bad rows, bad files and bad outputs: what is refused at once, and what becomes a row's error."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.errors import CapRewardError, DataError, OutputError
from reward.scoring import rerank_dataset, score_dataset
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
    assert rows[1]["error"] == "line 3 has 1 fields, but the header has 2"
    assert rows[3]["id"] == "4"


def test_csv_quotes_that_belong_to_one_line_are_an_error_of_that_line(folder: Path) -> None:
    (folder / "data.csv").write_text('id,candidate\n1,"a" b\n2,"a ""big"" dog\nruns"\n3,5" nails\n4,"a\n')
    score_dataset(folder / "data.csv", "length", folder / "out.jsonl")
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["length"] for row in rows] == [None, 4, 2, None]
    assert rows[0]["error"] == "line 2 cannot be read: ',' expected after '\"'"
    assert rows[3]["error"] == "line 6 cannot be read: unexpected end of data"


def test_references_of_late_rows_are_seen(folder: Path) -> None:
    lines = [json.dumps({"candidate": f"a star {number}"}) for number in range(300)]
    lines[250] = json.dumps({"candidate": "a star", "references": ["a star"]})
    (folder / "data.jsonl").write_text("\n".join(lines))
    summary = score_dataset(folder / "data.jsonl", "unigram", folder / "out.jsonl")
    assert summary.columns["references"] == "references"
    assert summary.scored == 1
    assert json.loads((folder / "out.jsonl").read_text().splitlines()[250])["f1"] == 1.0


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"batch_size": "4"}, "batch_size must be a whole number of at least 1, got '4'"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, got True"),
        ({"chunk_rows": 2.5}, "chunk_rows must be a whole number of at least 1, got 2.5"),
        ({"scorer": None}, "scorer must be the name of a metric or a scorer, got NoneType"),
        ({"output": None}, "output must be a path, got None"),
        ({"prefix": 5}, "prefix must be a text, got 5"),
        ({"image_root": 5}, "image_root must be a path, got 5"),
        ({"candidate_column": 5}, "--candidate-column names 5, which is no column"),
        ({"weights": "length"}, "weights must"),
        ({"weights": 1.0}, "weights must"),
        ({"split": "train"}, "is one table, which has no split 'train'"),
    ],
)
@pytest.mark.parametrize("task", [score_dataset, rerank_dataset])
def test_wrong_arguments_are_named(task: Any, argument: dict[str, Any], message: str, folder: Path) -> None:
    (folder / "data.jsonl").write_text('{"candidate": "a", "candidates": ["a"]}')
    if "candidate_column" in argument and task is rerank_dataset:
        argument = {"candidates_column": 5}
    given = {"scorer": "length", "output": folder / "out.jsonl", **argument}
    with pytest.raises(CapRewardError) as caught:
        task(folder / "data.jsonl", **given)
    assert message in str(caught.value)
    assert not list(folder.glob("out*"))


def test_text_that_is_no_unicode(folder: Path) -> None:
    (folder / "data.csv").write_bytes(b"candidate\na b\ncaf\xe9\n\xc3\xa9 c\n")
    score_dataset(folder / "data.csv", "length", folder / "csv.jsonl")
    rows = [json.loads(line) for line in (folder / "csv.jsonl").read_text().splitlines()]
    assert [row["length"] for row in rows] == [2, None, 2]
    assert rows[1]["error"] == "line 3 is not UTF-8"
    lines = [rb'{"candidate": "a \ud83c\udf1f"}', rb'{"candidate": "half \uD83C"}', b'{"candidate": "caf\xe9"}']
    (folder / "data.jsonl").write_bytes(b"\n".join(lines))
    for output in ("out.jsonl", "out.parquet"):
        assert score_dataset(folder / "data.jsonl", "length", folder / output).errors == {"row": 2}
    errors = [json.loads(line)["error"] for line in (folder / "out.jsonl").read_text().splitlines()]
    assert errors[0] is None
    assert "surrogates not allowed" in errors[1]
    assert "can't decode byte 0xe9" in errors[2]


def make_bad_input(kind: str, folder: Path) -> Any:
    if "://" in kind:
        return kind
    path = folder / f"data.{kind.partition('-')[0]}"
    splits = datasets.DatasetDict(
        {name: datasets.Dataset.from_dict({"candidate": ["a"]}) for name in ("train", "test")}
    )
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
        case "csv-quote":
            path.write_text('id,candidate\n1,a\n2,"a dog, 5 years\n3,b\n4,c\n')
        case "csv-quotes":
            path.write_text('id,candidate\n1,"a dog\n2,b\n3,"c" d\n4,e\n')
        case "csv-head":
            path.write_text('id,"candidate\n1,a\n')
        case "jsonl.gz-plain":
            path.write_text(GOOD)
        case "jsonl.gz-torn":
            path.write_bytes(gzip.compress(GOOD.encode())[:-12])
        case "json-torn":
            path.write_text('[{"candidate": "a"}, {"candidate"')
        case "json-numbers":
            path.write_text("[1, 2]")
        case "json-empty" | "json-list":
            path.write_text("" if kind == "json-empty" else "[]")
        case "parquet-doubled":
            pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["candidate", "candidate"]), path)
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
        case "folder-list" | "folder-text":
            path.mkdir()
            (path / "dataset_dict.json").write_text("[]" if kind == "folder-list" else "no JSON")
        case "folder-splits":
            splits.save_to_disk(str(path))
        case "dict-splits":
            return splits
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
        ("jsonl-first", "is no file of JSON objects: line 1 is not valid JSON"),
        ("jsonl-array", "is no file of JSON objects: line 1 is not a JSON object but list"),
        ("jsonl.gz-plain", "cannot be read: Not a gzipped file"),
        ("jsonl.gz-torn", "cannot be read: Compressed file ended before the end-of-stream marker"),
        ("json-torn", "is not valid JSON"),
        ("json-numbers", "is no file of JSON objects: entry 1 is not a JSON object but int"),
        ("json-empty", "holds no rows"),
        ("json-list", "holds no rows"),
        ("csv-empty", "holds no header line"),
        ("csv-header", "holds no rows"),
        ("csv-doubled", "several columns named 'candidate'"),
        (
            "csv-quote",
            "data.csv: a quote that opens in line 3 is not closed as it should be: the text up to line 5 would",
        ),
        (
            "csv-quotes",
            "data.csv: a quote that opens in line 2 is not closed as it should be: the text up to line 4 would",
        ),
        ("csv-head", "data.csv: a quote that opens in line 1 is not closed"),
        ("parquet-text", "cannot be read as Parquet"),
        ("parquet-torn", "cannot be read as Parquet"),
        ("parquet-empty", "holds no rows"),
        ("parquet-doubled", "several columns named 'candidate'"),
        ("xlsx-kind", "is of no kind that can be read: .jsonl, .ndjson, .json, .csv, .jsonl.gz,"),
        ("folder-plain", "is no folder of a data set: EmptyDatasetError: "),
        ("folder-list", "cannot be read as a data set: TypeError: "),
        ("folder-text", "cannot be read as a data set: JSONDecodeError: "),
        ("folder-splits", "has several splits; choose one with --split (split=): train, test"),
        ("dict-splits", "the data set has several splits; choose one with --split (split=): train, test"),
        ("dataset-empty", "holds no rows"),
        ("list-rows", "data must be a path, a datasets.Dataset or a DatasetDict, got list"),
        ("s3://bucket/data.jsonl", "s3://bucket/data.jsonl is an address; nothing is fetched from there"),
        ("https://a.org/data.jsonl", "https://a.org/data.jsonl is an address"),
        ("file:///data.jsonl", "file:///data.jsonl is an address"),
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
        ("s3://bucket/out.jsonl", "is an address; nothing is sent there. Give a path on this disk"),
        ("https://a.org/out.jsonl", "is an address"),
        ("file:///tmp/out.jsonl", "is an address"),
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
        score_dataset(folder / "data.jsonl", "length", output if "://" in output else folder / output)
    assert message in str(caught.value)
    assert (folder / "data.jsonl").read_text() == GOOD
    assert not any(Path(name).exists() for name in ("s3:", "https:", "file:"))


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
