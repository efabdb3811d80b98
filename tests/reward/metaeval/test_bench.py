"""Several metrics and columns on several benchmarks: what is ranked, tested, left out, and what a reader is told."""

import pytest

from reward.errors import DataError
from reward.metaeval.bench import run_bench
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.difference import compare, holm
from reward.metaeval.evaluation import evaluate
from reward.registry import MetricSource
from reward.report.bench import bench_report
from tests.reward.metaeval.small_benchmarks import load_rated, write_pairs
from tests.toys.json_lines import write_lines

LENGTH, UNIGRAM = MetricSource("length"), MetricSource("unigram")
GOOD, BAD = MetricSource("good", is_column=True), MetricSource("bad", is_column=True)


@pytest.fixture
def rated(tmp_path):
    return load_rated(tmp_path, 40)


@pytest.fixture
def pairs(tmp_path):
    return load_benchmark("pascal-50s", write_pairs(tmp_path / "pairs", 40))


def run(*benchmarks, metrics, resamples=50, **options):
    return run_bench([(each, "path") for each in benchmarks], metrics, resamples=resamples, **options)


def report(*tables, resamples=50):
    return bench_report(tables, command="", seed=0, resamples=resamples, references=True)


def frames(tables):
    return [[list(table.frame), *table.texts()] for table in report(*tables).tables]


def said(*tables, resamples=50):
    return "\n".join(report(*tables, resamples=resamples).notes)


@pytest.mark.parametrize("against", [None, "length"])
def test_rows_are_tested_against_the_best_or_the_one_that_was_named(rated, against):
    [table] = run(rated, metrics=[BAD, LENGTH, GOOD], against=against)
    bad, length, good = table.rows
    assert good.evaluation.estimates == evaluate(rated, rated.columns["good"], resamples=50).estimates
    assert (table.best, table.against) == (good, good if against is None else length)
    others = [row for row in table.rows if row is not table.against]
    for row in others:
        expected = compare(rated, table.against.scores, row.scores, resamples=50)
        assert row.p == expected.p_values[table.headline]
    adjusted = holm({row.metric.label: row.p or 0 for row in others})
    assert [row.p_adjusted for row in others] == list(adjusted.values())
    assert (table.against.p, length.run is None, bad.run) == (None, False, None)
    assert [row[-1] for row in frames([table])[0]].count("best" if against is None else "against") == 1
    other = "the best row, which is chosen on these data and so is flattered," if against is None else "length"
    assert f"p: of the difference from {other} in the same resamples" in said(table)


def test_one_rater_against_the_others_and_failures_by_threshold(tmp_path):
    ratings = [[0.0, 0.25, 0.25], [0.5, 0.25, 0.5], [1.0, 0.75, 0.25], [0.75, 0.75, 1.0]]
    scores = [0.25, 0.6, 0.6, 0.55]  # away from the means by 0.0833, 0.1833, 0.0667 and 0.2833
    judged = [{"ratings": {"length": ratings[n]}, "near": scores[n], "candidate": f"red {n}"} for n in range(4)]
    rows = [{"references": [], "image": "1.png", **row} for row in judged]
    benchmark = load_benchmark("ratings", write_lines(tmp_path / "rated.jsonl", rows))
    near = MetricSource("near", is_column=True)
    [table] = run(benchmark, metrics=[near, LENGTH], raters=True, threshold=0.55 / 3)
    _, raters, counts = frames([table])
    assert [row[0] for row in raters] == ["", "single rater", "column:near", "length"]
    [figures] = report(table).to_json()["benchmarks"]
    assert [each["candidate"] for each in figures["failures"]] == ["red 1", "red 3"]
    assert counts[1:] == [["column:near", "2 (50.0 %)", "2 (50.0 %)"], ["length", "-", "-"]]

    rows = [{**row, "ratings": {"length": [4]}} for row in rows]
    other = load_benchmark("ratings", write_lines(tmp_path / "other.jsonl", rows))
    [table] = run(other, metrics=[near], raters=True)
    assert "row of a single rater is left out, because only one rating of length is known" in said(table)
    with pytest.raises(DataError, match=r"is rated .*; --threshold needs \[0, 1\]"):
        run(other, metrics=[near], threshold=0.5)


def test_several_benchmarks_stand_side_by_side_and_lack_what_they_lack(tmp_path, rated, pairs):
    tables = run(rated, pairs, metrics=[LENGTH, GOOD])
    overview, *of_benchmarks = frames(tables)
    assert ([row[0] for row in overview], len(of_benchmarks)) == (["", "length", "column:good"], 2)
    assert overview[2][2] == "-"  # pairs have no such column
    assert of_benchmarks[1][2][-4:] == ["-"] * 4
    assert (set(tables[1].columns) >= {"HC", "MM", "mean"}, tables[1].headline) == (True, "mean")
    left_out = tables[1].rows[1]
    assert left_out.left_out
    assert "pascal-50s has no score column 'good'; its score columns: given" in left_out.problem
    assert "column:good on Pascal-50S: left out" in said(*tables)
    named = run(rated, pairs, metrics=[LENGTH, GOOD], against="good")
    assert [row.p for row in named[1].rows] == [None, None]  # it is not there
    other = load_rated(tmp_path / "b", 20, change=lambda row: row.pop("good"))
    twice = run(rated, other, metrics=[GOOD, LENGTH])  # the same benchmark
    assert [table.rows[0].left_out for table in twice] == [False, True]


def test_references_that_cider_cannot_be_fitted_on_do_not_take_the_others_along(tmp_path):
    pytest.importorskip("pycocoevalcap")
    rated = load_rated(tmp_path, 8, change=lambda row: row.update(references=["a dog"]))
    [table] = run(rated, metrics=[MetricSource("cider"), GOOD])
    lost, other = table.rows
    assert (lost.evaluation, lost.errors, lost.left_out, table.best) == (None, 8, False, other)
    assert "cider on Flickr8k-Expert: 8 of 8 captions not scored; the first: flickr8k-expert: a corpus" in said(table)


def test_resamples_too_few_for_any_significance_are_told(rated):
    for resamples, enough in ((50, False), (240, True)):
        [table] = run(rated, metrics=[GOOD, LENGTH, UNIGRAM, BAD], resamples=resamples)
        assert any(row.p_adjusted is not None and row.p_adjusted < 0.05 for row in table.rows) == enough
        told = "50 resamples are too few for any p of 3 below 0.05: 240 do" in said(table, resamples=resamples)
        assert told != enough
