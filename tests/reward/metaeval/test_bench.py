"""Several metrics and columns on several benchmarks: what is ranked, tested, left out, and how it is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError, MissingExtraError
from reward.metaeval.bench import BenchRow, BenchTable, default_metrics, run_bench
from reward.metaeval.bench_report import detail_grid, grids, notes, to_json, write_report
from reward.metaeval.benchmarks import Benchmark, load_benchmark
from reward.metaeval.evaluation import compare, evaluate, holm
from reward.registry import MetricSource, metric_spec
from tests.reward.metaeval.small_benchmarks import CORRELATIONS, use_metrics, write_pairs, write_rated
from tests.toys.json_lines import write_lines
from tests.toys.picture_scorer import SPEC as PICTURE

GOOD, BAD = MetricSource("good", is_column=True), MetricSource("bad", is_column=True)


@pytest.fixture
def rated(tmp_path: Path) -> Benchmark:
    return load_benchmark("flickr8k-expert", write_rated(tmp_path, 40))


@pytest.fixture
def pairs(tmp_path: Path) -> Benchmark:
    return load_benchmark("pascal-50s", write_pairs(tmp_path / "pairs", 30))


def run(*benchmarks: Benchmark, candidates: list[MetricSource], **options: Any) -> list[BenchTable]:
    return run_bench([(each, "path") for each in benchmarks], candidates, resamples=200, **options)


def test_rows_hold_what_the_statistics_give(rated: Benchmark) -> None:
    [table] = run(rated, candidates=[BAD, MetricSource("length"), GOOD])
    scores = rated.columns["good"]
    expected = evaluate(rated, scores, resamples=200)
    assert table.rows[2].evaluation is not None
    assert table.rows[2].evaluation.estimates == expected.estimates
    assert table.best is table.rows[2]
    assert (table.best.p, table.best.p_adjusted) == (None, None)
    worst, second = table.rows[0], table.rows[1]
    found = compare(rated, scores, worst.scores, resamples=200)
    assert worst.p == found.p_values[table.headline]
    assert second.p is not None
    assert [worst.p_adjusted, second.p_adjusted] == list(holm({"worst": worst.p, "second": second.p}).values())
    assert second.run is not None
    assert worst.run is None


def test_the_row_that_others_are_tested_against_can_be_named_beforehand(rated: Benchmark) -> None:
    [table] = run(rated, candidates=[BAD, MetricSource("length"), GOOD], against="length")
    bad, length, good = table.rows
    assert (table.best, table.against, length.p) == (good, length, None)
    assert good.p == compare(rated, length.scores, good.scores, resamples=200).p_values[table.headline]
    assert [bad.p_adjusted, good.p_adjusted] == list(holm({"bad": bad.p, "good": good.p}).values())
    assert [row[-1] for row in grids([table])[0].rows][1] == "against"
    assert any(note.startswith("p: of the difference from length in the same resamples") for note in doubts(table))
    [table] = run(rated, candidates=[BAD, GOOD])
    assert any("the best row, which is chosen on these data and so is flattered" in note for note in doubts(table))
    with pytest.raises(DataError, match="no row is named 'other'; the rows: column:bad"):
        run(rated, candidates=[BAD], against="other")


def test_one_rater_against_the_others_and_failures_by_threshold(tmp_path: Path) -> None:
    ratings = np.array([[0.0, 0.25, 0.25], [0.5, 0.25, 0.5], [1.0, 0.75, 0.25], [0.75, 0.75, 1.0]])
    scores = [0.25, 0.6, 0.6, 0.55]  # away from the means by 0.0833, 0.1833, 0.0667 and 0.2833
    row = {"references": [], "image": "1.png"}
    lines = [{**row, "candidate": f"red {n}", "ratings": [*ratings[n]], "near": scores[n]} for n in range(4)]
    benchmark = load_benchmark("ratings", write_lines(tmp_path / "rated.jsonl", lines))
    metric = MetricSource("near", is_column=True)
    [table] = run(benchmark, candidates=[metric, MetricSource("length")], raters=True, threshold=0.55 / 3)
    pairs = [(ratings[:, k], np.delete(ratings, k, 1).mean(1)) for k in range(3)]
    by_hand = np.mean([CORRELATIONS["tau-c"](*pair)[0] for pair in pairs])
    _, raters, counts, listed, *_ = grids([table], details=True)
    assert raters.rows[0][:1] == ("single rater",)
    values = to_json([table], command="", seed=0, resamples=9, references=True)["benchmarks"][0]
    assert values["raters"]["single rater"]["overall"]["value"] == pytest.approx(by_hand)
    assert [each["candidate"] for each in values["failures"]] == ["red 1", "red 3"]
    assert counts.rows == (("column:near", "2 (50.0 %)", "2 (50.0 %)"), ("length", "-", "-"))
    assert listed.rows[1] == ("column:near", "overall", "1.png", "0.83", "0.55", "red 3")
    other = load_benchmark(
        "ratings", write_lines(tmp_path / "other.jsonl", [line | {"ratings": [4]} for line in lines])
    )
    [table] = run(other, candidates=[metric], raters=True)
    assert "row of a single rater is left out, because only one rating of overall is known" in "\n".join(doubts(table))
    assert len(grids([table])) == 1
    for options, message in (({"threshold": 0.5}, "is rated"),):
        with pytest.raises(DataError, match=message):
            run(other, candidates=[metric], **options)


def test_several_benchmarks_side_by_side(tmp_path: Path, rated: Benchmark, pairs: Benchmark) -> None:
    tables = run(rated, pairs, candidates=[MetricSource("length"), GOOD])
    first, *each = grids(tables)
    assert [row[0] for row in first.rows] == ["length", "column:good"]
    assert len(each) == 2
    assert (set(tables[1].columns) >= {"HC", "MM", "mean"}, tables[1].headline) == (True, "mean")
    assert all({len(row) for row in grid.rows} == {len(grid.heads)} for grid in (first, *each))
    assert first.rows[1][2] == "-"  # pairs have no such column
    left_out = tables[1].rows[1]
    assert left_out.left_out
    assert "pascal-50s has no score column 'good'; its score columns: given" in left_out.problem
    assert any("column:good on Pascal-50S: left out" in note for note in notes(tables, resamples=200))
    named = run(rated, pairs, candidates=[MetricSource("length"), GOOD], against="good")
    assert [row.p for row in named[1].rows] == [None, None]  # it is not there
    assert not any("the best row" in note for note in notes(named, resamples=200))
    other = load_benchmark("flickr8k-expert", write_rated(tmp_path / "b", 20, change=lambda row: row.pop("good")))
    twice = run(rated, other, candidates=[GOOD, MetricSource("length")])  # the same benchmark
    assert [table.rows[0].left_out for table in twice] == [False, True]


def test_what_no_benchmark_has_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    data = write_rated(tmp_path, 40, change=lambda row: row.update(some=None))
    said: list[str] = []
    some = MetricSource("some", is_column=True)
    with pytest.raises(DataError, match="no score column 'some'; its score columns: good, bad"):
        run(load_benchmark("flickr8k-expert", data), candidates=[MetricSource("length"), some], say=said.append)
    assert said == []


def test_metrics_that_work_out_of_the_box(monkeypatch: pytest.MonkeyPatch, rated: Benchmark, tmp_path: Path) -> None:
    needs_more = replace(PICTURE, name="elsewhere", has_embedded=False)
    extra = replace(metric_spec("length"), name="extra", extra="ngrams")
    use_metrics(monkeypatch, needs_more, extra)

    def load(name: str) -> None:
        raise MissingExtraError('pip install "capreward[ngrams]"')

    monkeypatch.setattr("reward.metaeval.bench.load_scorer", load)
    found, left_out = default_metrics([rated])
    assert [each.name for each in found] == ["length", "unigram", "picture"]
    assert left_out == [
        "left out: elsewhere (no checkpoint ships with this package; give NAME=CHECKPOINT)",
        'left out: extra (pip install "capreward[ngrams]")',
    ]
    found, left_out = default_metrics([rated], references=False)
    assert [each.name for each in found] == ["length", "picture"]
    monkeypatch.setattr("reward.registry.installed_specs", lambda: {"elsewhere": needs_more})
    with pytest.raises(DataError, match="no metric can score these data"):
        default_metrics([rated])


def test_references_that_cider_cannot_be_fitted_on_do_not_take_the_others_along(tmp_path: Path) -> None:
    pytest.importorskip("pycocoevalcap")
    data = write_rated(tmp_path, 8, change=lambda row: row.update(references=["a dog"]))
    [table] = run(load_benchmark("flickr8k-expert", data), candidates=[MetricSource("cider"), GOOD])
    lost, other = table.rows
    assert (lost.evaluation, lost.errors, lost.left_out) == (None, 8, False)
    assert "flickr8k-expert: a corpus of" in lost.problem
    assert other is table.best
    assert any(note.startswith("cider on Flickr8k-Expert: 8 of 8 captions not scored") for note in doubts(table, 200))


def doubts(table: BenchTable, resamples: int = 200) -> list[str]:
    return list(notes([table], resamples=resamples))


def test_resamples_too_few_for_significance_are_told(rated: Benchmark) -> None:
    others = [MetricSource("length"), MetricSource("unigram"), BAD]
    [table] = run_bench([(rated, None)], [GOOD, *others], resamples=50)
    assert all(row.p_adjusted is None or row.p_adjusted >= 0.05 for row in table.rows)
    assert "Flickr8k-Expert: 50 resamples are too few for any p of 3 below 0.05: 240 do" in doubts(table, 50)
    [table] = run_bench([(rated, None)], [GOOD, *others], resamples=240)
    marked = [row[-1].endswith(" *") for row in grids([table])[0].rows]
    assert any(marked)
    assert marked == [row.p_adjusted is not None and row.p_adjusted < 0.05 for row in table.rows]
    assert not any("too few for any p" in note for note in doubts(table, 240))


def test_rows_of_other_items_and_too_few_images_are_told(tmp_path: Path) -> None:
    data = write_rated(tmp_path, 30, images=5)
    benchmark = load_benchmark("flickr8k-expert", data)
    whole, part = np.arange(30.0)[:, None], np.where(np.arange(30) < 20, np.arange(30.0), np.nan)[:, None]
    rows = [BenchRow(GOOD, 30, whole), BenchRow(BAD, 30, part)]
    for row in rows:
        row.evaluation = evaluate(benchmark, row.scores, resamples=20)
    table = BenchTable(benchmark, None, rows, ("overall",), "overall")
    assert any("rows that differ in 'scored' are computed on different items" in note for note in doubts(table, 20))
    assert any(note.startswith("Flickr8k-Expert: only 5 different images: too few") for note in doubts(table, 20))


@pytest.mark.slow
def test_simulated_ratings_are_not_called_human(tmp_path: Path) -> None:
    scenes = load_benchmark("scenes", limit=60)
    rated = load_benchmark("flickr8k-expert", write_rated(tmp_path / "rated", 40))
    for benchmarks, heading in (
        ([scenes], "Agreement with simulated ratings"),
        ([rated, scenes], "Agreement with human judgments and simulated ratings"),
    ):
        tables = run_bench([(each, None) for each in benchmarks], [MetricSource("length")], resamples=20)
        figures = to_json(tables, command="", seed=0, resamples=20, references=True)
        page = write_report(tmp_path / "report", tables, figures).with_suffix(".md").read_text(encoding="utf-8")
        assert page.startswith(f"# {heading}\n")
        assert "(seed 7): simulated ratings, no people were asked; " in page


def test_notes_and_json_say_what_figures_are_of_and_what_ties_count(tmp_path: Path) -> None:
    scenes, pairs = load_benchmark("scenes", limit=30), load_benchmark("pascal-50s", write_pairs(tmp_path, 40))
    tables = run_bench([(scenes, None), (pairs, None)], [MetricSource("length")], resamples=20)
    several, of_pairs = (note for note in notes(tables, resamples=20) if "ranked by" in note)
    assert "the mean of a caption's ratings counts" in several
    assert "'mean' is the mean of tau-c over the aspects; a metric with one score has it compared with each" in several
    assert several.endswith("tied pairs are neither concordant nor discordant, and stay in the denominator of tau-c.")
    assert "Pascal-50S: 'mean' is the mean over the categories; rows are ranked by 'mean'; equal sc" in of_pairs
    data = write_rated(tmp_path / "rated", 40, change=lambda row: row.update(category=row["image"]))
    tables += run_bench([(load_benchmark("flickr8k-expert", data), None)], [GOOD], resamples=20)
    found = to_json(tables, command="", seed=0, resamples=20, references=True)["benchmarks"]
    categories = found[2]["rows"][0]["by_category"]
    assert list(categories) == sorted({f"{number}.png" for number in range(10)})
    assert categories["0.png"]["overall"]["low"] is None  # of one image
    [row] = found[1]["rows"]
    assert (row["counts"], row["images"]) == ({"HC": 20, "MM": 20, "overall": 40}, 4)
    assert (row["tie_rule"], row["by_category"]) == ("equal scores are wrong", {})


def test_reports_have_all_statistics(rated: Benchmark, pairs: Benchmark) -> None:
    scenes = load_benchmark("scenes", limit=20)
    tables = run(rated, pairs, scenes, candidates=[MetricSource("length")])
    shown = [grid for table in tables if (grid := detail_grid(table)) is not None]
    assert shown[0].heads == ("", "tau-c", "tau-b", "spearman", "pearson")
    assert tables[0].rows[0].evaluation is not None
    details = tables[0].rows[0].evaluation.details["overall"]
    assert shown[0].rows == (("length", *(f"{100 * value:.1f}" for value in details.values())),)
    assert shown[1].title == "Pascal-50S: all statistics of overall x 100"
    assert shown[1].heads == ("", "accuracy", "auc", "ap")
    assert (len(shown[2].heads), shown[2].heads[5]) == (1 + 3 * 4, "relevance tau-c")
    assert grids([tables[1]], details=True) == [*grids([tables[1]]), shown[1]]
