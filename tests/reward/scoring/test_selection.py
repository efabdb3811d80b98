"""Which rows are written: the best, those above a reward, each caption of an image once; all rows are scored first."""

import pytest

from reward.errors import ConfigError, OutputError
from reward.scoring import rerank_dataset, score_dataset
from reward.scoring.summary import Selection
from tests.reward.scoring.small_data import Stop, make_data, save_greys, scored
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import PictureScorer

REWARDS = [0.4, None, 0.9, 0.4, -1.0, 0.9]
IDENTITIES = ["a", "b", "c", "a", "d", "e"]


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        ({"min_reward": 0.4}, [0, 2, 3, 5]),
        ({"dedupe": True}, [0, 2, 4, 5]),
        ({"top": 3}, [0, 2, 5]),  # of equal rewards the first
        ({"top": "40%"}, [2, 5]),  # of five with a reward
        ({"top": "1%"}, [2]),
        ({"top": 100}, [0, 2, 3, 4, 5]),
        ({"top": "50%", "min_reward": 0.4, "dedupe": True}, [2, 5]),  # of three
        ({"min_reward": 2}, []),
    ],
)
def test_rows_are_selected_by_reward(selection, rows):
    assert Selection(**selection).rows(REWARDS, IDENTITIES).nonzero()[0].tolist() == rows


@pytest.mark.parametrize("top", ["0", "0%", "101%", "1.5", "many", "-3"])
def test_a_top_that_is_no_number_of_rows_is_refused(top):
    with pytest.raises(ConfigError, match="a number of rows or a share, as in 1000 or 30%, got"):
        Selection(top=top)


IMAGES = ["0.png", "0.png", "1.png", "0.png"]
CAPTIONS = ["two words", "one", "two words", "two words"]


@pytest.mark.parametrize(
    ("metric", "ending"), [("length", "jsonl"), ("picture", "parquet"), ("picture", "csv"), ("length", "json")]
)
def test_equal_captions_count_by_their_image_also_for_metrics_that_read_none(metric, ending, tmp_path):
    save_greys(tmp_path)
    rows = [{"n": n, "image": IMAGES[n], "caption": CAPTIONS[n]} for n in range(4)]
    scorer = "length" if metric == "length" else PictureScorer()
    data, output = write_lines(tmp_path / "data.jsonl", rows), tmp_path / f"out.{ending}"
    summary = score_dataset(data, scorer, output, dedupe=True)
    assert (summary.rows, summary.scored, summary.selected) == (4, 4, 3)
    again, _ = scored(output, tmp_path / "again.jsonl", prefix="again_")
    assert [int(row["n"]) for row in again] == [0, 1, 2]


@pytest.mark.parametrize(
    ("rows", "written"),
    [
        ([{"candidates": ["a", "a b"]}, {"candidates": ["a b c"]}, {"candidates": ["a"]}], ["a b c", "a b"]),
        ([{"image": n // 2, "candidate": "a " * n} for n in range(1, 5)], [1, 1]),
    ],
)
def test_reranked_rows_count_by_their_best_candidate(rows, written, tmp_path):
    out, _ = scored(rows, tmp_path / "out.jsonl", task=rerank_dataset, top=2)
    assert sorted((row.get("best") or row["rank"] for row in out), key=str) == sorted(written, key=str)


def test_a_stopped_run_goes_on_with_another_selection_and_a_finished_one_is_refused(tmp_path):
    data, output = make_data(tmp_path, 9), tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError, match="out of memory"):
        score_dataset(data, Stop(2), output, part_rows=3, top="20%")
    rows, summary = scored(data, output, PictureScorer(), top="50%")
    whole, _ = scored(data, tmp_path / "whole.jsonl", PictureScorer())
    rewards = sorted(row["reward"] for row in whole if row["reward"] is not None)
    assert summary.resumed_rows == 6
    assert sorted(row["reward"] for row in rows) == rewards[-len(rows) :]
    assert len(rows) == summary.selected == round(len(rewards) / 2)
    with pytest.raises(OutputError, match="exists already and is not of this run"):
        score_dataset(data, PictureScorer(), output)
