"""BatchScorer: the same scores as score_dataset, for every kind of batch, in every process."""

import multiprocessing
import pickle

import datasets
import numpy as np
import pyarrow as pa
import pytest

from reward.errors import CapRewardError
from reward.scoring import BatchScorer
from tests.reward.scoring.small_data import save_greys, scored
from tests.toys.picture_scorer import PictureScorer

ADDED = ["brightness", "words", "reward", "truncated", "error"]
ROWS = [  # good and bad ones; those of an image do not follow each other
    {"id": 0, "candidate": "a red star", "image": "0.png", "references": ["a"]},
    {"id": 1, "candidate": "", "image": "1.png", "references": None},
    {"id": 2, "candidate": "fail here", "image": "2.png", "references": []},
    {"id": 3, "candidate": "two boxes", "image": "0.png", "references": ["b", "c"]},
    {"id": 4, "candidate": "a b c", "image": "none.png", "references": ["d"]},
]


def batch_of(kind):
    if kind == "arrow":
        return pa.Table.from_pylist(ROWS)
    batch = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    if kind == "numpy":  # as engines give columns: arrays of objects, in which lists are arrays, too
        for name, cells in batch.items():
            batch[name] = np.empty(len(cells), object)
            batch[name][:] = [np.array(cell, object) if isinstance(cell, list) and cell else cell for cell in cells]
    return batch


@pytest.mark.parametrize("scorer", [PictureScorer(), [PictureScorer(), "unigram"]], ids=["one", "several"])
@pytest.mark.parametrize("kind", ["arrow", "numpy", "lists"])
def test_every_kind_of_batch_gets_the_rows_of_score_dataset(kind, scorer, tmp_path):
    save_greys(tmp_path)
    expected, _ = scored(ROWS, tmp_path / "out.jsonl", scorer, prefix="p_")
    by_batch, batch = BatchScorer(scorer, prefix="p_", image_root=tmp_path), batch_of(kind)
    result = by_batch(batch)
    assert type(result) is type(batch)
    columns = result.to_pydict() if kind == "arrow" else result
    assert list(columns) == list(expected[0])
    for name in set(columns) - set(ROWS[0]):
        got = [None if each is None or each != each else each for each in columns[name]]
        assert got == [row[name] for row in expected]
    assert by_batch.images_decoded == 3  # 0.png, 1.png and 2.png once each


def test_arrays_of_pixels_that_print_alike_are_different_images():
    arrays = np.zeros((2, 100, 100, 3), np.uint8)
    arrays[1, 50, 50:] = 255  # numpy prints the corners only
    result = BatchScorer(PictureScorer(), added_only=True)({"image": arrays, "caption": np.array(["a", "b"])})
    assert result["brightness"][0] == 0 < result["brightness"][1]


def test_datasets_map_decodes_the_images_of_the_scored_column(tmp_path):
    save_greys(tmp_path)
    rows = {"image": [str(tmp_path / "0.png")] * 2 + [str(tmp_path / "1.png")], "caption": ["a", "a b", "c"]}
    data = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
    result = data.map(BatchScorer(PictureScorer(), added_only=True), batched=True, batch_size=2)
    assert result["words"][:] == [1, 2, 1]
    assert result.column_names == ["image", "caption", *ADDED]
    assert result.features["truncated"].dtype == "bool"


def score_in_another_process(pickled):
    return pickle.loads(pickled)({"caption": ["a b c", "a"]})["length"]


@pytest.mark.slow
def test_a_scorer_goes_to_another_process_and_is_loaded_there_once():
    scorer = BatchScorer("length", "embedded")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(score_in_another_process, [pickle.dumps(scorer)]) == [3, 1]
    assert pickle.loads(pickle.dumps(scorer)).loaded() is scorer.loaded()


@pytest.mark.parametrize(
    ("metric", "batch", "message"),
    [
        ("cider", {}, "weighs words by a corpus, which one batch is not"),
        ("length", [{"caption": "a"}], "dict of numpy arrays or of lists, got list"),
        ("length", {"said": ["a"]}, "no column|caption"),
        ("unigram", {"candidate": ["a"], "references": [["a"], ["b"]]}, "of one length: candidate has 1"),
        ("length", {"caption": ["a"], "error": ["b"]}, "has a column 'error' already"),
    ],
)
def test_what_cannot_be_scored_is_said_at_once(metric, batch, message):
    with pytest.raises(CapRewardError, match=message):
        BatchScorer(metric)(batch)
