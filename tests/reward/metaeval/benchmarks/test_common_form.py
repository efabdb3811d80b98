"""The common JSONL form, in which every benchmark may be given, and what a benchmark says that it needs."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reward.errors import DataError
from reward.metaeval.bench import MetricSource, run_bench
from reward.metaeval.bench_report import notes
from reward.metaeval.benchmarks import benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.benchmarks.items import PAIRS, QUADRUPLES, RATINGS
from reward.metaeval.benchmarks.mmhe import CRITERIA
from reward.metaeval.scoring import score_benchmark
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from tests.reward.metaeval.small_benchmarks import make_benchmark, write_lines
from tests.toys.toy_judges import RecordingJudge

EXTERNAL = [name for name in list_benchmarks() if benchmark_spec(name).checked != "own"]
SHARED = {"image": "a.jpg", "references": ["One dog.", " "], "category": "HC"}
RATED = {**SHARED, "candidate": "A dog.", "ratings": [1, None, 2], "metric": 0.5}
PAIR = {**SHARED, "captions": ["A dog.", "A cat."], "label": 1, "metric": [0.5, 0.25]}
QUADRUPLE = {"images": ["a.jpg", "b.jpg"], "captions": ["x y", "y x"], "category": "HC", "metric": [1, 2, 3, 4]}
ROWS = {RATINGS: RATED, PAIRS: PAIR, QUADRUPLES: QUADRUPLE}


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_says_what_it_needs_and_on_what_terms(name: str, tmp_path: Path) -> None:
    spec = benchmark_spec(name)
    terms = re.escape(spec.licence) if spec.licence else "licence is not known to us"
    needs = f"{re.escape(f'{spec.title} needs {spec.files}. From: {spec.origin}.')} .*{terms}.*--data"
    (tmp_path / "empty.jsonl").touch()
    for data in (tmp_path, tmp_path / "absent", tmp_path / "empty.jsonl"):
        with pytest.raises(DataError, match=needs):
            load_benchmark(name, data)


@pytest.mark.parametrize("name", EXTERNAL)
def test_every_benchmark_reads_the_common_form(name: str, tmp_path: Path) -> None:
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
    path.write_text(path.read_text() + "{")
    assert len(load_benchmark(name, path, limit=1).rows) == 1  # the rest is not read


def test_fields_may_be_absent_null_or_of_several_aspects(tmp_path: Path) -> None:
    rated = {"candidate": "A dog.", "ratings": {"fluency": 3, "clarity": [None]}, "category": 2, "x": float("nan")}
    unrated = ({**rated, "ratings": [None, None]}, {**rated, "ratings": {}})
    (item,) = load_benchmark("ratings", write_lines(tmp_path / "a.jsonl", rated, *unrated)).rows.itertuples()
    assert (item.ratings, item.category, item.images) == ({"fluency": (3.0,)}, "2", (None,))
    assert item.image_id.endswith("line 1")
    pair = {"image": "/elsewhere/a.jpg", "captions": ["A.", "B."], "question": "What?", "box": [1, 2, 3, 4]}
    pairs = load_benchmark("pairs", write_lines(tmp_path / "b.jsonl", {**pair, "label": None}, {**pair, "label": 0}))
    (tie, _) = pairs.rows.itertuples()
    assert np.isnan(tie.label)
    assert (tie.question, tie.images[0].box, tie.images[0].image) == ("What?", [1, 2, 3, 4], Path("/elsewhere/a.jpg"))


def test_a_file_may_be_packed_or_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    packed, plain = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    line = '{"candidate": "A dog.", "ratings": [1], "score": NaN}'
    packed.write_bytes(gzip.compress(f"\ufeff{line}".encode()))
    plain.write_text(f"\n{line}", encoding="utf-8-sig")
    for path, number in ((packed, 1), (plain, 2)):
        assert load_benchmark("ratings", path).rows["image_id"].tolist() == [f"{path}, line {number}"]
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"cannot read .*a\.jsonl\.gz"):
        load_benchmark("ratings", packed)


TEXT = {"image": "a.jpg", "candidate": "One.", "item": "x", "category": "IC"}
BAD = {  # {benchmark: [(fields that change, message)]}
    "ratings": [
        ({"ratings": [True]}, r"a\.jsonl, line 2: ratings must be numbers"),
        ({"ratings": {"fluency": ["3"]}}, "ratings must be numbers"),
        ({"ratings": [float("inf")]}, "ratings must be finite numbers"),
        ({"candidate": None}, "candidate must be text, got None"),
        ({"references": "A cat."}, "references must be a list of texts, got 'A cat.'"),
        ({"category": 1.5}, "category must be text or a whole number, got 1.5"),
        ({"image": 3}, "image must be a path, got 3"),
        ({"image": ""}, "image must be a path, got ''"),
    ],
    "pairs": [
        *(({"label": label}, "label must be 0, 1 or null") for label in (2, True, "1")),
        *(({"captions": texts}, "captions must be a list of two texts") for texts in (["A."], "AB")),
    ],
    "quadruples": [({"images": "ab"}, "images must be a list of two")],
    "mmhe": [({"ratings": {"Clar": [2]}}, "text 1: the criteria are .*, got 'overall'")],
}


@pytest.mark.parametrize(("name", "change", "message"), [(name, *row) for name, rows in BAD.items() for row in rows])
def test_a_bad_line_is_named_with_its_field(name: str, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    row = ROWS[benchmark_spec(name).form]
    with pytest.raises(DataError, match=message):
        load_benchmark(name, write_lines(tmp_path / "a.jsonl", row, {**row, **change}))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"candidate": "A."}'], r"a\.jsonl, line 1 has no field 'ratings'; it has: candidate"),
        ([RATED, "[1]"], "line 2 is no object"),
        ([RATED, "{"], r"line 2 of .*a\.jsonl: Expecting property name"),
        ([RATED, "[" * 100_000], "recursion"),
    ],
)
def test_a_line_that_is_no_item_is_named(lines: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_benchmark("ratings", write_lines(tmp_path / "a.jsonl", *lines))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flickr", {}, r"no benchmark is named 'flickr'; there are: .*flickr8k-cf"),
        ("caparena", {}, "a command of their own: capreward arena"),
        ("longcap-arena", {"data": "", "part": "TestC"}, "has no part 'TestC'; its parts: TestA, TestB, val"),
        ("composite", {"data": "", "images": "absent"}, r"no folder .*absent of images"),
        ("scenes", {"limit": 0}, "limit must be at least 1, got 0"),
        ("scenes-pairs", {"data": ""}, "the scenes are made on the spot"),
        ("ratings", {"data": ""}, r"not a \.jsonl file in the common form\. Your ratings needs a \.jsonl file"),
    ],
)
def test_unknown_names_parts_and_folders(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    paths = {option: tmp_path / options[option] for option in ("data", "images") if option in options}
    with pytest.raises(DataError, match=message):
        load_benchmark(name, **{**options, **paths})


def test_captions_that_no_metric_can_score_are_none_and_columns_without_a_number_are_none() -> None:
    entries: list[dict[str, Any]] = [
        {"candidate": text, "ratings": [1], "references": ["\u200b", "A dog."], "b": None}
        for text in ("A.", " ", "\ud800")
    ]
    entries[1]["a"] = 1.0
    made = make_benchmark(entries, RATINGS, "tau-c")
    np.testing.assert_array_equal(made.columns["a"], [[np.nan], [1], [np.nan]])
    assert list(made.columns) == ["a"]
    first, *others = made.samples()
    assert first is not None
    assert (first.references, others) == (("A dog.",), [None, None])
    assert [sample and sample.references for sample in made.samples(references=False)] == [(), None, None]


# MMHE: triplets whose best text is paired with each of the others, and answers with their questions


def triplet(*best: int, **shared: Any) -> list[dict[str, Any]]:
    texts = zip(("One.", "Two.", "Three."), best, strict=True)
    return [{"image": "a.jpg", "candidate": text, "best": count, **shared} for text, count in texts]


def test_best_of_three_becomes_pairs(tmp_path: Path) -> None:
    asked = triplet(0, 1, 0, item="a", category="VQA", question="How many?", overall=2.5)
    asked[1]["overall"] = 4
    path = write_lines(tmp_path / "a.jsonl", *asked, *triplet(1, 0, 2, item="b", category="IC", overall=None))
    benchmark = load_benchmark("mmhe-pairs", path)
    found = benchmark.rows
    better = [(texts[int(n)], texts[1 - int(n)]) for texts, n in zip(found["captions"], found["label"], strict=True)]
    assert better == [
        *(("Two.", "One."), ("Two.", "Three."), ("One.", "Two."), ("One.", "Three.")),
        *(("Three.", "One."), ("Three.", "One."), ("Three.", "Two."), ("Three.", "Two.")),
    ]
    assert {*found["label"]} == {0, 1}  # the better one is not always in the same place
    assert benchmark.columns["overall"][0].tolist() == [2.5, 4]
    contexts = [(each.question, each.task) for each in benchmark.samples() if each is not None]
    assert (contexts[0], contexts[-1]) == (("How many?", "VQA"), (None, "IC"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"best": -1}, {"best": 1}], "line 1: best must be how many people chose the text, .*, got -1"),
        ([{"best": 1}], "line 1: item must be of two texts or more, .*, one of them chosen, got 'x'"),
        ([{"best": 0}, {"best": 1, "image": "b.jpg"}], "line 1: item must be .*, equal in image and question"),
        ([{"best": n, "category": "VDU"} for n in (0, 1)], "text 1: a text of VDU answers a question; add it as"),
    ],
)
def test_texts_that_do_not_compete_are_refused(changes: list[Any], message: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *({**TEXT, **change} for change in changes))
    with pytest.raises(DataError, match=message):
        load_benchmark("mmhe-pairs", path)


@pytest.mark.parametrize("name", ["mmhe", "mmhe-pairs"])
def test_answers_are_judged_with_their_question_and_the_prompt_is_named(name: str, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    lines = triplet(1, 0, 0, item="a", category="VDU", question="How many?", ratings={each: [3] for each in CRITERIA})
    benchmark = load_benchmark(name, write_lines(tmp_path / "a.jsonl", *lines))
    judge = RecordingJudge(distribution={"4": 1.0})
    scorer = HarmonicScorer(judge, criteria=["correctness"])
    found = score_benchmark(benchmark, scorer)
    assert (found.errors, len(judge.asked)) == ({}, 3)
    assert all("Question about the document:\n> How many?" in question.text for question in judge.asked)
    other = score_benchmark(benchmark, HarmonicScorer(judge, prompt={**scorer.prompt.to_json(), "version": "mine"}))
    assert re.fullmatch(r"harmonic-\d+ [0-9a-f]{16}", found.prompt)
    assert (other.prompt[:5], other.prompt[-16:] == found.prompt[-16:]) == ("mine ", False)
    [table] = run_bench([(benchmark, None)], [MetricSource("length")], resamples=20)
    assert any("does not read the questions of" in note for note in notes([table], resamples=20))
