"""Published figures: that the data are whole, which stand beside one's own, and `bench --reproduce`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError, UnknownMetricError
from reward.metaeval.bench import run_bench
from reward.metaeval.benchmarks import Benchmark, benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.evaluation import evaluate
from reward.metaeval.published import Compared, Figure, compare_published, is_published, published_figures
from reward.metaeval.reproduce import DATA, WEIGHTS, Reproduction, reproduce
from reward.registry import MetricSource, metric_spec
from reward.report.bench import bench_report, reproduction_report
from tests.reward.metaeval.benchmarks.published_layouts import parquet
from tests.reward.metaeval.small_benchmarks import write_rated
from tests.toys.loopback_hub import LoopbackHub

BY_ARENA = {"caparena", "caparena-auto"}  # of the command `arena`
KNOWN = {"tau", "tau-b", "tau-c", "spearman", "accuracy", "auc", "ap", "text", "image", "group"}
ONE = Figure(50.0, ("PAPER table 1",), "LEN", "length", "formula", False, "polaris", "test", "overall", "tau-c")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rated(tmp_path / "polaris", 40, change=lambda row: row.update(fleur=row["good"]))


@pytest.fixture
def rated(data: Path) -> Benchmark:
    return load_benchmark("polaris", data)


def test_every_figure_is_of_a_metric_and_a_benchmark_that_are_here() -> None:
    assert len(published_figures()) > 1000
    for each in published_figures():
        assert metric_spec(each.metric.removesuffix("_raw")), each
        assert each.benchmark in {*list_benchmarks(), *BY_ARENA}, each
        assert -100 <= each.figure <= 100, each
        if each.benchmark not in BY_ARENA:
            tasks = ("REG", "VQA", "VDU", "IC") if each.benchmark == "mmhe" else ()
            assert each.split in ("", *benchmark_spec(each.benchmark).parts, *tasks)
            assert each.coefficient in KNOWN


# Beside one's own


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
def test_a_metric_is_the_published_one_by_checkpoint_and_options(
    metric: str, figure: dict[str, Any], same: bool
) -> None:
    source = MetricSource.parse(metric)
    assert is_published(source, replace(ONE, metric=source.name, **figure)) == same
    assert not is_published(source, replace(ONE, metric="refclipscore", **figure))


def beside(benchmark: Benchmark, figures: Iterable[Figure], lost: int = 0, **options: Any) -> list[Compared]:
    """Own values of the column good, of which some are lost."""
    scores = benchmark.columns["good"].copy()
    scores[:lost] = np.nan
    found = compare_published(benchmark, evaluate(benchmark, scores, resamples=1), figures, references=True, **options)
    return list(found)


def test_own_values_stand_beside_figures_of_the_same_part_and_coefficient(rated: Benchmark) -> None:
    details = evaluate(rated, rated.columns["good"], resamples=1).details["overall"]
    figures = (ONE, replace(ONE, coefficient="tau-b"), replace(ONE, split="", coefficient="tau"))
    found = beside(rated, figures)
    assert [each.value for each in found] == pytest.approx([100 * details[it] for it in ("tau_c", "tau_b", "tau_c")])
    assert found[0].difference == round(100 * details["tau_c"] - 50, 1)
    others = ({"split": "train"}, {"benchmark": "nebula"}, {"column": "fluency"}, {"coefficient": "auc"})
    assert beside(rated, (replace(ONE, **other) for other in others)) == []


def test_a_part_of_a_benchmark_or_more_references_have_no_published_figures(tmp_path: Path, rated: Benchmark) -> None:
    part = load_benchmark("flickr8k-expert", write_rated(tmp_path / "part", 40))  # of 5,664
    assert beside(part, [replace(ONE, benchmark="flickr8k-expert", split="")]) == []
    assert [len(beside(rated, [ONE], lost)) for lost in (2, 3)] == [1, 0]  # of 40
    more = write_rated(tmp_path / "more", 40, change=lambda row: row["references"].append("B"))
    drawn = load_benchmark("polaris", more)
    drawn = replace(drawn, spec=replace(drawn.spec, drawn=1))
    assert [len(beside(replace(drawn, draws=draws), [ONE])) for draws in (0, 5)] == [0, 1]


@pytest.mark.parametrize(("value", "verdict"), [(50.5, "reproduced"), (49.46, "reproduced"), (50.6, "differs")])
def test_a_difference_of_half_a_point_is_reproduced(value: float, verdict: str) -> None:
    assert Compared(ONE, value).verdict == verdict


def test_bench_tells_the_figure_its_source_and_the_difference(
    rated: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = replace(ONE, sources=("PAPER table 1", "OTHER table 2"))
    monkeypatch.setattr("reward.metaeval.bench.published_figures", lambda: (twice,))
    [table] = run_bench([(rated, None)], [MetricSource("length"), MetricSource("good", is_column=True)], resamples=1)
    assert table.rows[0].evaluation is not None
    value = 100 * table.rows[0].evaluation.estimates["overall"].value
    report = bench_report([table], command="", seed=0, resamples=1, references=True)
    [row] = report.grids[-1].rows
    assert row[:5] == ("length", "Polaris (test)", "tau-c", f"{value:.1f}", "50.0")
    assert row[-1] == "PAPER table 1 and 1 more"
    rows = report.to_json()["benchmarks"][0]["rows"]
    assert "published" not in rows[1]
    assert (rows[0]["published"][0]["sources"], rows[0]["published"][0]["value"]) == ([*twice.sources], value)


# Reproduced

FLEUR = replace(ONE, metric="fleur", checkpoint="llava-hf/llava-1.5-13b-hf")
SMALL = (
    ONE,
    replace(ONE, figure=-100.0, coefficient="tau-b"),
    replace(ONE, benchmark="nebula"),
    replace(ONE, benchmark="pascal-50s", split="", column="mean", coefficient="accuracy"),
    replace(ONE, benchmark="caparena", split="", coefficient="agreement"),
    FLEUR,
    replace(FLEUR, references=True),
    replace(ONE, metric="clipscore", checkpoint="ViT-B-32:openai"),
    replace(ONE, metric="pacscore", checkpoint="clip_ViT-B-32.pth"),
    replace(ONE, metric="vela", checkpoint="Ka2ukiMatsuda/vela", references=True),
    replace(ONE, metric="bertscore", checkpoint="not stated"),
    replace(ONE, metric="harmoniceval", checkpoint="gpt-4o"),
    replace(ONE, metric="beitscore", checkpoint="not published", variant="train beitscore"),
    replace(FLEUR, metric="fleur_raw"),
)


@pytest.fixture
def polaris(data: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Data of one's own, and few figures."""
    monkeypatch.setattr("reward.metaeval.reproduce.published_figures", lambda: SMALL)
    return f"polaris={data}"


def lacks(found: Reproduction, kind: str) -> dict[str, str]:
    return {name: missing for what, name, missing in found.missing if what == kind}


def test_what_is_here_runs_and_the_others_are_told_what_to_fetch(polaris: str) -> None:
    found = reproduce(["ALL", polaris])
    assert {(label, title) for label, title, _ in found.compared} == {
        ("length", "Polaris (test)"),
        ("column:fleur", "Polaris (test)"),  # its authors' scores, of the figure without references only
    }
    assert [each.published.metric for *_, each in found.compared].count("fleur") == 1
    assert {each.verdict for *_, each in found.compared if each.published.figure == -100} == {"differs"}
    data = lacks(found, DATA)
    assert data.pop("nebula") == "hf download --repo-type dataset Ka2ukiMatsuda/Nebula"
    assert data.pop("pascal-50s").startswith("give pascal-50s=PATH; from: the repository of FLEUR")
    assert data.pop("caparena").endswith("capreward arena")
    assert data == {}
    assert lacks(found, WEIGHTS) == {
        "fleur=llava-hf/llava-1.5-13b-hf": "hf download llava-hf/llava-1.5-13b-hf",
        "clipscore=ViT-B-32:openai": "hf download timm/vit_base_patch32_clip_224.openai",
        "pacscore=clip_ViT-B-32.pth": "a file of its authors: give pacscore=clip_ViT-B-32.pth",
        "vela=Ka2ukiMatsuda/vela": "its authors' weights cannot be read here: train vela --preset paper, and give "
        "vela=FOLDER",
        "bertscore=not stated": "the source does not say which weights: give bertscore=CHECKPOINT",
        "harmoniceval=gpt-4o": "a model behind a server: give harmoniceval=http://ADDRESS/v1#gpt-4o",
        "beitscore=not published": "not published: capreward train beitscore",
        "fleur_raw=llava-hf/llava-1.5-13b-hf": "scores of its authors, in a column fleur_raw of the benchmark's file",
    }
    assert found.summary().startswith("14 published figures: ")
    assert found.summary().endswith(" 11 not run")
    titles = [grid.title.partition(",")[0] for grid in reproduction_report(found, command="").grids]
    assert titles == ["Beside published figures", "Not run", "Not run"]


def test_words_choose_and_a_checkpoint_of_ones_own_stands_for_weights_that_nobody_has(polaris: str) -> None:
    found = reproduce(["length", polaris])
    assert found.total == len(found.compared) == 2
    found = reproduce(["vela=somewhere/else", polaris])
    [(kind, name, problem)] = found.missing
    assert (found.total, kind, name) == (1, WEIGHTS, "vela=somewhere/else")
    assert "somewhere/else" in problem  # it was asked for, and is not there
    with pytest.raises(DataError, match="no published figure is known of crossencoder"):
        reproduce(["crossencoder"])
    with pytest.raises(UnknownMetricError):
        reproduce(["lenght"])


def test_what_breaks_a_metric_is_told_and_the_others_run(polaris: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(benchmarks: Any, metrics: list[MetricSource], **options: Any) -> Any:
        if metrics[0].name == "length":
            raise RuntimeError("the GPU is full\nand much more")
        return run_bench(benchmarks, metrics, **options)

    monkeypatch.setattr("reward.metaeval.reproduce.run_bench", run)
    found = reproduce(["ALL", polaris])
    assert {label for label, *_ in found.compared} == {"column:fleur"}
    assert found.missing[WEIGHTS, "length", "the GPU is full"] == 2


def test_captions_that_cannot_be_scored_are_told_in_place_of_a_verdict(polaris: str, tmp_path: Path) -> None:
    data = write_rated(tmp_path, 40, change=lambda row: row.update(candidate="" if row["image"] == "0.png" else "red"))
    found = reproduce(["length", f"polaris={data}"])
    assert not found.compared
    [problem] = [lacks for _, _, lacks in found.missing]
    assert "4 captions have no score, the first: the caption is empty" in problem


def test_data_of_the_hub_are_fetched_if_asked_for_or_taken_from_the_cache(
    polaris: str, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import snapshot_download

    monkeypatch.setattr("datasets.config.HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = {"file_name": [f"{n}.jpg" for n in range(6)], "mt": ["dog " * (n + 1) for n in range(6)]}
    table = parquet({**rows, "human_score": [n / 5 for n in range(6)], "refs": [["a dog"]] * 6})
    files = {"README.md": b"# Data\n", "data/test-00000-of-00001.parquet": table}
    hub.add_repo("Ka2ukiMatsuda/Nebula", files, kind="datasets")
    assert not reproduce(["length", "nebula"]).compared
    assert hub.requests == []
    [(_, title, found)] = reproduce(["length", "nebula"], download=True).compared
    assert (title, found.value) == ("Nebula (test)", pytest.approx(100))
    snapshot_download("Ka2ukiMatsuda/Nebula", repo_type="dataset")
    assert len(reproduce(["length", "nebula"]).compared) == 1
