"""Scoring and reranking of data files: formats, columns, order, images, and what is in the output."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.errors import DataError, OutputError
from reward.samples import CaptionSample
from reward.scoring import rerank_dataset, score_dataset
from tests.reward.scoring.small_data import read_rows, save_greys
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer

pytestmark = pytest.mark.slow

ROWS: list[dict[str, Any]] = [
    {"id": 7, "image": "grey/0.png", "candidate": "a red star", "references": ["one star", "red"]},
    {"id": 8, "image": "grey/0.png", "candidate": "ein roter Stern, „schön“ 🌟", "references": []},
    {"id": 9, "image": "grey/1.png", "candidate": "line one\nline two, with a comma", "references": ["x"]},
    {"id": 10, "image": "grey/2.png", "candidate": "word " * 200, "references": ["y"]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three grey images of different brightness, and room for data."""
    return save_greys(tmp_path / "grey").parent


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_output_agrees_with_the_scorer(suffix: str, folder: Path) -> None:
    data, output = write_lines(folder / "data.jsonl", ROWS), folder / f"out.{suffix}"
    summary = score_dataset(data, PictureScorer(), output, weights={"bright": 3, "words": 1})
    samples = [CaptionSample(row["candidate"], folder / row["image"], row["references"]) for row in ROWS]
    scores = PictureScorer().score(samples).scores
    rows = read_rows(output)
    assert np.allclose([row.pop("reward") for row in rows], scores @ [0.75, 0.25], rtol=1e-12)
    added = [{"brightness": one, "words": two, "truncated": False, "error": None} for one, two in scores]
    added[3]["truncated"] = True
    assert rows == [{**row, **more} for row, more in zip(ROWS, added, strict=True)]
    assert (summary.rows, summary.scored, summary.truncated, summary.errors) == (4, 4, 1, {})
    assert summary.images_decoded == 3  # the first two rows share an image
    assert summary.distributions["brightness"].mean == pytest.approx(scores[:, 0].mean())
    assert summary.distributions["words"].max == scores[:, 1].max()
    assert sorted(path.name for path in folder.glob("out.*")) == [f"out.{suffix}", f"out.{suffix}.summary.json"]


def test_encoded_images_are_scored_and_left_out_of_the_output(folder: Path) -> None:
    image = Image.open(folder / "grey" / "2.png").copy()  # a copy has no path
    columns = {"image": [image, None], "raw": [b"1", b"2"], "cand": ["a", "b"]}
    types = {"image": datasets.Image(), "raw": datasets.Value("binary"), "cand": datasets.Value("string")}
    data = datasets.Dataset.from_dict(columns, features=datasets.Features(types))
    score_dataset(data, PictureScorer(), folder / "out.parquet")
    first, second = read_rows(folder / "out.parquet")
    assert first["brightness"] == pytest.approx(100 / 255)
    assert "raw" not in first
    assert first["image"] is None  # encoded bytes without a path
    assert second["error"] == "the row has no image in column 'image'"


def test_equal_images_share_one_object_across_parts(folder: Path) -> None:
    rows = [{"image": f"grey/{number // 10 % 3}.png", "candidate": f"c {number}"} for number in range(60)]
    scorer = PictureScorer()
    data = write_lines(folder / "data.jsonl", rows)
    summary = score_dataset(data, scorer, folder / "out.jsonl", batch_size=5, part_rows=7)
    assert summary.images_decoded == 6  # one for ten rows that follow each other
    for start in range(0, 60, 10):
        assert len({id(sample.image) for sample in scorer.samples[start : start + 10]}) == 1
    assert [row["candidate"] for row in read_rows(folder / "out.jsonl")] == [row["candidate"] for row in rows]
    assert set(scorer.batch_sizes) == {5}


def test_relative_paths_start_at_the_file_or_at_the_working_folder_or_where_the_user_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "data").mkdir()
    data = write_lines(folder / "data" / "data.jsonl", [{**ROWS[0], "image": "gone.png"}, *ROWS[1:]])
    monkeypatch.chdir(folder / "data")
    with pytest.raises(
        DataError, match=rf"'gone.png' is not in {folder}/data\. .*: --image-root FOLDER \(image_root=\)"
    ):
        score_dataset(data, PictureScorer(), folder / "out.csv")
    assert score_dataset(data, PictureScorer(), folder / "given.csv", image_root=folder).errors == {"image": 1}
    monkeypatch.chdir(folder)
    summary = score_dataset(data, PictureScorer(), folder / "found.csv")
    assert (summary.errors, summary.image_root) == ({"image": 1}, ".")
    names = write_lines(folder / "data" / "names.jsonl", [{"image": "0", "caption": "a"}])
    with pytest.raises(DataError, match="--image-root grey "):
        score_dataset(names, PictureScorer(), folder / "out.csv")
    summary = score_dataset(names, "length", folder / "length.csv")
    assert (summary.scored, summary.images_decoded, summary.columns["image"]) == (1, 0, None)


def test_an_output_without_a_score_does_not_block_the_corrected_run(folder: Path) -> None:
    data, output = write_lines(folder / "data.jsonl", [{"caption": "", "other": "a b"}]), folder / "out.csv"
    assert score_dataset(data, "length", output).scored == 0
    assert score_dataset(data, "length", output, candidate_column="other").scored == 1
    with pytest.raises(OutputError, match="exists already"):
        score_dataset(data, "length", output)


def test_references_may_be_absent_blank_or_bad(folder: Path) -> None:
    given = [{"references": value} for value in (None, [], ["a"], ["a", "", None], [5], 5, [" "])] + [{}]
    rows = [{"image": "grey/0.png", "candidate": "a b", **references} for references in given]
    data = write_lines(folder / "data.jsonl", rows)
    summary = score_dataset(data, PictureScorer(), folder / "out.jsonl")
    assert summary.errors == {"references": 2}
    assert [row["words"] for row in read_rows(folder / "out.jsonl")] == [2, 2, 3, 3, None, None, 2, 2]
    assert summary.examples["references"].startswith("row 5: references[0] must be a string, got int: 5")
    summary = score_dataset(data, "unigram", folder / "unigram.jsonl")
    errors = [row["error"] for row in read_rows(folder / "unigram.jsonl")]
    assert [bool(error) for error in errors] == [True, True, False, False, True, True, True, True]
    assert all("needs references" in errors[row] for row in (0, 1, 6, 7))


def test_references_of_csv_are_a_json_list_or_one_text(folder: Path) -> None:
    (folder / "data.csv").write_text('cand,refs\na b,a b c\na b,"[""a b"", ""z""]"\na b,\na b,[broken\n')
    score_dataset(folder / "data.csv", "unigram", folder / "out.jsonl")
    assert [row["f1"] for row in read_rows(folder / "out.jsonl")] == [pytest.approx(0.8), 1.0, None, 0.0]


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"txt": "a", "image": "i"}, {}, "The columns are: txt, image. Name it with --candidate-column"),
        ({"cand": "a", "caption": "b", "image": "i"}, {}, "any of cand, caption: choose one with --candidate-column"),
        ({"cand": "a"}, {}, "metric 'picture' needs a column with the image"),
        ({"cand": "a"}, {"scorer": "unigram"}, "metric 'unigram' needs a column with the references"),
        ({"cand": "a", "file_name": "i", "img": "i"}, {}, "file_name, img: choose one with --image-column"),
        ({"text": "a", "image": "i"}, {"candidate_column": "txt"}, "no column. Did you mean 'text'?"),
        ({"cand": "a", "image": "i"}, {"references_column": "golds"}, "--references-column names 'golds'"),
        ({"cand": "a", "image": "i", "reward": 1}, {}, "has a column 'reward' already"),
    ],
)
def test_wrong_columns_are_named(row: dict[str, Any], options: dict[str, Any], message: str, folder: Path) -> None:
    data = write_lines(folder / "data.jsonl", [row])
    with pytest.raises(DataError, match=re.escape(message)):
        score_dataset(data, output=folder / "out.jsonl", **{"scorer": PictureScorer(), **options})
    assert not list(folder.glob("out*"))


def test_prefix_lets_two_metrics_score_one_file(folder: Path) -> None:
    rows = [{"candidate": "a b c", "references": ["a b c"]}]
    score_dataset(write_lines(folder / "data.jsonl", rows), "length", folder / "one.jsonl")
    score_dataset(folder / "one.jsonl", "unigram", folder / "two.parquet", prefix="uni_")
    (row,) = read_rows(folder / "two.parquet")
    expected = {"length": 3.0, "reward": 3.0, "uni_f1": 1.0, "uni_reward": 1.0, "uni_error": None}
    assert {name: row[name] for name in expected} == expected


def test_parquet_keeps_the_types_of_its_columns_and_json_lines_are_strict_json(folder: Path) -> None:
    columns = {
        "when": pa.array([datetime(2024, 5, 1)], pa.timestamp("ns")),
        "small": pa.array([3], pa.int8()),
        "names": pa.array(["x"], pa.dictionary(pa.int32(), pa.string())),
        "loss": [float("nan")],
        "candidate": ["a b"],
    }
    table = pa.table(columns)
    pq.write_table(table, folder / "data.parquet")
    score_dataset(folder / "data.parquet", "length", folder / "out.parquet")
    written = pq.read_table(folder / "out.parquet")
    assert written.schema.types[:5] == table.schema.types
    assert written.drop_columns("loss").select([0, 1, 2, 3]).equals(table.drop_columns("loss"))
    assert written.schema.names[5:] == ["length", "reward", "truncated", "error"]
    score_dataset(folder / "data.parquet", "length", folder / "out.jsonl")
    (line,) = (folder / "out.jsonl").read_text().splitlines()
    row = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (row["loss"], row["when"]) == (None, "2024-05-01 00:00:00")


def test_untyped_rows_get_the_narrowest_types(folder: Path) -> None:
    rows = [
        {"candidate": "a", "n": 1, "mix": 1, "nested": {"x": 1}},
        {"candidate": "b", "n": 2.5, "mix": "text", "late": [1]},
    ]
    score_dataset(write_lines(folder / "data.jsonl", rows), "length", folder / "out.parquet")
    written = [
        {name: row[name] for name in ("n", "mix", "nested", "late")} for row in read_rows(folder / "out.parquet")
    ]
    assert written == [
        {"n": 1.0, "mix": "1", "nested": {"x": 1}, "late": None},
        {"n": 2.5, "mix": "text", "nested": None, "late": [1]},
    ]


def test_rerank_orders_candidates(folder: Path) -> None:
    rows = [
        {"image": "grey/0.png", "candidates": ["b", "a b c", "fail", "x y z", ""], "tag": 1},
        {"image": "grey/1.png", "candidates": ["only one"], "tag": 2},
        {"image": "grey/1.png", "candidates": [], "tag": 3},
        {"image": "grey/9.png", "candidates": ["b", "a c"], "tag": 4},
        {"image": "grey/1.png", "candidates": ["fail 1", "fail 2"], "tag": 5},
    ]
    data = write_lines(folder / "data.jsonl", rows)
    for name in ("best.jsonl", "best.parquet"):
        summary = rerank_dataset(data, PictureScorer(), folder / name, weights={"words": 1})
        first, second, third, fourth, fifth = read_rows(folder / name)
        assert first["candidates"] == ["a b c", "x y z", "b", "fail", ""]  # equal rewards keep their order
        assert (first["order"], first["best"]) == ([1, 3, 0, 2, 4], "a b c")
        assert (first["rewards"], first["words"]) == ([3, 3, 1, None, None], [3, 3, 1, None, None])
        assert first["error"].startswith("candidate 3: the caption says fail; candidate 5: candidate is empty")
        assert (second["best"], second["order"], second["error"], second["tag"]) == ("only one", [0], None, 2)
        assert "must hold a list of captions, got []" in third["error"]
        assert re.match("image file .* does not exist", fourth["error"])
        assert (fourth["candidates"], fourth["order"]) == (["b", "a c"], [0, 1])  # nothing of the row is lost
        assert fourth["rewards"] == fourth["words"] == [None, None]
        assert (fourth["best"], fifth["best"], fifth["rewards"]) == (None, None, [None, None])
        assert (summary.rows, summary.captions, summary.scored) == (5, 10, 4)
        assert summary.errors == {"metric": 3, "candidate": 2, "image": 2}


def test_rerank_reads_lists_from_csv_and_parquet(folder: Path) -> None:
    (folder / "data.csv").write_text('candidates\n"[""a"", ""a b""]"\nno list\n')
    rerank_dataset(folder / "data.csv", "length", folder / "a.jsonl")
    good, bad = read_rows(folder / "a.jsonl")
    assert (good["best"], good["candidates"], bad["best"]) == ("a b", ["a b", "a"], None)
    pq.write_table(pa.table({"id": [1], "captions": [["a", "a b"]]}), folder / "data.parquet")
    rerank_dataset(folder / "data.parquet", "length", folder / "b.parquet")
    (row,) = read_rows(folder / "b.parquet")
    assert (row["id"], row["captions"], row["order"]) == (1, ["a b", "a"], [1, 0])
