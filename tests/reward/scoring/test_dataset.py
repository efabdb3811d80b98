"""What `score_dataset` and `rerank_dataset` write: the rows of the data in their order, scores, reasons, a summary."""

import json

import datasets
import numpy as np
import pytest

from reward.data.samples import CaptionSample
from reward.errors import DataError
from reward.scoring import rerank_dataset
from tests.reward.scoring.small_data import save_greys, scored
from tests.toys.picture_scorer import PictureScorer


@pytest.fixture
def folder(tmp_path):
    """Three grey images of different brightness, and room for data."""
    return save_greys(tmp_path / "grey").parent


def test_the_output_has_the_rows_of_the_input_and_the_scores_of_the_scorer(folder):
    rows = [
        {"id": 7, "image": "grey/0.png", "candidate": "a red star", "references": ["one star", "red"]},
        {"id": 8, "image": "grey/0.png", "candidate": "ein roter Stern, „schön“ 🌟", "references": []},
        {"id": 9, "image": "grey/1.png", "candidate": "line one\nline two, with a comma", "references": ["x"]},
        {"id": 10, "image": "grey/2.png", "candidate": "word " * 200, "references": ["y"]},
    ]
    scorer, options = PictureScorer(), {"weights": {"bright": 3, "words": 1}, "batch_size": 5, "part_rows": 2}
    got, summary = scored(rows, folder / "out.jsonl", scorer, **options)
    samples = [CaptionSample(row["candidate"], folder / row["image"], row["references"]) for row in rows]
    scores = PictureScorer().score(samples).scores
    assert [row.pop("reward") for row in got] == pytest.approx(scores @ [0.75, 0.25], rel=1e-12)
    assert got == [
        {**row, "brightness": brightness, "words": words, "truncated": row["id"] == 10, "error": None}
        for row, (brightness, words) in zip(rows, scores, strict=True)
    ]
    assert (summary.rows, summary.scored, summary.truncated, summary.errors) == (4, 4, 1, {})
    assert (summary.images_decoded, scorer.batch_sizes) == (3, [5, 5])  # the first two rows share an image
    spread = summary.distributions["words"]
    assert (spread.mean, spread.std) == pytest.approx((scores[:, 1].mean(), np.std(scores[:, 1])))
    assert (spread.min, spread.max) == (scores[:, 1].min(), scores[:, 1].max())
    assert sorted(path.name for path in folder.glob("out.*")) == ["out.jsonl", "out.jsonl.summary.json"]


def test_an_output_without_a_score_does_not_block_the_corrected_run(tmp_path):
    rows, output = [{"caption": None, "other": "a b"}], tmp_path / "out.jsonl"
    assert scored(rows, output)[1].scored == 0
    assert scored(rows, output, candidate_column="other")[1].scored == 1


def test_references_may_be_absent_blank_or_bad(folder):
    given = [{"references": value} for value in (None, [], ["a"], ["a", "", None], [5], 5, [" "])] + [{}]
    rows = [{"image": "grey/0.png", "candidate": "a b", **references} for references in given]
    got, summary = scored(rows, folder / "out.jsonl", PictureScorer())
    assert [row["words"] for row in got] == [2, 2, 3, 3, None, None, 2, 2]
    assert summary.errors == {"references": 2}
    assert summary.examples["references"].startswith("row 5: references[0] must be a string, got int: 5")
    got, _ = scored(rows, folder / "unigram.jsonl", "unigram")
    needs = [row for row, each in enumerate(got) if "needs references" in (each["error"] or "")]
    assert (needs, [row["f1"] is None for row in got].count(False)) == ([0, 1, 6, 7], 2)


def test_references_of_csv_are_a_json_list_or_one_text(tmp_path):
    (tmp_path / "data.csv").write_text('cand,refs\na b,a b c\na b,"[""a b"", ""z""]"\na b,\na b,[broken\n')
    got, _ = scored(tmp_path / "data.csv", tmp_path / "out.jsonl", "unigram")
    assert [row["f1"] for row in got] == [pytest.approx(0.8), 1.0, None, 0.0]


def test_untyped_rows_get_the_narrowest_types_and_json_text_where_there_is_none(tmp_path):
    rows = [
        {"candidate": "a", "n": 1, "mix": 1, "nested": {"x": 1}, "empty": {"y": {}}},
        {"candidate": "b", "n": 2.5, "mix": "text", "late": [1]},
    ]
    (first, second), _ = scored(rows, tmp_path / "out.parquet")
    assert (first["n"], first["mix"], first["nested"], first["late"]) == (1.0, "1", {"x": 1}, None)
    assert (second["n"], second["mix"], second["nested"], second["late"]) == (2.5, "text", None, [1])
    assert (json.loads(first["empty"]), second["empty"]) == ({"y": {}}, None)  # Parquet has no type for no field
    data = datasets.Dataset.from_list([{"candidate": "a", "empty": {"y": {}}}])
    assert json.loads(scored(data, tmp_path / "more.parquet")[0][0]["empty"]) == {"y": {}}


def test_a_metric_that_takes_answers_for_captions_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="metric 'length' does not read the column 'question'"):
        scored([{"question": "What is red?", "candidate": "a star"}], tmp_path / "out.jsonl")


def test_data_sets_have_the_columns_of_their_format_and_a_transform_is_refused(tmp_path):
    data = datasets.Dataset.from_dict({"text": ["A red star.", "A star."], "number": [1, 2]})
    with pytest.raises(DataError, match=r"has a transform .*: apply it once, as data\.with_format\(None\)\.map"):
        scored(data.with_transform(dict), tmp_path / "out.parquet")
    texts = data.rename_column("text", "caption")
    hidden, shown = (texts.with_format("numpy", ["caption"], output_all_columns=all) for all in (False, True))
    assert "number" not in scored(hidden, tmp_path / "some.jsonl")[0][0]
    assert scored(shown, tmp_path / "all.jsonl")[0][0]["number"] == 1


def test_candidates_of_a_row_are_ordered_and_none_is_lost(folder):
    rows = [
        {"image": "grey/0.png", "candidates": ["b", "a b c", "fail", "x y z", ""], "tag": 1},
        {"image": "grey/1.png", "candidates": [], "tag": 2},
        {"image": "grey/9.png", "candidates": ["b", "a c"], "tag": 3},
        {"image": "grey/1.png", "candidates": ["fail 1", "fail 2"], "tag": 4},
    ]
    options = {"task": rerank_dataset, "weights": {"words": 1}}
    (first, second, third, fourth), summary = scored(rows, folder / "best.parquet", PictureScorer(), **options)
    assert first["candidates"] == ["a b c", "x y z", "b", "", "fail"]  # equal rewards keep their order
    assert (first["order"], first["best"], first["tag"]) == ([1, 3, 0, 4, 2], "a b c", 1)
    assert (first["rewards"], first["words"]) == ([3, 3, 1, 0, None], [3, 3, 1, None, None])
    assert first["error"].startswith("candidate 3: the caption says fail; candidate 5: candidate is empty")
    assert "must hold a list of captions, got []" in second["error"]
    assert third["error"].startswith("image file ")
    assert (third["candidates"], third["order"], third["words"]) == (["b", "a c"], [0, 1], [None, None])
    assert (third["best"], fourth["best"], fourth["rewards"]) == (None, None, [None, None])
    assert (summary.rows, summary.captions, summary.scored, summary.distinct) == (4, 9, 4, 9)
    assert summary.errors == {"metric": 3, "candidate": 2, "image": 2}


def test_candidates_of_an_image_or_a_group_compete(folder):
    texts = ["one two", "one", "one two three", "", "one", "two one"]
    rows = [{"id": group, "cand": text} for group, text in zip(["x", "y", "x", "y", None, "x"], texts, strict=True)]
    options = {"task": rerank_dataset, "group_column": "id", "prefix": "p_"}
    got, summary = scored(rows, folder / "out.parquet", part_rows=2, **options)
    assert [row["p_rank"] for row in got] == [2, 1, 1, 2, None, 3]  # a tie keeps the order
    assert [row["p_reward"] for row in got] == [2, 1, 3, 0, None, 2]
    assert [{name: row[name] for name in rows[0]} for row in got] == rows
    assert (summary.rows, summary.captions, summary.scored, summary.groups) == (6, 6, 5, 2)
    assert summary.examples["group"] == "row 5: the row has nothing in column 'id', by which rows are ranked"
    assert scored(rows, folder / "out.parquet", **options)[1].groups == 2  # as it was: nothing is scored again
    rows = [{"image": f"grey/{number % 2}.png", "caption": "word " * number} for number in (1, 2, 3)]
    got, summary = scored(rows, folder / "images.jsonl", PictureScorer(), task=rerank_dataset)
    assert ([row["rank"] for row in got], summary.columns["group"]) == ([2, 1, 1], "image")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", "a b"], [2, 1]),
        ([["a"], ["b c", "d"], "e" * 90], ["a", "b c", None]),
        (['["a", "a b"]', "no list"], ["a b", None]),
    ],
)
def test_the_type_of_the_column_tells_what_competes(values, expected, tmp_path):
    rows = [{"pic": "i.png", "caption": "x", "own": value} for value in values]
    options = {"image_column": "pic", "candidates_column": "own", "task": rerank_dataset}
    got, _ = scored(rows, tmp_path / "out.jsonl", **options)
    assert [row.get("rank", row.get("best")) for row in got] == expected
