"""`bench --reproduce`: what runs, what is compared with what, and what the others are said to lack."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from reward.errors import DataError, UnknownMetricError
from reward.metaeval.bench import run_bench
from reward.metaeval.published import Figure
from reward.metaeval.reproduce import DATA, WEIGHTS, Reproduction, reproduce
from reward.registry import MetricSource
from tests.reward.metaeval.small_benchmarks import write_rated
from tests.toys.loopback_hub import LoopbackHub

LENGTH = Figure(50.0, ("PAPER table 1",), "LEN", "length", "formula", False, "polaris", "test", "overall", "tau-c")
FLEUR = replace(LENGTH, metric="fleur", checkpoint="llava-hf/llava-1.5-13b-hf")
SMALL = (
    LENGTH,
    replace(LENGTH, figure=-100.0, coefficient="tau-b"),
    replace(LENGTH, benchmark="nebula"),
    replace(LENGTH, benchmark="pascal-50s", split="", column="mean", coefficient="accuracy"),
    replace(LENGTH, benchmark="caparena", split="", coefficient="agreement"),
    FLEUR,
    replace(FLEUR, references=True),
    replace(LENGTH, metric="clipscore", checkpoint="ViT-B-32:openai"),
    replace(LENGTH, metric="pacscore", checkpoint="clip_ViT-B-32.pth"),
    replace(LENGTH, metric="vela", checkpoint="Ka2ukiMatsuda/vela", references=True),
    replace(LENGTH, metric="bertscore", checkpoint="not stated"),
    replace(LENGTH, metric="harmoniceval", checkpoint="gpt-4o"),
    replace(LENGTH, metric="beitscore", checkpoint="not published", variant="train beitscore"),
    replace(FLEUR, metric="fleur_raw"),
)


@pytest.fixture(autouse=True)
def few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward.metaeval.reproduce.published_figures", lambda: SMALL)


@pytest.fixture
def polaris(tmp_path: Path) -> str:
    data = write_rated(tmp_path / "polaris", 40, change=lambda row: row.update(fleur=row["good"]))
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
    assert lacks(found, DATA).keys() == {"nebula", "pascal-50s", "caparena"}
    assert lacks(found, DATA)["nebula"] == "hf download --repo-type dataset Ka2ukiMatsuda/Nebula"
    assert lacks(found, DATA)["pascal-50s"].startswith("give pascal-50s=PATH; from: the repository of FLEUR")
    assert lacks(found, DATA)["caparena"].endswith("capreward arena")
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
    assert [grid.title.partition(",")[0] for grid in found.grids()] == [
        "Beside published figures",
        "Not run",
        "Not run",
    ]


def test_words_choose_and_a_checkpoint_of_ones_own_stands_for_weights_that_nobody_has(polaris: str) -> None:
    found = reproduce(["length", polaris])
    assert found.total == len(found.compared) == 2
    found = reproduce(["vela=somewhere/else", polaris])
    assert found.total == 1
    [(kind, name, problem)] = found.missing
    assert (kind, name) == (WEIGHTS, "vela=somewhere/else")
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


def test_captions_that_cannot_be_scored_are_told_in_place_of_a_verdict(tmp_path: Path) -> None:
    data = write_rated(tmp_path, 40, change=lambda row: row.update(candidate="" if row["image"] == "0.png" else "red"))
    found = reproduce(["length", f"polaris={data}"])
    assert not found.compared
    [problem] = [lacks for _, _, lacks in found.missing]
    assert "4 captions have no score, the first: the caption is empty" in problem


def test_data_of_the_hub_are_fetched_if_asked_for_or_taken_from_the_cache(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import snapshot_download

    monkeypatch.setattr("datasets.config.HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    captions, buffer = [" ".join("dog" for _ in range(n + 1)) for n in range(6)], io.BytesIO()
    rows = {"file_name": [f"{n}.jpg" for n in range(6)], "mt": captions, "human_score": [n / 5 for n in range(6)]}
    Dataset.from_dict({**rows, "refs": [["a dog"]] * 6}).to_parquet(buffer)
    files = {"README.md": b"# Data\n", "data/test-00000-of-00001.parquet": buffer.getvalue()}
    hub.add_repo("Ka2ukiMatsuda/Nebula", files, kind="datasets")
    assert not reproduce(["length", "nebula"]).compared
    assert hub.requests == []
    [(_, title, beside)] = reproduce(["length", "nebula"], download=True).compared
    assert (title, beside.value) == ("Nebula (test)", pytest.approx(100))
    snapshot_download("Ka2ukiMatsuda/Nebula", repo_type="dataset")
    assert len(reproduce(["length", "nebula"]).compared) == 1
