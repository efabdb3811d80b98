"""Bad rows become errors of these rows; bad files, arguments and outputs are refused before a model is loaded."""

import gzip
import math
import re

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.errors import CapRewardError, DataError
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.readers import open_source
from tests.reward.scoring.small_data import save_greys, scored
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer
from tests.toys.pictures import png

GOOD = '{"image": "0.png", "candidate": "a b"}'
BAD_ROWS = [  # (line, kind of its error, part of the message)
    (
        '{"image": "0.png", "candidate": "cut of',
        "row",
        "line 2 is not valid JSON: Unterminated string starting at (character 33)",
    ),
    ('["0.png", "a"]', "row", "line 3 is not a JSON object but list"),
    ('{"image": "0.png"}', "candidate", "candidate must be a string, got NoneType"),
    ('{"image": "0.png", "candidate": " \\n\\t"}', "candidate", "candidate is empty"),
    ('{"image": "0.png", "candidate": 5}', "candidate", "candidate must be a string, got int: 5"),
    ('{"image": "0.png", "candidate": ["a", "b"]}', "candidate", "a list of captions: `capreward rerank` scores"),
    ('{"image": "0.png", "candidate": {"x": "a"}}', "candidate", "holds an object with the fields ['x']: write"),
    ('{"image": "missing.png", "candidate": "a"}', "image", "does not exist"),
    ('{"image": "s3://images/0.png", "candidate": "a"}', "image", "is an address and nothing is downloaded here"),
    ('{"image": null, "candidate": "a"}', "image", "the row has no image in column 'image'"),
    ('{"image": 5, "candidate": "a"}', "image", "does not exist"),
    ('{"image": "torn.jpg", "candidate": "a"}', "image", "torn.jpg"),
    ('{"image": "text.png", "candidate": "a"}', "image", "is not an image"),
    ('{"image": "bomb.png", "candidate": "a"}', "image", "pixels"),
    ('{"image": "0.png", "candidate": "fail"}', "metric", "the caption says fail"),
    ('{"image": "0.png", "candidate": "a"} {}', "row", "is not valid JSON: Extra data (character 38)"),
]


def test_bad_rows_keep_their_places_and_the_others_are_scored(tmp_path):
    Image.effect_noise((64, 64), 50).save(save_greys(tmp_path) / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "torn.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no image at all")
    Image.new("1", (9_000, 9_000)).save(tmp_path / "bomb.png")
    (tmp_path / "data.jsonl").write_text("\n".join([GOOD, *(line for line, _, _ in BAD_ROWS), GOOD]))
    (first, *bad, last), summary = scored(tmp_path / "data.jsonl", tmp_path / "out.jsonl", PictureScorer())
    assert (first["error"], last["error"]) == (None, None)
    assert first["reward"] == last["reward"] is not None
    for row, (_, _, message) in zip(bad, BAD_ROWS, strict=True):
        assert message in row["error"]
        assert (row["reward"], row["brightness"]) == (0.0 if "is empty" in message else None, None)
    kinds = [kind for _, kind, _ in BAD_ROWS]
    assert summary.errors == {kind: kinds.count(kind) for kind in kinds}
    assert summary.examples["row"] == f"row 2: {bad[0]['error']}"


LONG = b"word " * 40_000  # more than the csv module allows by itself
TEXTS = {  # {name: (content, for each row its words or its error)}
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
    "a caption a line.txt": (b"A dog, running.\n\nA cat.\n", [3, "candidate is empty", 2]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_lines_that_cannot_be_read_are_errors_of_these_lines(name, tmp_path):
    content, expected = TEXTS[name]
    (tmp_path / name).write_bytes(content)
    rows, _ = scored(tmp_path / name, tmp_path / "out.parquet")
    for row, each in zip(rows, expected, strict=True):
        assert each in row["error"] if isinstance(each, str) else row["length"] == each


def parquet(rows):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"candidate": pa.array(["a"] * rows, pa.string())}), sink)
    return sink.getvalue().to_pybytes()


OPEN_QUOTE = "is not closed as it should be: the text up to line"
BAD_FILES = {  # {name: (content, message)}
    "missing.jsonl": (None, "there is no file"),
    "empty.jsonl": ("\n \n", "holds no rows"),
    "first.jsonl": ('{"candidate": \n', "has no row that can be read. The first: line 1 is not valid JSON"),
    "torn.jsonl.gz": (gzip.compress(GOOD.encode())[:-12], "Compressed file ended before the end-of-stream marker"),
    "empty.csv": ("", "holds no header line"),
    "doubled.csv": ("candidate,id,candidate\na,b,c\n", "several columns named 'candidate'"),
    "quote.csv": ('id,candidate\n1,a\n2,"a dog, 5 years\n3,b\n4,c\n', f"opens in line 3 {OPEN_QUOTE} 5 would"),
    "head.csv": ('id,"candidate\n1,a\n', "head.csv: a quote that opens in line 1 is not closed"),
    "latin.csv": ("id,bünd\n1,a\n".encode("cp1252"), "latin.csv is not UTF-8: if a program for Windows wrote it"),
    "empty.parquet": (parquet(0), "holds no rows"),
    "torn.parquet": (parquet(1000)[:-20], "cannot be read as Parquet"),
    "sheet.xlsx": (b"PK", "or the name of one on the Hub"),
    "photos/1.png": (png("red"), "holds pictures and no captions: put "),
    "list/dataset_dict.json": ("[]", "cannot be read as a data set: TypeError: "),
    "plain/notes": ("", "is no folder of a data set: "),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_with_the_way_out(name, tmp_path):
    content, message = BAD_FILES[name]
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=re.escape(message)):
        open_source(path.parent if "/" in name else path)


ONE = datasets.Dataset.from_dict({"candidate": ["a"]})
SPLITS = datasets.DatasetDict({"train": ONE, "test": ONE})


@pytest.mark.parametrize(
    ("data", "split", "message"),
    [
        (ONE.select([]), None, "holds no rows"),
        (ONE, "train", "is one table, which has no split 'train'"),
        (SPLITS, None, "the data set has several splits; choose one with --split (split=): train, test"),
        (SPLITS, "val", "the data set has no split 'val'; choose one"),
        ([{"candidate": "a"}], None, "data must be a path, a datasets.Dataset or a DatasetDict, got list"),
        ("s3://bucket/data.jsonl", None, "s3://bucket/data.jsonl is an address; nothing is fetched from there"),
    ],
)
def test_bad_objects_are_refused(data, split, message):
    with pytest.raises(DataError, match=re.escape(message)):
        open_source(data, split=split)


BOTH = ["vela", "length"]
ROW = {"candidate": "a", "image": "i.png", "references": ["a"]}
RANKED = {"task": rerank_dataset}


@pytest.mark.parametrize(
    ("row", "scorer", "options", "message"),
    [
        ({"said": "a", "image": "i"}, "length", {}, "The columns are: said, image. Name it with --candidate-column"),
        ({"cand": "a"}, PictureScorer(), {}, "metric 'picture' needs a column with the image"),
        ({"out": {"text": "a"}}, "length", {"candidate_column": "out.text"}, "names 'out.text', which is no column"),
        ({"cand": "a"}, "unigram", {}, "metric 'unigram' needs a column with the references"),
        ({"cand": "a", "file_name": "i", "img": "i"}, PictureScorer(), {}, "img: choose one with --image-column"),
        ({"cand": "a", "reward": 1}, "length", {}, "has a column 'reward' already"),
        (ROW, None, {}, "a metric, a scorer, a function, or a list of them, got NoneType"),
        (ROW, "length", {"weights": 1.0}, "weights must"),
        (ROW, [], {}, "an empty list of metrics scores nothing"),
        (ROW, ["vela=a", "VELA=b"], {}, "metric 'vela' is there twice"),
        (ROW, BOTH, {"weights": {"vela": 0.7}}, "length has no weight: write --weights vela=0.7,length=WEIGHT"),
        (ROW, BOTH, {"weights": {"vela": math.nan, "length": 1}}, "metric 'vela' must be a finite number"),
        (
            ROW,
            BOTH,
            {"weights": {"desc": 1}},
            "no metric and no aspect here; there are vela, length, vela_desc",
        ),
        (ROW, BOTH, {"top": 3}, "ordered by one number"),
        (ROW, BOTH, {"source": "runs/a"}, "write NAME=FOLDER or NAME=HUB_ID@REVISION for each of several"),
        (ROW, "unigram", {"cache": "c"}, "metric 'unigram' keeps nothing on disk: leave out cache="),
        (ROW, PictureScorer(), {"cache": "x"}, "give cache= where it is loaded"),
        (ROW, PictureScorer(), {"devices": "cpu,cpu"}, "'picture' is a scorer that is loaded already"),
        (ROW, "length", {"devices": "cpu,,cpu"}, "devices must be auto, or names such as"),
        (ROW, "cider", {"devices": ["cpu", "cpu"]}, "weighs words by the references of all rows, which one process"),
        (ROW, "length", {"output": "taken.jsonl"}, "is a folder"),
        (ROW, "length", {"output": "out.txt"}, "must end in .parquet or .jsonl"),
        (ROW, "length", {"output": "i.png/new/out.jsonl"}, "cannot write"),
        (ROW, "length", {"output": "x" * 300 + ".jsonl"}, "cannot write"),
        (ROW, "length", {"output": "blocked.jsonl"}, "cannot write"),
        ({"candidates": ["a"]}, BOTH, RANKED, "each metric a weight in the mean, as in --weights vela=0.5,length=0.5"),
        ({"candidate": "a"}, "length", RANKED, "each row has one candidate, and no column names the image: name the"),
        ({"cand": "a", "id": 1}, "length", {**RANKED, "group_column": "ids"}, "names 'ids', which is no column. Did"),
        ({"caption": ["a"], "id": 1}, "length", {**RANKED, "group_column": "id"}, "compete: leave out --group-column"),
        ({"own": 2.5}, "length", {**RANKED, "candidates_column": "own"}, "holds float, neither lists of captions nor"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(row, scorer, options, message, tmp_path):
    (tmp_path / "taken.jsonl").mkdir()
    (tmp_path / "blocked.jsonl.partial").write_text("precious")
    (tmp_path / "i.png").touch()
    data = write_lines(tmp_path / "data.jsonl", [row])
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}
    settings = {"task": score_dataset, "output": "out.jsonl", **options}
    task, output = settings.pop("task"), tmp_path / settings.pop("output")
    with pytest.raises(CapRewardError, match=re.escape(message)):
        task(data, scorer, output, **settings)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()} == before
