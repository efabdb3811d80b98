"""Scoring and reranking of data files: formats, columns, order, images, and what is in the output."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.errors import DataError, WeightsError
from reward.samples import CaptionSample
from reward.scoring import rerank_dataset, score_dataset
from tests.json_lines import read_lines, write_lines
from tests.picture_scorer import PictureScorer

ROWS: list[dict[str, Any]] = [
    {"id": 7, "image": "grey/0.png", "candidate": "a red star", "references": ["one star", "red"]},
    {"id": 8, "image": "grey/0.png", "candidate": "ein roter Stern, „schön“ 🌟", "references": []},
    {"id": 9, "image": "grey/1.png", "candidate": "line one\nline two, with a comma", "references": ["x"]},
    {"id": 10, "image": "grey/2.png", "candidate": "word " * 200, "references": ["y"]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three grey images of different brightness, and room for data."""
    (tmp_path / "grey").mkdir()
    for number in range(3):
        Image.new("RGB", (5 + number, 4), (40 + 60 * number,) * 3).save(tmp_path / "grey" / f"{number}.png")
    return tmp_path


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    return read_lines(path)


def expected(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    samples = [CaptionSample(row["candidate"], folder / row["image"], row["references"]) for row in ROWS]
    table = PictureScorer().score(samples)
    return table.scores, table.truncated


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_output_agrees_with_the_scorer(suffix: str, folder: Path) -> None:
    data, output = write_lines(folder / "data.jsonl", ROWS), folder / f"out.{suffix}"
    summary = score_dataset(data, PictureScorer(), output, weights={"bright": 3, "words": 1})
    scores, truncated = expected(folder)
    rows = read(output)
    assert np.array_equal([[row["brightness"], row["words"]] for row in rows], scores)
    assert np.allclose([row["reward"] for row in rows], scores @ [0.75, 0.25], rtol=1e-12)
    assert [row["truncated"] for row in rows] == truncated.tolist() == [False, False, False, True]
    assert [row["error"] for row in rows] == [None] * 4
    assert [{name: row[name] for name in ROWS[0]} for row in rows] == ROWS
    assert (summary.rows, summary.scored, summary.truncated, summary.errors) == (4, 4, 1, {})
    assert summary.images_decoded == 3  # the first two rows share an image
    assert summary.distributions["brightness"].mean == pytest.approx(scores[:, 0].mean())
    assert summary.distributions["words"].median == pytest.approx(np.median(scores[:, 1]))
    assert sorted(path.name for path in folder.glob("out.*")) == [f"out.{suffix}", f"out.{suffix}.summary.json"]


def test_encoded_images_are_scored_and_left_out_of_the_output(folder: Path) -> None:
    image = Image.open(folder / "grey" / "1.png").copy()  # a copy has no path
    features = datasets.Features(
        {"image": datasets.Image(), "raw": datasets.Value("binary"), "cand": datasets.Value("string")}
    )
    data = datasets.Dataset.from_dict(
        {"image": [image, None], "raw": [b"1", b"2"], "cand": ["a", "b"]}, features=features
    )
    score_dataset(data, PictureScorer(), folder / "out.parquet")
    first, second = read(folder / "out.parquet")
    assert first["brightness"] == pytest.approx(100 / 255)
    assert "raw" not in first
    assert first["image"] is None  # encoded bytes without a path
    assert second["error"] == "the row has no image in column 'image'"


def test_equal_images_share_one_object_across_chunks(folder: Path) -> None:
    rows = [{"image": f"grey/{number // 10 % 3}.png", "candidate": f"c {number}"} for number in range(60)]
    scorer = PictureScorer()
    data = write_lines(folder / "data.jsonl", rows)
    summary = score_dataset(data, scorer, folder / "out.jsonl", chunk_rows=7, batch_size=5)
    assert summary.images_decoded == 6  # runs of ten rows stay whole although chunks have seven
    for start in range(0, 60, 10):
        assert len({id(sample.image) for sample in scorer.samples[start : start + 10]}) == 1
    assert [row["candidate"] for row in read(folder / "out.jsonl")] == [row["candidate"] for row in rows]
    assert set(scorer.batch_sizes) == {5}


def test_image_root_replaces_the_folder_of_the_file(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    data = write_lines(folder / "elsewhere" / "data.jsonl", ROWS[:1])
    assert score_dataset(data, PictureScorer(), folder / "a.jsonl").errors == {"image": 1}
    assert score_dataset(data, PictureScorer(), folder / "b.jsonl", image_root=folder).errors == {}


def test_metric_without_images_opens_none(folder: Path) -> None:
    data = write_lines(folder / "data.jsonl", [{"image": "missing.png", "candidate": "two words"}])
    summary = score_dataset(data, "length", folder / "out.jsonl")
    assert (summary.scored, summary.images_decoded) == (1, 0)
    assert summary.columns["image"] is None


@pytest.mark.parametrize("value", [None, [], "absent"])
def test_no_references_are_no_error(value: Any, folder: Path) -> None:
    row = {"image": "grey/0.png", "candidate": "a b"} | ({} if value == "absent" else {"references": value})
    data = write_lines(folder / "data.jsonl", [{**ROWS[0]}, row])
    score_dataset(data, PictureScorer(), folder / "out.jsonl")
    assert [(row["words"], row["error"]) for row in read(folder / "out.jsonl")] == [(5, None), (2, None)]


def test_references_of_csv_are_a_json_list_or_one_text(folder: Path) -> None:
    (folder / "data.csv").write_text('cand,refs\na b,a b c\na b,"[""a b"", ""z""]"\na b,\na b,[broken\n')
    score_dataset(folder / "data.csv", "unigram", folder / "out.jsonl")
    rows = read(folder / "out.jsonl")
    assert [row["f1"] for row in rows] == [pytest.approx(0.8), 1.0, None, 0.0]
    assert "needs references" in rows[2]["error"]


def test_bad_references_are_the_rows_error(folder: Path) -> None:
    rows = [{"candidate": "a", "references": [value]} for value in ("a", 5, " ")] + [
        {"candidate": "a", "references": 5},
        {"candidate": "a", "references": ["a", "", None]},
    ]
    summary = score_dataset(write_lines(folder / "data.jsonl", rows), "unigram", folder / "out.jsonl")
    assert summary.errors == {"references": 3}
    errors = [row["error"] for row in read(folder / "out.jsonl")]
    assert errors[0] is None
    assert "references[0] must be a string, got int: 5" in errors[1]
    assert "needs references" in errors[2]
    assert errors[4] is None, "blank references are left out"


def test_documented_column_names_win_over_synonyms(folder: Path) -> None:
    row = {"caption": "one", "candidate": "one two", "file_name": "x.png", "image": "grey/0.png", "refs": ["r"]}
    summary = score_dataset(write_lines(folder / "data.jsonl", [row]), PictureScorer(), folder / "out.jsonl")
    assert summary.columns == {"candidate": "candidate", "image": "image", "references": "refs"}


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"text": "a", "image": "i"}, {}, "none is named candidate or cand or caption. The columns are: text, image"),
        ({"cand": "a", "caption": "b", "image": "i"}, {}, "any of cand, caption: choose one with --candidate-column"),
        ({"cand": "a"}, {}, "metric 'picture' needs a column with the image"),
        (
            {"cand": "a", "file_name": "i", "image_path": "i"},
            {},
            "file_name, image_path: choose one with --image-column",
        ),
        ({"text": "a", "image": "i"}, {"candidate_column": "txt"}, "no column. Did you mean 'text'?"),
        ({"cand": "a", "image": "i"}, {"references_column": "golds"}, "--references-column names 'golds'"),
        ({"cand": "a", "image": "i", "reward": 1}, {}, "has a column 'reward' already"),
    ],
)
def test_wrong_columns_name_those_there_are(
    row: dict[str, Any], options: dict[str, str], message: str, folder: Path
) -> None:
    data = write_lines(folder / "data.jsonl", [row])
    with pytest.raises(DataError) as caught:
        score_dataset(data, PictureScorer(), folder / "out.jsonl", **options)
    assert message in str(caught.value)
    assert not list(folder.glob("out*"))


def test_metric_that_needs_references_says_so_before_scoring(folder: Path) -> None:
    with pytest.raises(DataError, match="metric 'unigram' needs a column with the references"):
        score_dataset(write_lines(folder / "data.jsonl", [{"cand": "a"}]), "unigram", folder / "out.jsonl")


def test_prefix_lets_two_metrics_score_one_file(folder: Path) -> None:
    rows = [{"candidate": "a b c", "references": ["a b c"]}]
    score_dataset(write_lines(folder / "data.jsonl", rows), "length", folder / "one.jsonl")
    score_dataset(folder / "one.jsonl", "unigram", folder / "two.parquet", prefix="uni_")
    (row,) = read(folder / "two.parquet")
    assert (row["length"], row["reward"], row["uni_f1"], row["uni_reward"], row["uni_error"]) == (
        3.0,
        3.0,
        1.0,
        1.0,
        None,
    )


@pytest.mark.parametrize(
    "weights", [{"bright": float("nan")}, {"bogus": 1.0}, {"words": 1.0, "bright": -1.0}, {"bright": 0.0}]
)
def test_bad_weights_are_found_first(weights: dict[str, float], folder: Path) -> None:
    with pytest.raises(WeightsError):
        score_dataset(folder / "absent.jsonl", PictureScorer(), folder / "out.jsonl", weights=weights)


def test_parquet_keeps_the_types_of_its_columns(folder: Path) -> None:
    table = pa.table(
        {
            "when": pa.array([datetime(2024, 5, 1)], pa.timestamp("ns")),
            "small": pa.array([3], pa.int8()),
            "names": pa.array(["x"], pa.dictionary(pa.int32(), pa.string())),
            "candidate": ["a b"],
        }
    )
    pq.write_table(table, folder / "data.parquet")
    score_dataset(folder / "data.parquet", "length", folder / "out.parquet")
    written = pq.read_table(folder / "out.parquet")
    assert written.schema.types[:4] == table.schema.types
    assert written.select(table.column_names).equals(table)
    assert written.schema.names[4:] == ["length", "reward", "truncated", "error"]


def test_untyped_rows_get_the_narrowest_types(folder: Path) -> None:
    rows = [
        {"candidate": "a", "n": 1, "mix": 1, "nested": {"x": 1}},
        {"candidate": "b", "n": 2.5, "mix": "text", "late": [1]},
    ]
    score_dataset(write_lines(folder / "data.jsonl", rows), "length", folder / "out.parquet")
    first, second = read(folder / "out.parquet")
    assert (first["n"], first["mix"], first["nested"], first["late"]) == (1.0, "1", {"x": 1}, None)
    assert (second["n"], second["mix"], second["nested"], second["late"]) == (2.5, "text", None, [1])


def test_jsonl_output_is_strict_json(folder: Path) -> None:
    table = pa.table({"candidate": ["a"], "loss": [float("nan")], "when": pa.array([datetime(2024, 5, 1)])})
    pq.write_table(table, folder / "data.parquet")
    score_dataset(folder / "data.parquet", "length", folder / "out.jsonl")
    (line,) = (folder / "out.jsonl").read_text().splitlines()
    row = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (row["loss"], row["when"]) == (None, "2024-05-01 00:00:00")


def test_rerank_orders_candidates(folder: Path) -> None:
    rows = [
        {"image": "grey/0.png", "candidates": ["b", "a b c", "fail", "x y z", ""], "tag": 1},
        {"image": "grey/1.png", "candidates": ["only one"], "tag": 2},
        {"image": "grey/1.png", "candidates": [], "tag": 3},
        {"image": "grey/9.png", "candidates": ["a"], "tag": 4},
        {"image": "grey/1.png", "candidates": ["fail 1", "fail 2"], "tag": 5},
    ]
    data = write_lines(folder / "data.jsonl", rows)
    for name in ("best.jsonl", "best.parquet"):
        summary = rerank_dataset(data, PictureScorer(), folder / name, weights={"words": 1})
        first, second, third, fourth, fifth = read(folder / name)
        assert first["candidates"] == ["a b c", "x y z", "b", "fail", ""]  # equal rewards keep their order
        assert (first["order"], first["best"]) == ([1, 3, 0, 2, 4], "a b c")
        assert (first["rewards"], first["words"]) == ([3, 3, 1, None, None], [3, 3, 1, None, None])
        assert first["error"].startswith("candidate 3: the caption says fail; candidate 5: candidate is empty")
        assert (second["best"], second["order"], second["error"], second["tag"]) == ("only one", [0], None, 2)
        assert "must hold a list of captions, got []" in third["error"]
        assert "does not exist" in fourth["error"]
        assert (fourth["best"], fifth["best"], fifth["rewards"]) == (None, None, [None, None])
        assert (summary.rows, summary.captions, summary.scored) == (5, 8, 4)
        assert summary.errors == {"metric": 3, "candidate": 2, "image": 1}


def test_rerank_reads_lists_from_csv_and_parquet(folder: Path) -> None:
    (folder / "data.csv").write_text('candidates\n"[""a"", ""a b""]"\nno list\n')
    rerank_dataset(folder / "data.csv", "length", folder / "a.jsonl")
    good, bad = read(folder / "a.jsonl")
    assert (good["best"], good["candidates"], bad["best"]) == ("a b", ["a b", "a"], None)
    pq.write_table(pa.table({"id": [1], "captions": [["a", "a b"]]}), folder / "data.parquet")
    rerank_dataset(folder / "data.parquet", "length", folder / "b.parquet")
    (row,) = read(folder / "b.parquet")
    assert (row["id"], row["captions"], row["order"]) == (1, ["a b", "a"], [1, 0])
