"""Data sets of `datasets` are scored as their rows are: with their transform, and the columns of their format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, Image
from PIL import Image as PILImage
from PIL import ImageOps

from reward.errors import DataError
from reward.scoring import rerank_dataset, score_dataset
from tests.reward.scoring.small_data import read_rows
from tests.toys.picture_scorer import PictureScorer

pytestmark = pytest.mark.slow

CAPTIONS = ["A red star. More.", "A star.", "Broken."]
Batch = dict[str, list[Any]]


def shorter(batch: Batch) -> Batch:
    if batch["text"] == ["Broken."]:
        raise ValueError("no such text")
    return {"caption": [text.split(".")[0] for text in batch["text"]], "score": batch["number"]}


def inverted(batch: Batch) -> Batch:
    return {**batch, "image": [ImageOps.invert(image) for image in batch["image"]]}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_what_a_transform_gives_is_scored(tmp_path: Path, suffix: str) -> None:
    data = Dataset.from_dict({"text": CAPTIONS, "number": [1, 2, 3]})
    output = tmp_path / f"scores{suffix}"
    summary = score_dataset(data.with_transform(shorter), "length", output)
    rows = read_rows(output)
    assert [(row["caption"], row["score"], row["length"]) for row in rows[:2]] == [
        ("A red star", 1, 3),
        ("A star", 2, 2),
    ]
    assert "ValueError: no such text" in rows[2]["error"]
    assert (summary.scored, summary.errors) == (2, {"row": 1})
    assert score_dataset(data.with_transform(shorter), "length", output).scored == 2  # the same: finished already
    score_dataset(data.select([2, 0]).with_transform(shorter), "length", tmp_path / f"turned{suffix}")
    assert [row["length"] for row in read_rows(tmp_path / f"turned{suffix}")] == [None, 3]
    with pytest.raises(DataError, match="no such text"):
        score_dataset(data.select([2]).with_transform(shorter), "length", tmp_path / "none.jsonl")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_pictures_of_a_transform_are_scored_and_not_written(tmp_path: Path, suffix: str) -> None:
    greys = [PILImage.new("RGB", (4, 4), (grey,) * 3) for grey in (10, 250, 10)]
    data = Dataset.from_dict({"image": greys, "candidate": ["a b", "c", "d"]}).cast_column("image", Image())
    output = tmp_path / f"scores{suffix}"
    score_dataset(data.with_transform(inverted), PictureScorer(), output)
    rows = read_rows(output)
    assert [round(255 * row["brightness"]) for row in rows] == [245, 5, 245]
    assert "image" not in rows[0]
    rerank_dataset(data.with_transform(inverted), "length", tmp_path / "ranks.jsonl")
    assert [row["rank"] for row in read_rows(tmp_path / "ranks.jsonl")] == [1, 1, 2]


def test_a_format_of_some_columns_hides_the_others(tmp_path: Path) -> None:
    data = Dataset.from_dict({"caption": ["A star."], "refs": [["A red star."]]})
    score_dataset(data.with_format("numpy", columns=["caption"]), "length", tmp_path / "some.jsonl")
    assert "refs" not in read_rows(tmp_path / "some.jsonl")[0]
    all_of_them = data.with_format("numpy", columns=["caption"], output_all_columns=True)
    score_dataset(all_of_them, "length", tmp_path / "all.jsonl")
    assert read_rows(tmp_path / "all.jsonl")[0]["refs"] == ["A red star."]
