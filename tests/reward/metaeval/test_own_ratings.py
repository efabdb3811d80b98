"""`bench ratings.csv`: own ratings as a benchmark, with the coefficients of scipy and scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import average_precision_score, roc_auc_score

from reward.errors import DataError
from reward.metaeval.bench import run_bench
from reward.metaeval.benchmarks.own_ratings import load_ratings
from reward.registry import MetricSource

WORDS = [3, 5, 1, 2, 6, 4, 7, 2]
RATINGS = [2, 4, 1, 3, 5, 3, 3, 1]
LENGTH = MetricSource("length")


def table_of(path, *metrics, **options):
    return run_bench([(load_ratings(path, **options), None)], metrics or [LENGTH], resamples=20)[0]


def written(folder, name="ratings.csv", **columns):
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
        ({"annotator_1": [3, 1] * 4, "score_1": RATINGS[::-1], "judge_1": [1] * 8, "rating": RATINGS}, {}),
        ({"anna": RATINGS, "ben": ["n/a", "-", "NA", *RATINGS[3:]]}, {"rating_columns": ["anna,ben"]}),
        ({"rating": [[each, each] for each in RATINGS]}, {}),
        ({"rating": [f"{each},0" for each in RATINGS]}, {}),  # decimal commas
        ({"rating": [f"{each} Stars" for each in RATINGS]}, {"rating_map": {f"{n} stars": n for n in range(1, 6)}}),
    ],
)
@pytest.mark.parametrize("name", ["ratings.csv", "ratings.jsonl"])
def test_ratings_come_in_one_column_or_several_as_numbers_or_words(tmp_path, name, columns, options):
    own = load_ratings(written(tmp_path, name, **columns), **options)
    assert [float(np.mean(each["overall"])) for each in own.rows["ratings"]] == RATINGS


def test_aspects_and_further_cells_that_a_metric_needs_are_kept(tmp_path):
    aspects = [{"fluency": each, "relevance": [6 - each, 6 - each]} for each in RATINGS]
    path = written(tmp_path, "r.jsonl", ratings=aspects, rubric=[[f"It names {n} stars."] for n in WORDS])
    assert table_of(path).columns == ("fluency", "relevance", "mean")
    assert load_ratings(path).rows["image_id"].nunique() == 4
    assert next(each.columns["rubric"] for each in load_ratings(path).samples() if each) == ["It names 3 stars."]


def test_labels_have_auroc_and_average_precision_too(tmp_path):
    labels = ["no", "yes", "no", "no", "yes", "no", "yes", "no"]
    evaluation = table_of(written(tmp_path, rating=labels)).rows[0].evaluation
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
        ({"rating": ["1,234", "2"] * 4}, "column 'rating' of .*: '1,234' may be a number with a decimal comma or"),
        ({}, r"no column is named rating, .* The columns are: image, caption.*--rating-column A,B,C"),
        *(
            ({f"{name}1": RATINGS, f"{name}2": RATINGS}, r"no column is named rating, ratings or human_score")
            for name in ("annotator_", "score_", "judge_", "rating_", "rater")
        ),
        *(({name: RATINGS}, "no column is named rating") for name in ("label", "score", "winner", "mos", "human")),
        ({"rating": RATINGS, "human_score": RATINGS}, "could be any of rating, human_score: .* --rating-column"),
        (
            {"image": ["0.png"] * 8, "caption": ["A star."] * 8, "rating": RATINGS},
            "8 rated rows of 1 captions, .*COLUMN",
        ),
        (
            {"image": ["0.png"] * 8, "caption": list("aabcdefg"), "worker_id": [*"uvuvuvuv"], "rating": RATINGS},
            "8 rated rows of 7 captions, as where each rater has a row: .*--rater-column worker_id",
        ),
    ],
)
def test_what_is_no_rating_is_told_with_what_to_type(tmp_path, columns, message):
    with pytest.raises(DataError, match=message):
        load_ratings(written(tmp_path, **columns), rating_columns=["winner"] if "caption_a" in columns else [])


def long_table(folder, rows):
    frame = pd.DataFrame(rows, columns=["image", "caption", "who", "rating"])
    frame["seconds"] = range(len(rows))
    frame["length"] = frame["caption"].str.len()
    frame.to_csv(folder / "long.csv", index=False)
    return folder / "long.csv"


def test_a_long_table_has_a_row_for_each_rater_of_a_caption(tmp_path):
    rows = [("1.png", "A star.", "anna", 1), ("1.png", "A star.", "ben", 3), ("2.png", "A dog.", "ben", 2)]
    rows += [("2.png", "A star.", "cleo", 5), ("2.png", "A dog.", "anna", 4), ("1.png", "A star.", "cleo", None)]
    own = load_ratings(long_table(tmp_path, rows), rater_column="who")
    assert [(*item.captions, item.ratings["overall"]) for item in own.rows.itertuples()] == [
        ("A star.", (1, 3)),
        ("A dog.", (4, 2)),  # in the order of the raters
        ("A star.", (5,)),
    ]
    assert own.provenance == (
        "5 ratings in column rating by 3 raters in column who (anna, ben, cleo), of 3 captions in column caption"
    )
    # a number that differs between the rows of a caption is no score of it
    assert own.columns["seconds"][:, 0].tolist() == pytest.approx([np.nan, np.nan, 3], nan_ok=True)
    assert own.columns["length"][:, 0].tolist() == [7, 6, 7]


def test_captions_that_come_again_are_counted(tmp_path):
    rows = [("1.png", text, "anna", 1) for text in ("A star.", "A star.", "A dog.")]
    expected = "3 ratings in column rating, of 3 captions (2 different ones) in column caption"
    assert load_ratings(long_table(tmp_path, rows)).provenance == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("1.png", "A star.", "anna", 1), ("1.png", "A star.", "anna", 3)], "'anna' has rated 'A star.' twice"),
        ([("1.png", "A star.", None, 1)], "a rating of 'A star.' has no rater in 'who'"),
    ],
)
def test_a_long_table_names_a_rater_once_for_each_rating(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        load_ratings(long_table(tmp_path, rows), rater_column="who")


@pytest.mark.parametrize(
    ("names", "rating_map", "ratings"),
    [
        (["1", "5", "3"], {}, [1, 5, 3]),
        (["no", "yes"], {}, [0, 1]),
        (["yes", "no"], {}, [1, 0]),  # their places are 0 and 1
        (["good", "bad"], {"good": 1, "bad": 0}, [1, 0]),  # without the map refused, as in a table
    ],
)
@pytest.mark.parametrize("form", ["dataset", "folder", "parquet", "lists"])
def test_a_class_label_counts_by_its_name(tmp_path, form, names, rating_map, ratings):
    import datasets

    features = {"caption": datasets.Value("string"), "rating": datasets.ClassLabel(names=names)}
    cells = {"caption": [*"abc"][: len(names)], "rating": [*range(len(names))]}
    if form == "lists":
        features["rating"] = datasets.List(features["rating"])
        cells["rating"] = [[place] for place in cells["rating"]]
    data = datasets.Dataset.from_dict(cells, datasets.Features(features))
    if form == "folder":
        data.save_to_disk(str(tmp_path / "saved"))
        data = tmp_path / "saved"
    elif form == "parquet":
        data.to_parquet(str(tmp_path / "rated.parquet"))
        data = tmp_path / "rated.parquet"
    rows = load_ratings(data, rating_map=rating_map).rows
    assert [given["overall"][0] for given in rows["ratings"]] == ratings


@pytest.mark.parametrize(
    ("names", "given", "options"),
    [
        (("caption_a", "caption_b"), ["A", "B", "tie", "caption_b"], {}),
        (("caption_1", "caption_2"), [1, 2, "Tie", "2"], {}),
        (("text a", "text b"), [0, 1, "same", "b"], {"0": 1, "1": -1, "same": 0}),
        (
            ("caption_a", "caption_b"),
            ["A is better", "B wins", "=", "B wins"],
            {"a is better": 1, "b wins": -2, "=": 0},
        ),
    ],
)
def test_two_captions_are_compared(tmp_path, names, given, options):
    texts = (["A star.", "Star.", "A.", "A."], ["Star.", "A star.", "B.", "A star."])
    pd.DataFrame({**dict(zip(names, texts, strict=True)), "winner": given}).to_csv(tmp_path / "pairs.csv", index=False)
    table = table_of(tmp_path / "pairs.csv", rating_map=options, rating_columns=["winner"])
    np.testing.assert_array_equal(table.benchmark.rows["label"], [0, 1, np.nan, 1])
    assert table.rows[0].evaluation.estimates["overall"].value == 1


def test_chosen_and_rejected_captions_need_no_rating(tmp_path):
    texts = {"chosen": ["A star.", "A red star."], "rejected": ["Star.", "A big red star."]}
    pd.DataFrame(texts).to_csv(tmp_path / "p.csv", index=False)
    table = table_of(tmp_path / "p.csv")
    assert table.rows[0].evaluation.estimates["overall"].value == 0.5
    assert table.benchmark.provenance == "2 choices between chosen and rejected"


@pytest.mark.parametrize("ratings", [RATINGS, [float(each > 2) for each in RATINGS]])
def test_a_constant_score_has_no_figures_and_is_last(tmp_path, ratings):
    path = written(tmp_path, rating=ratings, same=[0.5] * 8, reverse=[-each for each in ratings])
    table = table_of(path, *(MetricSource(name, is_column=True) for name in ("same", "reverse")), LENGTH)
    assert [row.metric.name for row in table.rows] == ["length", "reverse", "same"]
    assert np.isnan([each.value for each in table.rows[-1].evaluation.estimates.values()]).all()
    assert table.rows[-1].p is None
