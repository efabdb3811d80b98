"""Published figures: that the data are whole, which stand beside one's own."""

from dataclasses import replace

import numpy as np
import pytest

from reward.metaeval.bench import run_bench
from reward.metaeval.benchmarks import benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.evaluation import evaluate
from reward.metaeval.published import Compared, Figure, compare_published, is_published, published_figures
from reward.metrics.options import check_options
from reward.registry import MetricSource, metric_spec
from reward.report.bench import bench_report
from tests.reward.metaeval.small_benchmarks import load_rated, write_rated

BY_ARENA = {"caparena", "caparena-auto"}  # of the command `arena`
KNOWN = {"tau", "tau-b", "tau-c", "spearman", "accuracy", "auc", "ap", "text", "image", "group"}
ONE = Figure(50.0, ("PAPER table 1",), "LEN", "length", "formula", False, "polaris", "test", "overall", "tau-c")


@pytest.fixture
def rated(tmp_path):
    return load_benchmark("polaris", write_rated(tmp_path / "polaris", 40))


def test_every_figure_is_of_a_metric_and_a_benchmark_that_are_here():
    assert len(published_figures()) > 1000
    for each in published_figures():
        check_options(metric_spec(each.metric.removesuffix("_raw")), each.options, own=True)
        assert each.benchmark in {*list_benchmarks(), *BY_ARENA}, each
        assert -100 <= each.figure <= 100, each
        if each.benchmark not in BY_ARENA:
            tasks = ("REG", "VQA", "VDU", "IC") if each.benchmark == "mmhe" else ()
            assert each.split in ("", *benchmark_spec(each.benchmark).parts, *tasks)
            assert each.coefficient in KNOWN


@pytest.mark.parametrize(
    ("metric", "figure", "same"),
    [
        ("cider", {}, True),
        ("cider", {"variant": "train it"}, False),
        ("clipscore", {}, False),  # weights for drawings
        ("clipscore=ViT-B-32:openai", {"checkpoint": "ViT-B-32:openai"}, True),
        ("pacscore=files/clip_ViT-B-32.pth", {"checkpoint": "clip_ViT-B-32.pth"}, True),
        ("harmoniceval=http://a/v1#gpt-4o", {"checkpoint": "gpt-4o"}, True),
        ("harmoniceval=http://a/v1#gpt-4o", {"checkpoint": "gpt-4o", "options": {"gamma": 1}}, False),
    ],
)
def test_a_metric_is_the_published_one_by_checkpoint_and_options(metric, figure, same):
    source = MetricSource.parse(metric)
    assert is_published(source, replace(ONE, metric=source.name, **figure)) == same
    assert not is_published(source, replace(ONE, metric="refclipscore", **figure))


def beside(benchmark, figures, lost=0, **options):
    """Own values of the column good, of which some are lost."""
    scores = benchmark.columns["good"].copy()
    scores[:lost] = np.nan
    found = compare_published(benchmark, evaluate(benchmark, scores, resamples=1), figures, references=True, **options)
    return list(found)


def test_own_values_stand_beside_figures_of_the_same_part_and_coefficient(rated):
    details = evaluate(rated, rated.columns["good"], resamples=1).details["overall"]
    figures = (ONE, replace(ONE, coefficient="tau-b"), replace(ONE, split="", coefficient="tau"))
    found = beside(rated, figures)
    assert [each.value for each in found] == pytest.approx([100 * details[it] for it in ("tau_c", "tau_b", "tau_c")])
    assert found[0].difference == round(100 * details["tau_c"] - 50, 1)
    others = ({"split": "train"}, {"benchmark": "nebula"}, {"column": "fluency"}, {"coefficient": "auc"})
    assert beside(rated, (replace(ONE, **other) for other in others)) == []


def test_a_part_of_a_benchmark_or_more_references_have_no_published_figures(tmp_path, rated):
    part = load_rated(tmp_path / "part", 40)  # of 5,664
    assert beside(part, [replace(ONE, benchmark="flickr8k-expert", split="")]) == []
    assert [len(beside(rated, [ONE], lost)) for lost in (2, 3)] == [1, 0]  # of 40
    more = write_rated(tmp_path / "more", 40, change=lambda row: row["references"].append("B"))
    drawn = load_benchmark("polaris", more)
    drawn = replace(drawn, spec=replace(drawn.spec, drawn_references=1))
    assert [len(beside(replace(drawn, draws=draws), [ONE])) for draws in (0, 5)] == [0, 1]


@pytest.mark.parametrize(("value", "verdict"), [(50.5, "reproduced"), (49.46, "reproduced"), (50.6, "differs")])
def test_a_difference_of_half_a_point_is_reproduced(value, verdict):
    assert Compared(ONE, value).verdict == verdict


def test_bench_tells_the_figure_its_source_and_the_difference(rated, monkeypatch):
    twice = replace(ONE, sources=("PAPER table 1", "OTHER table 2"))
    monkeypatch.setattr("reward.metaeval.bench.published_figures", lambda: (twice,))
    [table] = run_bench([(rated, None)], [MetricSource("length"), MetricSource("good", is_column=True)], resamples=1)
    value = 100 * table.rows[0].evaluation.estimates["overall"].value
    report = bench_report([table], command="", seed=0, resamples=1, references=True)
    [row] = report.tables[-1].texts()
    assert row[:5] == ["length", "Polaris (test)", "tau-c", f"{value:.1f}", "50.0"]
    assert row[-1] == "PAPER table 1 and 1 more"
