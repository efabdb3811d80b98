"""The common JSONL form, in which every benchmark may be given, and what a benchmark says that it needs."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.benchmarks import benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.benchmarks.items import PAIRS, QUADRUPLES, RATINGS
from tests.reward.metaeval.small_benchmarks import make_benchmark, write_lines

EXTERNAL = [name for name in list_benchmarks() if benchmark_spec(name).checked != "own"]
SHARED = {"image": "a.jpg", "references": ["One dog.", " "], "category": "HC"}
RATED = {**SHARED, "candidate": "A dog.", "ratings": [1, None, 2], "metric": 0.5}
PAIR = {**SHARED, "captions": ["A dog.", "A cat."], "label": 1, "metric": [0.5, 0.25]}
QUADRUPLE = {"images": ["a.jpg", "b.jpg"], "captions": ["x y", "y x"], "category": "HC", "metric": [1, 2, 3, 4]}
ROWS = {RATINGS: RATED, PAIRS: PAIR, QUADRUPLES: QUADRUPLE}


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_says_what_it_needs_and_on_what_terms(name, tmp_path):
    spec = benchmark_spec(name)
    terms = re.escape(spec.licence) if spec.licence else "licence is not known to us"
    needs = f"{re.escape(f'{spec.title} needs {spec.files}. From: {spec.origin}.')} .*{terms}.*--data"
    (tmp_path / "empty.jsonl").touch()
    for data in (tmp_path, tmp_path / "absent", tmp_path / "empty.jsonl"):
        with pytest.raises(DataError, match=needs):
            load_benchmark(name, data)


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_reads_the_common_form(name, tmp_path):
    form = benchmark_spec(name).form
    row = ROWS[form] | ({"ratings": {"fluency": [1, None, 2]}} if name == "mmhe" else {})
    path = write_lines(tmp_path / "any.jsonl", row, "", {**row, "metric": [None] * 4 if form == QUADRUPLES else None})
    benchmark = load_benchmark(name, path)
    scores = [np.ravel(row["metric"]), np.full(benchmark.shape[1], np.nan)]
    np.testing.assert_array_equal(benchmark.columns["metric"], scores)
    item = benchmark.rows.iloc[0]
    assert (item["category"], item["images"][0]) == ("HC", tmp_path / "a.jpg")
    assert item["references"] == (() if form == QUADRUPLES else ("One dog.",))
    assert form != RATINGS or [*item["ratings"].values()] == [(1, 2)]


def test_fields_may_be_absent_null_or_of_several_aspects(tmp_path):
    rated = {"candidate": "A dog.", "ratings": {"fluency": 3, "clarity": [None]}, "category": 2, "x": float("nan")}
    unrated = ({**rated, "ratings": [None, None]}, {**rated, "ratings": {}})
    (item,) = load_benchmark("ratings", write_lines(tmp_path / "a.jsonl", rated, *unrated)).rows.itertuples()
    assert (item.ratings, item.category, item.images) == ({"fluency": (3.0,)}, "2", (None,))
    assert item.image_id.endswith("line 1")
    pair = {"image": "/elsewhere/a.jpg", "captions": ["A.", "B."], "question": "What?", "box": [1, 2, 3, 4]}
    path = write_lines(tmp_path / "b.jsonl", {**pair, "label": None}, {**pair, "label": 0}, "{")
    (tie, _) = load_benchmark("pairs", path, limit=2).rows.itertuples()  # the rest is not read
    assert np.isnan(tie.label)
    assert (tie.question, tie.images[0].box, tie.images[0].image) == ("What?", [1, 2, 3, 4], Path("/elsewhere/a.jpg"))


def test_a_file_may_be_packed_or_begin_with_a_byte_order_mark(tmp_path):
    packed, plain = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    line = '{"candidate": "A dog.", "ratings": [1], "score": NaN}'
    packed.write_bytes(gzip.compress(f"\ufeff{line}".encode()))
    plain.write_text(f"\n{line}", encoding="utf-8-sig")
    for path, number in ((packed, 1), (plain, 2)):
        assert load_benchmark("ratings", path).rows["image_id"].tolist() == [f"{path}, line {number}"]
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"cannot read .*a\.jsonl\.gz"):
        load_benchmark("ratings", packed)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("ratings", {"candidate": "A."}, r"a\.jsonl, line 2 has no field 'ratings'; it has: candidate"),
        ("ratings", {**RATED, "ratings": [True]}, "ratings must be numbers"),
        ("ratings", {**RATED, "ratings": {"fluency": ["3"]}}, "ratings must be numbers"),
        ("ratings", {**RATED, "ratings": [float("inf")]}, "ratings must be finite numbers"),
        ("ratings", {**RATED, "candidate": None}, "candidate must be text, got None"),
        ("ratings", {**RATED, "references": "A cat."}, "references must be a list of texts, got 'A cat.'"),
        ("ratings", {**RATED, "category": 1.5}, "category must be text or a whole number, got 1.5"),
        ("ratings", {**RATED, "image": ""}, "image must be a path, got ''"),
        ("ratings", "[1]", "line 2 is no object"),
        ("ratings", "{", r"line 2 of .*a\.jsonl: Expecting property name"),
        ("ratings", "[" * 100_000, "recursion"),
        ("pairs", {**PAIR, "label": True}, "label must be 0, 1 or null"),
        ("pairs", {**PAIR, "captions": "AB"}, "captions must be a list of two texts"),
        ("quadruples", {**QUADRUPLE, "images": "ab"}, "images must be a list of two"),
        ("mmhe", RATED, "text 1: the criteria are .*, got 'overall'"),
    ],
)
def test_a_bad_line_is_named_with_its_field(name, line, message, tmp_path):
    with pytest.raises(DataError, match=message):
        load_benchmark(name, write_lines(tmp_path / "a.jsonl", ROWS[benchmark_spec(name).form], line))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flickr", {}, r"no benchmark is named 'flickr'; there are: .*flickr8k-cf"),
        ("caparena", {}, "a command of their own: capreward arena"),
        ("longcap-arena", {"data": "", "part": "TestC"}, "has no part 'TestC'; its parts: TestA, TestB, val"),
        ("polaris", {"data": "", "images": "absent"}, r"no folder .*absent of images"),
        ("scenes", {"limit": 0}, "limit must be at least 1, got 0"),
        ("scenes-pairs", {"data": ""}, "the scenes are made on the spot"),
        ("ratings", {"data": ""}, r"not a \.jsonl file in the common form\. Your ratings needs a \.jsonl file"),
    ],
)
def test_unknown_names_parts_and_folders(tmp_path, name, options, message):
    paths = {option: tmp_path / options[option] for option in ("data", "images") if option in options}
    with pytest.raises(DataError, match=message):
        load_benchmark(name, **{**options, **paths})


def test_captions_that_no_metric_can_score_are_none_and_columns_without_a_number_are_none():
    row = {"ratings": [1], "references": ["\u200b", "A dog."], "b": None}
    made = make_benchmark([{**row, "candidate": text} for text in ("A.", " ", "\ud800")], RATINGS, "tau-c")
    first, *others = made.samples()
    assert (first.references, others, made.columns) == (("A dog.",), [None, None], {})
    assert made.samples(references=False)[0].references == ()


TEXT = {"image": "a.jpg", "item": "x", "category": "VQA", "question": "How many?"}


def test_best_of_three_is_paired_with_each_other_once_for_each_person_who_chose_it(tmp_path):
    first = [{**TEXT, "candidate": text, "best": text == "Two.", "s": 4} for text in ("One.", "Two.", "Three.")]
    other = {**TEXT, "item": "y", "category": "IC", "question": None}
    second = [{**other, "candidate": text, "best": n} for text, n in (("One.", 1), ("Two.", 0), ("Three.", 2))]
    benchmark = load_benchmark("mmhe-pairs", write_lines(tmp_path / "a.jsonl", *first, *second))
    pairs = zip(benchmark.rows["captions"], benchmark.rows["label"].astype(int), strict=True)
    assert [(texts[label], texts[1 - label]) for texts, label in pairs] == [
        *(("Two.", "One."), ("Two.", "Three."), ("One.", "Two."), ("One.", "Three.")),
        *(("Three.", "One."), ("Three.", "One."), ("Three.", "Two."), ("Three.", "Two.")),
    ]
    assert {*benchmark.rows["label"]} == {0, 1}  # the better one is not always in the same place
    assert benchmark.columns["s"][0].tolist() == [4, 4]
    contexts = [(each.question, each.task) for each in benchmark.samples()]
    assert (contexts[0], contexts[-1]) == (("How many?", "VQA"), (None, "IC"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"best": -1}, {"best": 1}], "line 1: best must be how many people chose the text, .*, got -1"),
        ([{"best": 1}], "line 1: item must be of two texts or more, .*, one of them chosen, got 'x'"),
        ([{"best": 0}, {"best": 1, "image": "b.jpg"}], "line 1: item must be .*, equal in image and question"),
        ([{"best": n, "question": None} for n in (0, 1)], "text 1: a text of VQA answers a question; add it as"),
    ],
)
def test_texts_that_do_not_compete_are_refused(changes, message, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", *({**TEXT, "candidate": "One.", **change} for change in changes))
    with pytest.raises(DataError, match=message):
        load_benchmark("mmhe-pairs", path)
