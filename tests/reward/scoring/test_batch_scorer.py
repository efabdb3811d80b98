"""BatchScorer: the same scores as score_dataset, for every kind of batch, in every process."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest

from reward.errors import ConfigError, DataError
from reward.scoring import BatchScorer, score_dataset
from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import read_lines
from tests.toys.picture_scorer import PictureScorer

ADDED = ["brightness", "words", "reward", "truncated", "error"]


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """Good and bad rows; those of an image do not follow each other."""
    save_greys(tmp_path)
    captions = ["a red star", "", "fail here", "two boxes", "a b c", "x"]
    images = ["0.png", "1.png", "2.png", "0.png", "none.png", "1.png"]
    references = [["a"], None, [], ["b", "c"], ["d"], ["e"]]
    return [
        {"id": row, "candidate": caption, "image": image, "references": refs}
        for row, (caption, image, refs) in enumerate(zip(captions, images, references, strict=True))
    ]


@pytest.fixture
def expected(rows: list[dict[str, Any]], tmp_path: Path) -> list[dict[str, Any]]:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    score_dataset(data, PictureScorer(), tmp_path / "scores.jsonl", prefix="p_")
    return [{name: row["p_" + name] for name in ADDED} for row in read_lines(tmp_path / "scores.jsonl")]


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("kind", ["arrow", "numpy", "lists"])
def test_every_kind_of_batch_gets_the_scores_of_score_dataset(
    kind: str, rows: list[dict[str, Any]], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    scorer = BatchScorer(PictureScorer(), prefix="p_", image_root=tmp_path)
    batch: Any = columns_of(rows)
    if kind == "arrow":
        batch = pa.Table.from_pylist(rows)
    elif kind == "numpy":
        batch = {name: np.empty(len(rows), object) for name in rows[0]}
        for name, column in batch.items():
            column[:] = [
                np.array(row[name], object) if name == "references" and row[name] else row[name] for row in rows
            ]
    scored = scorer(batch)
    assert type(scored) is type(batch)
    names = scored.column_names if kind == "arrow" else list(scored)
    assert names == [*rows[0], *("p_" + name for name in ADDED)]
    got = scored.to_pylist() if kind == "arrow" else [{n: v[i] for n, v in scored.items()} for i in range(len(rows))]
    for row, wanted in zip(got, expected, strict=True):
        for name, value in wanted.items():
            assert row["p_" + name] == value or (value is None and np.isnan(row["p_" + name]))
    assert scorer.images_decoded == 3  # 0.png, 1.png and 2.png once each


def test_the_source_may_stand_second() -> None:
    assert BatchScorer("length", "embedded")({"caption": ["A red star."]})["length"] == [3]


def test_arrays_of_pixels_that_print_alike_are_different_images() -> None:
    arrays = np.zeros((2, 100, 100, 3), np.uint8)
    arrays[1, 50, 50:] = 255  # numpy prints the corners only
    scored = BatchScorer(PictureScorer(), added_only=True)({"image": arrays, "caption": np.array(["a", "b"])})
    assert scored["brightness"][0] == 0 < scored["brightness"][1]


def test_datasets_map_decodes_the_images_of_the_scored_column(tmp_path: Path) -> None:
    save_greys(tmp_path)
    rows = {"image": [str(tmp_path / "0.png")] * 2 + [str(tmp_path / "1.png")], "caption": ["a", "a b", "c"]}
    data = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    scored = data.map(BatchScorer(PictureScorer(), added_only=True), batched=True, batch_size=2)
    assert scored["words"][:] == [1, 2, 1]
    assert scored.column_names == ["image", "caption", *ADDED]
    assert scored.features["truncated"].dtype == "bool"


def score_in_another_process(pickled: bytes) -> list[float]:
    return pickle.loads(pickled)({"caption": ["a b c", "a"]})["length"]


@pytest.mark.slow
def test_a_scorer_goes_to_another_process_and_is_loaded_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = BatchScorer("length")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(score_in_another_process, [pickle.dumps(scorer)]) == [3, 1]
    assert pickle.loads(pickle.dumps(scorer)).loaded() is scorer.loaded()


def test_what_cannot_be_scored_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="weighs words by a corpus, which one batch is not"):
        BatchScorer("cider")
    with pytest.raises(DataError, match="dict of numpy arrays or of lists, got list"):
        BatchScorer("length")([{"caption": "a"}])
    with pytest.raises(DataError, match=r"no column|caption"):
        BatchScorer("length")({"txt": ["a"]})
    with pytest.raises(DataError, match="of one length: candidate has 1"):
        BatchScorer("unigram")({"candidate": ["a"], "references": [["a"], ["b"]]})
    with pytest.raises(DataError, match="has a column 'error' already"):
        BatchScorer("length")({"caption": ["a"], "error": ["b"]})
