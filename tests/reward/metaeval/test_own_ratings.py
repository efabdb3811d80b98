"""`bench ratings.csv`: own ratings as a benchmark, with the coefficients of scipy and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from reward.errors import DataError
from reward.metaeval.bench import run_bench
from reward.metaeval.benchmarks.own_ratings import load_ratings
from reward.registry import MetricSource

WORDS = [3, 5, 1, 2, 6, 4, 7, 2]
CAPTIONS = [" ".join(["star"] * count) for count in WORDS]
RATINGS = [2, 4, 1, 3, 5, 3, 3, 1]


def table_of(path: Path, **options: Any) -> Any:
    own = load_ratings(path, **options)
    return run_bench([(own, None)], [MetricSource("length")], resamples=20)[0]


def written(folder: Path, name: str = "ratings.csv", **columns: Any) -> Path:
    frame = pd.DataFrame({"image": [f"{row // 2}.png" for row in range(8)], "caption": CAPTIONS, **columns})
    if name.endswith(".csv"):
        frame.to_csv(folder / name, index=False)
    else:
        frame.to_json(folder / name, orient="records", lines=True)
    return folder / name


def test_labels_have_auroc_and_average_precision_too(tmp_path: Path) -> None:
    labels = ["no", "yes", "no", "no", "yes", "no", "yes", "no"]
    found = table_of(written(tmp_path, label=labels)).rows[0].evaluation.estimates
    truth = [label == "yes" for label in labels]
    assert list(found)[:2] == ["AUROC", "AP"]
    assert found["AUROC"].value == pytest.approx(roc_auc_score(truth, WORDS))
    assert found["AP"].value == pytest.approx(average_precision_score(truth, WORDS))
    assert found["tau-b"].value == pytest.approx(stats.kendalltau(WORDS, truth).statistic)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"human_score": RATINGS}, {}),
        ({"mine": RATINGS}, {"rating_columns": ["mine"]}),
        ({"rating_1": [each - 1 for each in RATINGS], "rating_2": [each + 1 for each in RATINGS]}, {}),
        ({"anna": RATINGS, "ben": [*RATINGS[:7], None]}, {"rating_columns": ["anna", "ben"]}),
        ({"anna": RATINGS, "ben": RATINGS}, {"rating_columns": ["anna,ben"]}),
        ({"anna": RATINGS, "ben": ["n/a", "-", "NA", *RATINGS[3:]]}, {"rating_columns": ["anna,ben"]}),
        ({"rating": [[each, each] for each in RATINGS]}, {}),
        ({"scores": [{"human": each} for each in RATINGS]}, {"rating_columns": ["scores.human"]}),
        ({"rating": [f"{each} Stars" for each in RATINGS]}, {"rating_map": {f"{n} stars": n for n in range(1, 6)}}),
    ],
)
@pytest.mark.parametrize("name", ["ratings.csv", "ratings.jsonl"])
def test_ratings_come_in_one_column_or_several_as_numbers_or_words(
    tmp_path: Path, name: str, columns: dict[str, Any], options: dict[str, Any]
) -> None:
    own = load_ratings(written(tmp_path, name, **columns), **options)
    assert [float(np.mean(each["overall"])) for each in own.rows["ratings"]] == RATINGS


def test_further_cells_that_a_metric_needs_are_kept(tmp_path: Path) -> None:
    own = load_ratings(written(tmp_path, "r.jsonl", rating=RATINGS, rubric=[[f"It names {n} stars."] for n in WORDS]))
    assert [sample.columns["rubric"] for sample in own.samples()] == [[f"It names {n} stars."] for n in WORDS]  # type: ignore[union-attr]


def test_aspects_in_one_cell_have_a_column_each(tmp_path: Path) -> None:
    rated = [{"fluency": each, "relevance": [6 - each, 6 - each]} for each in RATINGS]
    table = table_of(written(tmp_path, "ratings.jsonl", ratings=rated))
    assert table.columns == ("fluency", "relevance", "mean")


def test_words_without_a_map_are_told_with_the_line_to_type(tmp_path: Path) -> None:
    path = written(tmp_path, rating=["good", "poor"] * 4)
    with pytest.raises(DataError, match=r'holds words.*--rating-map "good=NUMBER,poor=NUMBER"'):
        load_ratings(path)
    with pytest.raises(DataError, match=r"none is named rating.* The columns are: image, caption.*--rating-column"):
        load_ratings(written(tmp_path))


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (["A", "B", "tie", "caption_b"], {}),
        ([0, 1, "both", "b"], {}),
        (["A is slightly better", "B wins", "Same", "B wins"], {"a is slightly better": 1, "b wins": -2, "same": 0}),
    ],
)
def test_two_captions_are_compared(tmp_path: Path, given: list[Any], options: dict[str, float]) -> None:
    two = {"caption_a": ["A star.", "Star.", "A.", "A."], "caption_b": ["Star.", "A star.", "B.", "A star."]}
    pd.DataFrame({**two, "winner": given}).to_csv(tmp_path / "pairs.csv", index=False)
    table = table_of(tmp_path / "pairs.csv", rating_map=options)
    np.testing.assert_array_equal(table.benchmark.rows["label"], [0, 1, np.nan, 1])
    assert table.rows[0].evaluation.estimates["overall"].value == 1


def test_chosen_and_rejected_captions_need_no_rating(tmp_path: Path) -> None:
    pd.DataFrame({"chosen": ["A star.", "A red star."], "rejected": ["Star.", "A big red star."]}).to_csv(
        tmp_path / "p.csv"
    )
    assert table_of(tmp_path / "p.csv").rows[0].evaluation.estimates["overall"].value == 0.5


@pytest.mark.parametrize("many", [True, False])
def test_a_constant_score_has_no_figures_and_is_last(tmp_path: Path, many: bool) -> None:
    ratings = RATINGS if many else [float(each > 2) for each in RATINGS]
    own = load_ratings(written(tmp_path, rating=ratings, same=[0.5] * 8, reverse=[-each for each in ratings]))
    sources = [MetricSource("same", is_column=True), MetricSource("reverse", is_column=True), MetricSource("length")]
    table = run_bench([(own, None)], sources, resamples=20)[0]
    assert [row.metric.name for row in table.rows] == ["length", "reverse", "same"]
    assert np.isnan([each.value for each in table.rows[-1].evaluation.estimates.values()]).all()  # type: ignore[union-attr]
    assert table.rows[-1].p is None
