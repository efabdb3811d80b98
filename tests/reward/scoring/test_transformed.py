"""Data sets of `datasets` are scored as their rows are: with their transform, and the columns of their format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, Image
from PIL import Image as PILImage
from PIL import ImageOps

from reward.errors import DataError
from reward.scoring import rerank_dataset
from tests.reward.scoring.small_data import scored
from tests.toys.picture_scorer import PictureScorer

Batch = dict[str, list[Any]]


def shorter(batch: Batch) -> Batch:
    if batch["text"] == ["Broken."]:
        raise ValueError("no such text")
    return {"caption": [text.split(".")[0] for text in batch["text"]], "score": batch["number"]}


def inverted(batch: Batch) -> Batch:
    return {**batch, "image": [ImageOps.invert(image) for image in batch["image"]]}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_what_a_transform_gives_is_scored(tmp_path: Path, suffix: str) -> None:
    data = Dataset.from_dict({"text": ["A red star. More.", "A star.", "Broken."], "number": [1, 2, 3]})
    (first, _, broken), summary = scored(data.with_transform(shorter), tmp_path / f"scores.{suffix}")
    assert (first["caption"], first["score"], first["length"]) == ("A red star", 1, 3)
    assert "ValueError: no such text" in broken["error"]
    assert (summary.scored, summary.errors) == (2, {"row": 1})
    assert scored(data.with_transform(shorter), tmp_path / f"scores.{suffix}")[1].already_done
    with pytest.raises(DataError, match="no such text"):
        scored(data.select([2]).with_transform(shorter), tmp_path / "none.jsonl")


def test_pictures_of_a_transform_are_scored_and_not_written(tmp_path: Path) -> None:
    greys = [PILImage.new("RGB", (4, 4), (grey,) * 3) for grey in (10, 250, 10)]
    data = Dataset.from_dict({"image": greys, "candidate": ["a b", "c", "d"]}).cast_column("image", Image())
    rows, _ = scored(data.with_transform(inverted), tmp_path / "scores.parquet", PictureScorer(), task=rerank_dataset)
    assert [round(255 * row["brightness"]) for row in rows] == [245, 5, 245]
    assert [row["rank"] for row in rows] == [1, 1, 2]
    assert "image" not in rows[0]


def test_a_format_of_some_columns_hides_the_others(tmp_path: Path) -> None:
    data = Dataset.from_dict({"caption": ["A star."], "refs": [["A red star."]]})
    hidden, shown = (data.with_format("numpy", columns=["caption"], output_all_columns=all) for all in (False, True))
    assert "refs" not in scored(hidden, tmp_path / "some.jsonl")[0][0]
    assert scored(shown, tmp_path / "all.jsonl")[0][0]["refs"] == ["A red star."]
