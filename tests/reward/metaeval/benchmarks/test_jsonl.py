"""The common JSONL forms: what they hold is read, what is missing or wrong is said with its place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import PreferencePair, Quadruple, RatedCaption
from reward.metaeval.benchmarks.jsonl import in_common_form, read_common
from tests.reward.metaeval.small_benchmarks import write_lines

RATED = {"image": "a.jpg", "candidate": "A dog.", "references": ["A cat.", " "], "ratings": [1, 2.5], "metric": 0.25}
PAIR = {"image": "a.jpg", "captions": ["A dog.", "A cat."], "label": 1, "category": "HC", "metric": [0.5, 1]}
QUADRUPLE = {"images": ["a.jpg", None], "captions": ["A dog.", "A cat."], "metric": [1, 2, 3, None]}


def test_rated_captions(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl", RATED, "", {**RATED, "ratings": {"fluency": 3}, "category": 2, "image": None}
    )
    one, two = read_common(path, RatedCaption)
    assert (one.candidate, one.references, one.ratings) == ("A dog.", ("A cat.",), {"overall": (1.0, 2.5)})
    assert (one.image, one.image_id, one.columns) == (tmp_path / "a.jpg", "a.jpg", {"metric": 0.25})
    assert (two.ratings, two.category, two.image) == ({"fluency": (3.0,)}, "2", None)
    assert two.image_id.endswith("line 3")
    assert next(read_common(path, RatedCaption, tmp_path / "images")).image == tmp_path / "images" / "a.jpg"
    absolute = write_lines(tmp_path / "b.jsonl", {**RATED, "image": "/elsewhere/a.jpg"})
    assert next(read_common(absolute, RatedCaption, tmp_path)).image == Path("/elsewhere/a.jpg")


def test_ratings_and_scores_that_were_not_given(tmp_path: Path) -> None:
    rows = [
        {**RATED, "ratings": [None, 2, float("nan")], "metric": None},
        {**RATED, "ratings": {"fluency": [None], "clarity": [1]}, "metric": float("nan")},
        {**RATED, "ratings": [None, None]},  # nobody rated it
        {**RATED, "ratings": {}},
    ]
    one, two = read_common(write_lines(tmp_path / "a.jsonl", *rows), RatedCaption)
    assert one.ratings == {"overall": (2.0,)}
    assert two.ratings == {"clarity": (1.0,)}
    assert math.isnan(one.columns["metric"])
    assert math.isnan(two.columns["metric"])


def test_pairs_and_quadruples(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", PAIR, {**PAIR, "label": None, "systems": ["x", "y"], "metric": [None, 1]})
    one, two = read_common(path, PreferencePair)
    assert (one.captions, one.label, one.columns) == (("A dog.", "A cat."), 1, {"metric": (0.5, 1.0)})
    assert (two.label, two.systems) == (None, ("x", "y"))
    assert math.isnan(two.columns["metric"][0])
    (four,) = read_common(write_lines(tmp_path / "b.jsonl", QUADRUPLE), Quadruple)
    assert four.images == (tmp_path / "a.jpg", None)
    assert four.columns["metric"][:3] == (1.0, 2.0, 3.0)


def test_a_file_in_a_published_form_is_not_in_the_common_one(tmp_path: Path) -> None:
    for row in (RATED, PAIR, QUADRUPLE, {"anything": 1}):
        assert in_common_form(write_lines(tmp_path / "a.jsonl", row))
    assert in_common_form(write_lines(tmp_path / "empty.jsonl"))
    for name in ("cand", "mt", "caption", "correct", "candidates", "caption_0"):
        assert not in_common_form(write_lines(tmp_path / "a.jsonl", {"image": "a.jpg", name: "A dog."}))
    assert not in_common_form(tmp_path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"candidate": "A."}, "has no field 'ratings'; it has: candidate"),
        ({"ratings": [1]}, "has no field 'candidate'"),
        ({**RATED, "ratings": []}, r"ratings must be numbers, one per rater, got \[\]"),
        ({**RATED, "ratings": [True]}, "ratings must be numbers"),
        ({**RATED, "ratings": {"fluency": ["3"]}}, "ratings must be numbers"),
        ('{"candidate": "A.", "ratings": [1e999]}', "ratings must be finite numbers, got 'inf'"),
        (
            '{"candidate": "A.", "ratings": [1], "metric": 1%s}' % ("0" * 400),
            "metric must be finite numbers, got '1000",
        ),
        ({**RATED, "candidate": None}, "candidate must be text, got None"),
        ({**RATED, "references": "A cat."}, "references must be a list of texts, got 'A cat.'"),
        ({**RATED, "image": 3}, "image must be a path, got 3"),
        ({**RATED, "image": ""}, "image must be a path, got ''"),
    ],
)
def test_bad_rated_lines(tmp_path: Path, row: Any, message: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", RATED, row)
    with pytest.raises(DataError, match=message) as caught:
        list(read_common(path, RatedCaption))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, "label must be 0, 1 or null"),
        ({"label": True}, "label must be 0, 1 or null"),
        ({"label": "1"}, "label must be 0, 1 or null"),
        ({"captions": ["A."]}, "captions must be a list of 2 texts"),
        ({"captions": "AB"}, "captions must be a list of 2 texts"),
        ({"systems": ["x"]}, "systems must be a list of 2 texts"),
    ],
)
def test_bad_pairs(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_common(write_lines(tmp_path / "a.jsonl", {**PAIR, **change}), PreferencePair))


def test_bad_quadruples(tmp_path: Path) -> None:
    for images in (["a.jpg"], "ab", None):
        with pytest.raises(DataError, match="images must be a list of two"):
            list(read_common(write_lines(tmp_path / "a.jsonl", {**QUADRUPLE, "images": images}), Quadruple))
