"""Lines of JSON, perhaps packed, and the common forms that they hold; test_bad_files has what is refused."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import PreferencePair, Quadruple, RatedCaption
from reward.metaeval.benchmarks.jsonl import in_common_form, read_common
from reward.metaeval.benchmarks.records import is_jsonl, read_lines
from tests.reward.metaeval.small_benchmarks import write_lines


def test_packed_files_and_byte_order_marks(tmp_path: Path) -> None:
    packed, plain = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    with gzip.open(packed, "wt", encoding="utf-8-sig") as file:
        file.write('{"candidate": "A dog.", "score": NaN}')
    plain.write_text('\n{"candidate": "A dog.", "score": NaN}', encoding="utf-8-sig")
    for path, line in ((packed, 1), (plain, 2)):
        [found] = read_lines(path)
        assert (found.values["candidate"], found.where) == ("A dog.", f"{path}, line {line}")
        assert is_jsonl(path)
    assert not is_jsonl(tmp_path)
    assert not is_jsonl(None)
    for path, content in (
        *((packed, broken) for broken in (packed.read_bytes()[:-12], b"no gzip")),
        (plain, b'{"candidate": "\xff"}'),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot read"):
            list(read_lines(path))


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
    path = write_lines(tmp_path / "a.jsonl", PAIR, {**PAIR, "label": None, "metric": [None, 1]})
    one, two = read_common(path, PreferencePair)
    assert (one.captions, one.label, one.columns) == (("A dog.", "A cat."), 1, {"metric": (0.5, 1.0)})
    assert two.label is None
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
