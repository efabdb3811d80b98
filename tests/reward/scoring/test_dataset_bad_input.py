"""Bad rows, bad files and bad outputs: what is refused at once, and what becomes a row's error."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.errors import CapRewardError, DataError, OutputError
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.readers import open_source
from tests.toys.json_lines import read_lines
from tests.toys.picture_scorer import PictureScorer

GOOD = '{"image": "good.png", "candidate": "a b"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.new("RGB", (64, 64), (90, 80, 70)).save(tmp_path / "good.png")
    return tmp_path


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if a scorer is loaded."""

    def refuse(*arguments: Any, **options: Any) -> None:
        pytest.fail("a model was loaded before the output was checked")

    monkeypatch.setattr("reward.registry.load_scorer", refuse)


BAD_ROWS = [  # (line, kind of its error, part of the message)
    ('{"image": "good.png", "candidate": "cut of', "row", "line 2 is not valid JSON: Unterminated string"),
    ('["good.png", "a"]', "row", "line 3 is not a JSON object but list"),
    ('{"image": "good.png"}', "candidate", "candidate must be a string, got NoneType"),
    ('{"image": "good.png", "candidate": " \\n\\t"}', "candidate", "candidate is empty"),
    ('{"image": "good.png", "candidate": 5}', "candidate", "candidate must be a string, got int: 5"),
    ('{"image": "missing.png", "candidate": "a"}', "image", "does not exist"),
    ('{"image": null, "candidate": "a"}', "image", "the row has no image in column 'image'"),
    ('{"image": " ", "candidate": "a"}', "image", "the row has no image in column 'image'"),
    ('{"image": 5, "candidate": "a"}', "image", "does not exist"),
    ('{"image": "torn.jpg", "candidate": "a"}', "image", "torn.jpg"),
    ('{"image": "text.png", "candidate": "a"}', "image", "is not an image"),
    ('{"image": "bomb.png", "candidate": "a"}', "image", "pixels"),
    ('{"image": "good.png", "candidate": "fail"}', "metric", "the caption says fail"),
]


def test_bad_rows_keep_their_places_and_the_others_are_scored(folder: Path) -> None:
    Image.effect_noise((64, 64), 50).save(folder / "whole.jpg")
    whole = (folder / "whole.jpg").read_bytes()
    (folder / "torn.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("no image at all")
    Image.new("1", (9_000, 9_000)).save(folder / "bomb.png")
    lines = [GOOD, *(line for line, _, _ in BAD_ROWS), GOOD]
    (folder / "data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    summary = score_dataset(folder / "data.jsonl", PictureScorer(), folder / "out.jsonl")
    first, *bad, last = read_lines(folder / "out.jsonl")
    assert (first["error"], last["error"]) == (None, None)
    assert first["reward"] == last["reward"] is not None
    for row, (_, _, message) in zip(bad, BAD_ROWS, strict=True):
        assert message in row["error"]
        assert (row["reward"], row["brightness"]) == (None, None)
    kinds = [kind for _, kind, _ in BAD_ROWS]
    assert summary.errors == {kind: kinds.count(kind) for kind in kinds}
    assert summary.examples["row"] == f"row 2: {bad[0]['error']}"


LONG = b"word " * 40_000  # more than the csv module allows by itself
TEXTS: dict[str, tuple[bytes, list[int | str]]] = {  # {name: (content, for each row its words or its error)}
    "blank.jsonl": (b'\xef\xbb\xbf{"candidate": "a b"}\n\n   \n{"candidate": "c"}\n\n', [2, 1]),
    "ragged.csv": (
        b"id,candidate\n1,a b\n2\n3,a,b\n4,%b\n" % LONG,
        [2, "line 3 has 1 fields, but the header has 2", "line 4 has 3 fields, but the header has 2", 40_000],
    ),
    "quotes.csv": (
        b'id,candidate\n1,"a" b\n2,"a ""big"" dog\nruns"\n3,5" nails\n4,"a\n',
        ["line 2 cannot be read: ',' expected after '\"'", 4, 2, "line 6 cannot be read: unexpected end of data"],
    ),
    "latin.csv": (b"candidate\na b\ncaf\xe9\n\xc3\xa9 c\n", [2, "line 3 is not UTF-8", 2]),
    "first.jsonl": (b'{"candidate": "cut\n{"candidate": "a b"}\n', ["line 1 is not valid JSON", 2]),
    "latin.jsonl": (
        b'{"candidate": "a \\ud83c\\udf1f"}\n{"candidate": "half \\uD83C"}\n{"candidate": "caf\xe9"}',
        [2, "surrogates not allowed", "can't decode byte 0xe9"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_lines_that_cannot_be_read_are_errors_of_these_lines(name: str, folder: Path) -> None:
    content, expected = TEXTS[name]
    (folder / name).write_bytes(content)
    for output in ("out.jsonl", "out.parquet"):
        errors = score_dataset(folder / name, "length", folder / output).errors
        assert errors.get("row", 0) == sum(isinstance(each, str) for each in expected)
    rows = read_lines(folder / "out.jsonl")
    for row, each in zip(rows, expected, strict=True):
        assert each in row["error"] if isinstance(each, str) else row["length"] == each


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
        ({"scorer": None}, "a metric, a scorer, a function, or a list of them, got NoneType"),
        ({"candidate_column": 5}, "--candidate-column names 5, which is no column"),
        *[({"weights": bad}, "weights must") for bad in ("length", 1.0)],
        ({"split": "train"}, "is one table, which has no split 'train'"),
    ],
)
@pytest.mark.parametrize("task", [score_dataset, rerank_dataset])
def test_wrong_arguments_are_named(task: Any, argument: dict[str, Any], message: str, folder: Path) -> None:
    (folder / "data.jsonl").write_text('{"candidate": "a", "candidates": ["a"]}')
    if "candidate_column" in argument and task is rerank_dataset:
        argument = {"candidates_column": 5}
    given = {"scorer": "length", "output": folder / "out.jsonl", **argument}
    with pytest.raises(CapRewardError, match=re.escape(message)):
        task(folder / "data.jsonl", **given)
    assert not list(folder.glob("out*"))


def parquet(*columns: pa.Array) -> bytes:
    """A file whose columns are all called "candidate"."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, ["candidate"] * len(columns)), sink)
    return sink.getvalue().to_pybytes()


GREY = io.BytesIO()
Image.new("L", (4, 4)).save(GREY, "PNG")
OPEN_QUOTE = "is not closed as it should be: the text up to line"
BAD_FILES: dict[str, tuple[str | bytes | None, str]] = {  # {name: (content, message)}
    "missing.jsonl": (None, "there is no file"),
    "empty.jsonl": ("\n \n", "holds no rows"),
    "first.jsonl": ('{"candidate": \n', "has no row that can be read. The first: line 1 is not valid JSON"),
    "other.json": (
        '{"a": 1}',
        "holds a JSON value of no form that can be read: a list, COCO's",
    ),
    "coco.json": ('{"images": [{"id": 1}], "annotations": [{}, 5]}', "looks like COCO's annotations, but is not whole"),
    "twice.json": ('{"1.png": "a",\n"1.png": "b"}', "'1.png' is there twice; which one is meant?"),
    "plain.jsonl.gz": (GOOD, "cannot be read: Not a gzipped file"),
    "torn.jsonl.gz": (gzip.compress(GOOD.encode())[:-12], "Compressed file ended before the end-of-stream marker"),
    "torn.json": ('[{"candidate": "a"}, {"candidate"', "is not valid JSON"),
    "numbers.json": ("[1, 2]", "has no row that can be read. The first: entry 1 is not a JSON object but int"),
    "empty.json": ("", "holds no rows"),
    "list.json": ("[]", "holds no rows"),
    "empty.csv": ("", "holds no header line"),
    "header.csv": ("id,candidate\n", "holds no rows"),
    "doubled.csv": ("candidate,id,candidate\na,b,c\n", "several columns named 'candidate'"),
    "quote.csv": ('id,candidate\n1,a\n2,"a dog, 5 years\n3,b\n4,c\n', f"opens in line 3 {OPEN_QUOTE} 5 would"),
    "quotes.csv": ('id,candidate\n1,"a dog\n2,b\n3,"c" d\n4,e\n', f"opens in line 2 {OPEN_QUOTE} 4 would"),
    "head.csv": ('id,"candidate\n1,a\n', "head.csv: a quote that opens in line 1 is not closed"),
    "empty.parquet": (parquet(pa.array([], pa.string())), "holds no rows"),
    "doubled.parquet": (parquet(pa.array(["a"]), pa.array(["b"])), "several columns named 'candidate'"),
    "torn.parquet": (parquet(pa.array(["a"] * 1000))[:-20], "cannot be read as Parquet"),
    "text.parquet": ("no parquet", "cannot be read as Parquet"),
    "kind.xlsx": ("table", "is not of a kind that can be read: .jsonl, .ndjson, .jsonlines, .json, .csv, .tsv,"),
    "sheet.xlsx": (b"PK", "save the sheet as CSV UTF-8"),
    "latin.csv": (
        "id,bünd\n1,a\n".encode("cp1252"),
        "latin.csv is not UTF-8: if a program for Windows wrote it",
    ),
    "data.csv": ("1.png,a,5\n", "begins with data: put a line with the names of its columns in front"),
    "photos/1.png": (GREY.getvalue(), "holds pictures and no captions: put "),
    "list/dataset_dict.json": ("[]", "cannot be read as a data set: TypeError: "),
    "text/dataset_dict.json": ("no JSON", "cannot be read as a data set: JSONDecodeError: "),
    "plain/notes": ("", "is no folder of a data set: "),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_with_the_way_out(name: str, folder: Path) -> None:
    content, message = BAD_FILES[name]
    path = folder / "data" / name
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=re.escape(message)):
        open_source(path.parent if "/" in name else path)


def test_a_metric_that_takes_answers_for_captions_is_warned_of(folder: Path) -> None:
    rows = datasets.Dataset.from_list([{"question": "What is red?", "candidate": "a star"}])
    with pytest.warns(UserWarning, match="metric 'length' does not read the column 'question'"):
        score_dataset(rows, "length", folder / "scores.jsonl")


def test_bad_objects_are_refused() -> None:
    addresses = ("s3://bucket/data.jsonl", "https://a.org/data.jsonl", "file:///data.jsonl")
    for data, message in (
        (datasets.Dataset.from_dict({"candidate": ["a"]}).select([]), "holds no rows"),
        ([{"candidate": "a"}], "data must be a path, a datasets.Dataset or a DatasetDict, got list"),
        *((address, f"{address} is an address; nothing is fetched from there") for address in addresses),
    ):
        with pytest.raises(DataError, match=re.escape(message)):
            open_source(data)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("out.txt", "must end in .parquet or .jsonl"),
        *[(f"{kind}://a.org/out.jsonl", "is an address; nothing is sent there") for kind in ("s3", "https", "file")],
        ("data.jsonl", "is the input"),
        ("taken.jsonl", "is a folder"),
        *[(name, "cannot write") for name in ("good.png/new/out.jsonl", "/proc/out.jsonl", "x" * 300 + ".jsonl")],
        ("blocked.jsonl", "blocked.jsonl.partial is there, but is no folder of a run by this version; move it away"),
    ],
)
def test_bad_output_is_refused_before_a_model_is_loaded(output: str, message: str, folder: Path) -> None:
    (folder / "data.jsonl").write_text(GOOD)
    (folder / "taken.jsonl").mkdir()
    (folder / "blocked.jsonl.partial").touch()
    with pytest.raises(OutputError, match=re.escape(message)):
        score_dataset(folder / "data.jsonl", "length", output if "://" in output else folder / output)
    assert (folder / "data.jsonl").read_text() == GOOD
    assert not any(Path(name).exists() for name in ("s3:", "https:", "file:"))


def test_failing_metric_leaves_no_journal_of_nothing(folder: Path) -> None:
    class Broken(PictureScorer):
        def score(self, samples: Any, *, batch_size: int | None = None, progress: bool = False) -> Any:
            raise RuntimeError("out of memory")

    (folder / "data.jsonl").write_text(GOOD)
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(folder / "data.jsonl", Broken(), folder / "out.jsonl")
    assert not list(folder.glob("out*"))
