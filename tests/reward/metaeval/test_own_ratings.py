"""`bench ratings.csv`: own ratings as a benchmark, with the coefficients of scipy and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score

from reward.errors import DataError
from reward.metaeval.bench import BenchTable, run_bench
from reward.metaeval.benchmarks.own_ratings import load_ratings
from reward.registry import MetricSource

WORDS = [3, 5, 1, 2, 6, 4, 7, 2]
RATINGS = [2, 4, 1, 3, 5, 3, 3, 1]
LENGTH = MetricSource("length")


def table_of(path: Path, *metrics: MetricSource, **options: Any) -> BenchTable:
    return run_bench([(load_ratings(path, **options), None)], metrics or [LENGTH], resamples=20)[0]


def written(folder: Path, name: str = "ratings.csv", **columns: Any) -> Path:
    captions = [" ".join(["star"] * count) for count in WORDS]
    frame = pd.DataFrame({"image": [f"{row // 2}.png" for row in range(8)], "caption": captions, **columns})
    if name.endswith(".csv"):
        frame.to_csv(folder / name, index=False)
    else:
        frame.to_json(folder / name, orient="records", lines=True)
    return folder / name


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"human_score": RATINGS}, {}),
        ({"rating_1": [each - 1 for each in RATINGS], "rating_2": [each + 1 for each in RATINGS]}, {}),
        ({"anna": RATINGS, "ben": ["n/a", "-", "NA", *RATINGS[3:]]}, {"rating_columns": ["anna,ben"]}),
        ({"rating": [[each, each] for each in RATINGS]}, {}),
        ({"rating": [f"{each} Stars" for each in RATINGS]}, {"rating_map": {f"{n} stars": n for n in range(1, 6)}}),
    ],
)
@pytest.mark.parametrize("name", ["ratings.csv", "ratings.jsonl"])
def test_ratings_come_in_one_column_or_several_as_numbers_or_words(
    tmp_path: Path, name: str, columns: dict[str, Any], options: dict[str, Any]
) -> None:
    own = load_ratings(written(tmp_path, name, **columns), **options)
    assert [float(np.mean(each["overall"])) for each in own.rows["ratings"]] == RATINGS


def test_aspects_and_further_cells_that_a_metric_needs_are_kept(tmp_path: Path) -> None:
    aspects = [{"fluency": each, "relevance": [6 - each, 6 - each]} for each in RATINGS]
    path = written(tmp_path, "r.jsonl", ratings=aspects, rubric=[[f"It names {n} stars."] for n in WORDS])
    assert table_of(path).columns == ("fluency", "relevance", "mean")
    assert load_ratings(path).rows["image_id"].nunique() == 4
    assert next(each.columns["rubric"] for each in load_ratings(path).samples() if each) == ["It names 3 stars."]


def test_labels_have_auroc_and_average_precision_too(tmp_path: Path) -> None:
    labels = ["no", "yes", "no", "no", "yes", "no", "yes", "no"]
    evaluation = table_of(written(tmp_path, label=labels)).rows[0].evaluation
    assert evaluation is not None
    truth = [label == "yes" for label in labels]
    found = {name: each.value for name, each in evaluation.estimates.items()}
    assert list(found) == ["AUROC", "AP", "tau-c", "tau-b", "spearman", "pearson"]
    expected = [roc_auc_score(truth, WORDS), average_precision_score(truth, WORDS)]
    assert [found["AUROC"], found["AP"]] == pytest.approx(expected)
    assert [found["tau-b"], found["spearman"]] == pytest.approx(
        [kendalltau(WORDS, truth)[0], spearmanr(WORDS, truth)[0]]
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rating": ["good", "poor", "3", "1"] * 2}, r'holds words.*--rating-map "good=NUMBER,poor=NUMBER"'),
        (
            {"caption_a": ["A."] * 8, "caption_b": ["B."] * 8, "winner": ["first", "second"] * 4},
            r"column 'winner' .* not caption_a, caption_b or tie: .*above 0 where caption_a is better.*first=NUMBER",
        ),
        ({}, r"none is named rating.* The columns are: image, caption.*--rating-column"),
    ],
)
def test_what_is_no_rating_is_told_with_what_to_type(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_ratings(written(tmp_path, **columns))


@pytest.mark.parametrize(
    ("names", "given", "options"),
    [
        (("caption_a", "caption_b"), ["A", "B", "tie", "caption_b"], {}),
        (("caption_1", "caption_2"), [1, 2, "both", "2"], {}),
        (("text a", "text b"), [0, 1, "Same", "b"], {}),
        (
            ("caption_a", "caption_b"),
            ["A is better", "B wins", "=", "B wins"],
            {"a is better": 1, "b wins": -2, "=": 0},
        ),
    ],
)
def test_two_captions_are_compared(tmp_path: Path, names: Any, given: list[Any], options: dict[str, float]) -> None:
    texts = (["A star.", "Star.", "A.", "A."], ["Star.", "A star.", "B.", "A star."])
    pd.DataFrame({**dict(zip(names, texts, strict=True)), "winner": given}).to_csv(tmp_path / "pairs.csv", index=False)
    table = table_of(tmp_path / "pairs.csv", rating_map=options)
    np.testing.assert_array_equal(table.benchmark.rows["label"], [0, 1, np.nan, 1])
    assert table.rows[0].evaluation.estimates["overall"].value == 1  # type: ignore[union-attr]


def test_chosen_and_rejected_captions_need_no_rating(tmp_path: Path) -> None:
    texts = {"chosen": ["A star.", "A red star."], "rejected": ["Star.", "A big red star."]}
    pd.DataFrame(texts).to_csv(tmp_path / "p.csv", index=False)
    assert table_of(tmp_path / "p.csv").rows[0].evaluation.estimates["overall"].value == 0.5  # type: ignore[union-attr]


@pytest.mark.parametrize("ratings", [RATINGS, [float(each > 2) for each in RATINGS]])
def test_a_constant_score_has_no_figures_and_is_last(tmp_path: Path, ratings: list[float]) -> None:
    path = written(tmp_path, rating=ratings, same=[0.5] * 8, reverse=[-each for each in ratings])
    table = table_of(path, *(MetricSource(name, is_column=True) for name in ("same", "reverse")), LENGTH)
    assert [row.metric.name for row in table.rows] == ["length", "reverse", "same"]
    assert np.isnan([each.value for each in table.rows[-1].evaluation.estimates.values()]).all()  # type: ignore[union-attr]
    assert table.rows[-1].p is None
