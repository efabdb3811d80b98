"""Published figures: that the data are whole, which of them stand beside one's own, and what a bench says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.metaeval import published
from reward.metaeval.bench import run_bench
from reward.metaeval.bench_report import grids, to_json, write_report
from reward.metaeval.benchmarks import Benchmark, benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.evaluation import evaluate
from reward.metaeval.published import Compared, Figure, compare_published, is_published, published_figures
from reward.registry import MetricSource, metric_spec
from tests.reward.metaeval.small_benchmarks import write_rated

BY_ARENA = {"caparena", "caparena-auto"}  # of the command `arena`
ONE = Figure(50.0, ("PAPER table 1",), "LEN", "length", "formula", False, "polaris", "test", "overall", "tau-c")


@pytest.fixture
def rated(tmp_path: Path) -> Benchmark:
    return load_benchmark("polaris", write_rated(tmp_path, 40))


def test_every_figure_is_of_a_metric_and_a_benchmark_that_are_here() -> None:
    assert len(published_figures()) > 1000
    for each in published_figures():
        assert metric_spec(each.metric.removesuffix("_raw")), each
        assert each.benchmark in {*list_benchmarks(), *BY_ARENA}, each
        assert -100 <= each.figure <= 100, each
        assert each.sources[0].rpartition(" table")[0] or "appendix" in each.sources[0] or "expected" in each.sources[0]
        if each.benchmark in BY_ARENA:
            continue
        spec = benchmark_spec(each.benchmark)
        assert each.split in ("", *spec.parts, *(("REG", "VQA", "VDU", "IC") if each.benchmark == "mmhe" else ()))
        known = {"tau", "tau-b", "tau-c", "spearman", "accuracy", "auc", "ap", "text", "image", "group"}
        assert each.coefficient in known


@pytest.mark.parametrize(
    ("metric", "figure", "same"),
    [
        ("cider", {"metric": "cider"}, True),
        ("clipscore", {"metric": "clipscore"}, False),  # weights for drawings
        ("column:cider", {"metric": "cider"}, False),
        ("clipscore=ViT-B-32:openai", {"metric": "clipscore", "checkpoint": "ViT-B-32:openai"}, True),
        ("clipscore=ViT-L-14:openai", {"metric": "clipscore", "checkpoint": "ViT-B-32:openai"}, False),
        ("refclipscore=ViT-B-32:openai", {"metric": "clipscore", "checkpoint": "ViT-B-32:openai"}, False),
        ("pacscore=files/clip_ViT-B-32.pth", {"metric": "pacscore", "checkpoint": "clip_ViT-B-32.pth"}, True),
        ("harmoniceval=http://a/v1#gpt-4o", {"metric": "harmoniceval", "checkpoint": "gpt-4o"}, True),
        (
            "harmoniceval=http://a/v1#gpt-4o",
            {"metric": "harmoniceval", "checkpoint": "gpt-4o", "options": {"gamma": 1}},
            0,
        ),
        ("cider", {"metric": "cider", "variant": "train it"}, False),
    ],
)
def test_a_metric_is_the_published_one_by_name_checkpoint_and_options(
    metric: str, figure: dict[str, Any], same: bool
) -> None:
    assert is_published(MetricSource.parse(metric), replace(ONE, **figure)) == same


def test_own_values_stand_beside_figures_of_the_same_part_coefficient_and_references(rated: Benchmark) -> None:
    evaluation = evaluate(rated, rated.columns["good"], resamples=9)
    details = evaluation.details["overall"]

    def compared(*figures: Figure, references: bool = True) -> list[float]:
        return [each.value for each in compare_published(rated, evaluation, figures, references=references)]

    assert compared(ONE, replace(ONE, coefficient="tau-b"), replace(ONE, split="", coefficient="tau")) == pytest.approx(
        [100 * details[name] for name in ("tau_c", "tau_b", "tau_c")]
    )
    others = ({"split": "train"}, {"benchmark": "nebula"}, {"column": "fluency"}, {"coefficient": "auc"})
    assert compared(*(replace(ONE, **other) for other in others)) == []
    without = replace(ONE, metric="fleur", checkpoint="llava-hf/llava-1.5-7b-hf")
    both = without, replace(without, references=True, figure=60.0)
    for references in (True, False):
        (found,) = compare_published(rated, evaluation, both, references=references)
        assert found.published.references == references
        assert len(compare_published(rated, evaluation, [without], references=references)) == (not references)
    [beside] = compare_published(rated, evaluation, [ONE], references=True)
    assert beside.difference == round(100 * details["tau_c"] - 50, 1)


def test_a_part_of_a_benchmark_or_more_references_have_no_published_figures(tmp_path: Path, rated: Benchmark) -> None:
    part = load_benchmark("flickr8k-expert", write_rated(tmp_path / "part", 40))
    more = load_benchmark(
        "polaris", write_rated(tmp_path / "more", 40, change=lambda row: row["references"].append("B"))
    )
    drawn = replace(more, spec=replace(more.spec, drawn=1))
    for benchmark, count in ((part, 0), (rated, 1), (drawn, 0), (replace(drawn, draws=5), 1)):
        figure = replace(ONE, benchmark=benchmark.spec.name, split="")
        evaluation = evaluate(benchmark, benchmark.columns["good"], resamples=9)
        assert len(compare_published(benchmark, evaluation, [figure], references=True)) == count


def test_captions_without_a_score_make_it_a_part(rated: Benchmark) -> None:
    for lost, count in ((2, 1), (3, 0)):  # of 40
        scores = rated.columns["good"].copy()
        scores[:lost] = np.nan
        evaluation = evaluate(rated, scores, resamples=9)
        assert len(compare_published(rated, evaluation, [ONE], references=True)) == count


@pytest.mark.parametrize(("value", "verdict"), [(50.5, "reproduced"), (49.46, "reproduced"), (50.6, "differs")])
def test_a_difference_of_half_a_point_is_reproduced(value: float, verdict: str) -> None:
    assert Compared(ONE, value).verdict == verdict


def test_bench_tells_the_figure_its_source_and_the_difference(
    rated: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = replace(ONE, sources=("PAPER table 1", "OTHER table 2"))
    monkeypatch.setattr("reward.metaeval.bench.published_figures", lambda: (twice,))
    metrics = [MetricSource("length"), MetricSource("good", is_column=True)]
    tables = run_bench([(rated, None)], metrics, resamples=9)
    shown = grids(tables)[-1]
    [row] = shown.rows
    own = tables[0].rows[[each.metric.name for each in tables[0].rows].index("length")].evaluation
    assert own is not None
    value = 100 * own.estimates["overall"].value
    assert row[:3] == ("length", "Polaris (test)", "tau-c")
    assert row[3:5] == (f"{value:.1f}", "50.0")
    assert row[-1] == "PAPER table 1 and 1 more"
    figures = to_json(tables, command="", seed=0, resamples=9, references=True)
    known = {each["name"]: each.get("published") for each in figures["benchmarks"][0]["rows"]}
    assert known["good"] is None
    assert known["length"][0]["sources"] == ["PAPER table 1", "OTHER table 2"]
    assert np.isclose(known["length"][0]["value"], value)
    page = write_report(tmp_path / "report", tables, figures)
    for ending in (".md", ".html"):
        assert shown.title in page.with_suffix(ending).read_text(encoding="utf-8")


def test_the_same_figure_in_several_places_is_one_with_several_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"printed": "A", "metric": "cider", "checkpoint": "formula", "references": True, "figures": [1.0, None]}
    columns = [["polaris", "test", "overall", "tau-c"], ["nebula", "test", "overall", "tau-c"]]
    tables = [{"source": name, "table": "table 1", "columns": columns, "rows": [row]} for name in ("X", "Y")]
    monkeypatch.setattr(published, "_data", lambda: {"tables": tables})
    [found] = published_figures.__wrapped__()
    assert found.sources == ("X table 1", "Y table 1")
