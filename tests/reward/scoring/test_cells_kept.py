"""Cells of the output are equal to those of the input, from each form of data to each form of output."""

import base64
import csv
import json
import math
import uuid
from datetime import date, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Features, Image, Value
from datasets import load_dataset as load

from reward.errors import DataError
from reward.metaeval.benchmarks.own_ratings import load_ratings
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.writers import json_line
from tests.reward.scoring.small_data import read_rows
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.picture_scorer import PictureScorer
from tests.toys.pictures import png

# What looks like a number, a gap, a truth, a list or a time, and is a text.
TEXTS = ["1.1", "1.10", "1e5", "007", "NA", "nan", "None", "True", "-", "0,5", "[1, 2]", "10:00:00.500", "1" * 20, ""]
TEXTS += [" a ", 'She said "hi"', '"quoted"', "'", "a, b; c|d", "# a", "=1+1", "ein Stern, schön 🌟", "\\n"]
BROKEN = ["a\nb", "a\r\nb", "a\rb", "a\tb"]  # which no cell of TSV holds
VALUES = [1, -0.5, 1e300, 2**53 + 1, True, None, ["1.10", None], {"a": [1, 2]}, [], 0.1]
ENDINGS = ("csv", "tsv", "jsonl", "json", "parquet")


def write_text_table(path, cells):
    """A row for each cell, beside a caption; of TSV, quotes are characters."""
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".tsv":
            file.writelines(
                f"{cell}\t{caption}\n" for cell, caption in [("cell", "caption"), *((c, "a b") for c in cells)]
            )
        else:
            csv.writer(file).writerows([("cell", "caption"), *((cell, "a b") for cell in cells)])


def write_cells(path, cells):
    """Data with a row for each cell."""
    rows = [{"cell": cell, "caption": "a b"} for cell in cells]
    if path.suffix in (".csv", ".tsv"):
        write_text_table(path, cells)
    elif path.suffix == ".jsonl":
        write_lines(path, rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        Dataset.from_list(rows).save_to_disk(str(path.parent / "saved"))
        next((path.parent / "saved").glob("*.arrow")).rename(path)
    return path


def cells_of(path, column="cell"):
    """The cells of a column, as another program reads them."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [row[column] for row in csv.DictReader(file)]
    if path.suffix == ".tsv":
        names, *rows = [line.split("\t") for line in path.read_bytes().decode().removesuffix("\n").split("\n")]
        return [row[names.index(column)] for row in rows]
    rows = json.loads(path.read_text()) if path.suffix == ".json" else read_rows(path)
    return [row[column] for row in rows]


def as_text(cell):
    """A cell in a table of text."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else json.dumps(cell)


# Readers of text and readers of Arrow, each before every writer.
PAIRS = [("csv", "csv"), ("csv", "parquet"), ("tsv", "tsv"), ("tsv", "jsonl"), ("jsonl", "json"), ("json", "tsv")]
PAIRS += [("parquet", "parquet"), ("parquet", "csv"), ("parquet", "tsv"), ("arrow", "jsonl"), ("arrow", "json")]


@pytest.mark.parametrize(("data", "output"), PAIRS)
def test_cells_of_text_stay_as_they_were_written(data, output, tmp_path):
    cells = TEXTS + (BROKEN if "tsv" not in (data, output) else [])
    path = write_cells(tmp_path / f"data.{data}", cells)
    summary = score_dataset(path, "length", tmp_path / f"out.{output}")
    assert (summary.rows, summary.errors) == (len(cells), {})
    assert cells_of(tmp_path / f"out.{output}") == cells
    again = score_dataset(tmp_path / f"out.{output}", "length", tmp_path / "again.jsonl", prefix="b_")
    assert again.errors == {}
    assert cells_of(tmp_path / "again.jsonl") == cells


@pytest.mark.parametrize("output", ENDINGS)
@pytest.mark.parametrize("data", ["jsonl", "parquet"])
def test_values_of_any_type_stay_and_are_json_in_tables_of_text(data, output, tmp_path):
    row = {f"v{number}": value for number, value in enumerate(VALUES)}
    rows = [{**row, "caption": "a b"}, {**dict.fromkeys(row), "caption": "a b"}]
    path = tmp_path / f"data.{data}"
    if data == "jsonl":
        write_lines(path, rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    score_dataset(path, "length", tmp_path / f"out.{output}")
    is_text = output in ("csv", "tsv")
    for name, value in row.items():
        expected = [as_text(value), ""] if is_text else [value, None]
        assert cells_of(tmp_path / f"out.{output}", name) == expected


def test_a_line_of_json_has_paths_in_place_of_pictures_and_null_for_what_is_no_number():
    rows = [{"a": {"bytes": None, "path": "1.png"}}, {"a": [math.inf, 1.5]}, {"a": b"\x00"}, {"a": "\u00e4"}]
    lines = ['{"a": "1.png"}', '{"a": [null, 1.5]}', '{"a": "AA=="}', '{"a": "\u00e4"}']
    assert [json_line(row) for row in rows] == [f"{line}\n" for line in lines]


def test_groups_and_ratings_are_what_was_written(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("id,caption\n1.1,a\n1.10,a b\n1.1,a b c\n,a\n")
    summary = rerank_dataset(path, "length", tmp_path / "out.csv", group_column="id")
    assert cells_of(tmp_path / "out.csv", "rank") == ["2", "1", "1", ""]
    assert (summary.groups, list(summary.errors)) == (2, ["group"])
    rated = {"csv": "caption;rating\na;0,5\nb;1,5\n", "tsv": "caption\trating\na\t0,5\nb\t1,5\n"}
    rated["jsonl"] = '{"caption": "a", "rating": "0,5"}\n{"caption": "b", "rating": "1,5"}\n'
    for ending, text in rated.items():
        (tmp_path / f"rated.{ending}").write_text(text)
        ratings = load_ratings(tmp_path / f"rated.{ending}").rows["ratings"]
        assert [list(rating.values()) for rating in ratings] == [[(0.5,)], [(1.5,)]]


UUID = uuid.UUID("12345678123456781234567812345678")
TYPED = {  # {type: (value in Parquet, the cell in text)}
    "bytes": (pa.array([b"\x00\xff"]), base64.b64encode(b"\x00\xff").decode()),
    "fixed bytes": (pa.array([UUID.bytes], pa.binary(16)), base64.b64encode(UUID.bytes).decode()),
    "uuid": (pa.array([UUID.bytes], pa.uuid()), str(UUID)),
    "nanoseconds": (pa.array([1], pa.time64("ns")), "00:00:00.000000001"),
    "time": (pa.array([time(10, 0, 0, 5)]), "10:00:00.000005"),
    "day": (pa.array([date(2024, 5, 1)]), "2024-05-01"),
    "moment": (pa.array([1714521600123456789], pa.timestamp("ns")), "2024-05-01 00:00:00.123456789"),
    "decimal": (pa.array([Decimal("1.10")]), "1.10"),
    "list of bytes": (pa.array([[b"a"]]), '["YQ=="]'),
    "category": (pa.array(["x"], pa.dictionary(pa.int8(), pa.string())), "x"),
}


def test_typed_cells_keep_their_types_in_parquet_and_their_digits_in_text(tmp_path):
    table = pa.table({"caption": ["a b"], **{name: array for name, (array, _) in TYPED.items()}})
    pq.write_table(table, tmp_path / "data.parquet")
    for output in ("out.parquet", "out.csv", "out.jsonl"):
        score_dataset(tmp_path / "data.parquet", "length", tmp_path / output)
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.select(table.column_names).equals(pq.read_table(tmp_path / "data.parquet"))
    [row] = read_lines(tmp_path / "out.jsonl")
    for name, (_, text) in TYPED.items():
        assert cells_of(tmp_path / "out.csv", name) == [text]
        assert row[name] == (json.loads(text) if text.startswith("[") else text)
    assert pq.read_schema(tmp_path / "out.parquet").names[-4:] == ["length", "reward", "truncated", "error"]
    pq.write_table(pa.table({"caption": ["a b"], "loss": [float("nan")]}), tmp_path / "data.parquet")
    score_dataset(tmp_path / "data.parquet", "length", tmp_path / "loss.jsonl")
    assert read_lines(tmp_path / "loss.jsonl")[0]["loss"] is None  # NaN is no JSON


GREY = png("grey")


@pytest.fixture
def pictures(form, tmp_path):
    """Data that hold pictures: one, a list of one, bytes, and none."""
    types = {"image": Image(), "all": [Image()], "raw": Value("binary"), "caption": Value("string")}
    cell = {"bytes": GREY, "path": "grey.png"}
    columns = {"image": [cell, None], "all": [[cell], []], "raw": [GREY, None], "caption": ["a b", "c"]}
    data = Dataset.from_dict(columns, features=Features(types))
    if form == "parquet":
        data.to_parquet(tmp_path / "data.parquet")
        return tmp_path / "data.parquet"
    data.save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


FORMS_OF_PICTURES = [*(("parquet", ending) for ending in ENDINGS), ("saved", "parquet"), ("saved", "csv")]


@pytest.mark.parametrize(("form", "output"), FORMS_OF_PICTURES)
def test_pictures_stay_and_are_read_from_every_output(output, pictures, tmp_path):
    first = tmp_path / f"out.{output}"
    score_dataset(pictures, PictureScorer(), first)
    score_dataset(first, PictureScorer(), tmp_path / "again.jsonl", prefix="b_")
    (whole, empty) = read_lines(tmp_path / "again.jsonl")
    assert (float(whole["brightness"]), whole["b_error"]) == (pytest.approx(whole["b_brightness"]), None)
    assert whole["raw"] == base64.b64encode(GREY).decode()
    assert (empty["image"] or None, empty["b_error"]) == (None, "the row has no image in column 'image'")
    if output == "parquet":
        assert pq.read_table(first).to_pylist()[0]["image"]["bytes"] == GREY
        features = load("parquet", data_files=str(first), split="train", cache_dir=str(tmp_path / "cache")).features
        assert (features["image"], features["all"].feature) == (Image(), Image())


@pytest.mark.parametrize(("form", "output"), FORMS_OF_PICTURES)
def test_pictures_are_left_out_on_request_but_for_their_paths(output, pictures, tmp_path):
    score_dataset(pictures, PictureScorer(), tmp_path / f"out.{output}", drop_images=True)
    names = ["image", "raw", "caption", "brightness", "words", "reward", "truncated", "error"]
    assert cells_of(tmp_path / f"out.{output}", "image")[0] == "grey.png"
    assert cells_of(tmp_path / f"out.{output}", "raw")[0] in (GREY, base64.b64encode(GREY).decode())
    if output == "parquet":
        assert pq.read_schema(tmp_path / "out.parquet").names == names
    score_dataset(pictures, PictureScorer(), tmp_path / f"raw.{output}", drop_images=True, image_column="raw")
    with pytest.raises((KeyError, ValueError)):
        cells_of(tmp_path / f"raw.{output}", "raw")


def test_blank_lines_of_one_column_are_rows_and_others_are_none(tmp_path):
    for ending in ("csv", "tsv"):
        (tmp_path / f"one.{ending}").write_text("caption\na\n\nb c\n")
        assert score_dataset(tmp_path / f"one.{ending}", "length", tmp_path / f"{ending}.jsonl").rows == 3
        (tmp_path / f"two.{ending}").write_text(
            "caption,id\na,1\n\nb c,2\n".replace(",", "," if ending == "csv" else "\t")
        )
        assert score_dataset(tmp_path / f"two.{ending}", "length", tmp_path / f"two.{ending}.jsonl").rows == 2


def test_tsv_that_is_quoted_as_csv_is_refused_and_breaks_in_cells_are_escaped(tmp_path):
    (tmp_path / "data.tsv").write_text('caption\tid\n"a ""b"" c"\t1\n')
    with pytest.raises(DataError, match=r"line 2 has a field in quotes as CSV writes it.* name the file data\.csv"):
        score_dataset(tmp_path / "data.tsv", "length", tmp_path / "out.csv")
    (tmp_path / "data.tsv").rename(tmp_path / "data.csv")
    score_dataset(tmp_path / "data.csv", "length", tmp_path / "out.csv")
    assert cells_of(tmp_path / "out.csv", "caption") == ['a "b" c']
    data = write_lines(tmp_path / "data.jsonl", [{"caption": "a"}, {"caption": "a\nb\tc\rd"}])
    score_dataset(data, "length", tmp_path / "out.tsv")
    assert cells_of(tmp_path / "out.tsv", "caption") == ["a", r"a\nb\tc\rd"]
