"""VICR from its table: a column a rater, and a column that says to which part a row belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import RatedCaption, load_benchmark

HEAD = "image,caption,subset,num_ratings,ratings,rating_2,rating_3\n"
ROWS = (
    "http://x.org/val2014/1.jpg,a dog,test,3,4,3,5\n"
    'http://x.org/val2014/2.jpg,"a cat, too",train,2,1,2,\n'
    "3.jpg,a bird,test,1,,2,\n"
    "4.jpg,nobody,test,0,,,\n"
)


@pytest.mark.parametrize("name", ["vicr.csv", "VICR_Sample250.csv"])
def test_parts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(HEAD + ROWS)
    data = tmp_path if name == "vicr.csv" else path
    found = load_benchmark("vicr", data)
    summary = [(i.image_id, i.candidate, i.ratings["overall"]) for i in found.items if isinstance(i, RatedCaption)]
    assert summary == [("1.jpg", "a dog", (4, 3, 5)), ("3.jpg", "a bird", (2,))]
    assert [item.image for item in found.items if isinstance(item, RatedCaption)] == [
        tmp_path / "1.jpg",
        tmp_path / "3.jpg",
    ]
    (train,) = load_benchmark("vicr", data, part="train").items
    assert isinstance(train, RatedCaption)
    assert train.ratings == {"overall": (1, 2)}
    with pytest.raises(DataError, match="holds nothing to score"):
        load_benchmark("vicr", data, part="val")
    (tmp_path / "images").mkdir()
    assert load_benchmark("vicr", data).items[0].image == tmp_path / "images" / "1.jpg"  # type: ignore[union-attr]


def test_without_parts_every_row_counts(tmp_path: Path) -> None:
    (tmp_path / "vicr.csv").write_text("image,caption,ratings\n1.jpg,a dog,4\n")
    assert len(load_benchmark("vicr", tmp_path, part="train").items) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,caption\n1.jpg,a dog\n", "row 1 has no column ratings; it has: image, caption"),
        ("image,caption,ratings\n1.jpg,a dog,6\n", "ratings must be a rating from 1 to 5, got '6'"),
        ("image,caption,ratings,rating_2\n1.jpg,a dog,5,x\n", "rating_2 must be a rating from 1 to 5, got 'x'"),
        ("image,caption,ratings\n1.jpg,a dog,nan\n", "got 'nan'"),
        ("image,caption,ratings\nhttp://x/,a dog,4\n", "image must name a file, got 'http://x/'"),
        ("image,caption,ratings\n1.jpg,a dog\n", "has 2 fields, but the header has 3"),
    ],
)
def test_bad_rows(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "vicr.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load_benchmark("vicr", tmp_path)


def test_a_table_may_be_parquet_with_numbers(tmp_path: Path) -> None:
    from datasets import Dataset

    rows = {"image": ["1.jpg", "2.jpg"], "caption": ["a dog", "a cat"], "ratings": [4, 2], "rating_2": [None, 3.0]}
    Dataset.from_dict(rows).to_parquet(tmp_path / "vicr.parquet")
    found = load_benchmark("vicr", tmp_path / "vicr.parquet").items
    assert [item.ratings["overall"] for item in found if isinstance(item, RatedCaption)] == [(4,), (2, 3)]
    Dataset.from_dict({**rows, "caption": [None, "a cat"]}).to_parquet(tmp_path / "vicr.parquet")
    with pytest.raises(DataError, match="row 1: caption must be text, got None"):
        load_benchmark("vicr", tmp_path / "vicr.parquet")
