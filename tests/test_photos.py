"""docs/PHOTOS.md: its tables are what the commands print, and the facts in them can be counted or resolved."""

from __future__ import annotations

from typing import Any

import pytest

from reward import load_scorer
from reward.errors import CapRewardError
from reward.metrics.published import CheckpointFacts
from reward.registry import list_metrics, metric_spec
from tests.benchmarks import photo_tables
from tests.loopback_hub import LoopbackHub

FACTS: dict[str, tuple[str, CheckpointFacts]] = {
    facts.source: (name, facts) for name in list_metrics() for facts in metric_spec(name).checkpoints
}
NOT_ON_THE_HUB = {"my-vela", "my-beitscore", "http://localhost:8123"} | {name for name in FACTS if ".pth" in name}
REPOSITORIES = {  # where open_clip finds what it calls ARCHITECTURE:TAG
    "ViT-B-32:openai": "timm/vit_base_patch32_clip_224.openai",
    "ViT-L-14:openai": "timm/vit_large_patch14_clip_224.openai",
    "ViT-H-14:laion2b_s32b_b79k": "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
}


def test_the_page_shows_what_the_commands_print() -> None:
    page = photo_tables.PAGE.read_text(encoding="utf-8")
    assert photo_tables.fill(page) == page, "write the page anew: python -m tests.benchmarks.photo_tables --write"


@pytest.mark.parametrize("source", photo_tables.SCORERS)
def test_weights_and_work_of_a_metric_are_as_counted(source: str) -> None:
    facts = FACTS[source][1]
    weights, gflops = photo_tables.count_scorer(source)
    assert facts.weights == weights
    assert facts.gflops == pytest.approx(gflops, rel=0.005)


@pytest.mark.parametrize("source", ["llava-hf/llava-1.5-13b-hf", *photo_tables.JUDGES])
def test_weights_of_a_judge_are_as_counted(source: str) -> None:
    assert FACTS[source][1].weights == photo_tables.count_judge(source)


@pytest.mark.timeout(900)  # a minute where nothing else runs
def test_the_memory_of_the_recipe_is_as_counted() -> None:
    found = photo_tables.count("3B", (64,))[64]
    row = ",".join(photo_tables.memory_row("3B", 64, found))
    assert row in photo_tables.MEMORY.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("source", sorted(set(FACTS) - NOT_ON_THE_HUB))
def test_what_is_fetched_holds_the_weights(source: str) -> None:
    facts = FACTS[source][1]
    assert facts.download is not None
    assert facts.memory is not None
    if "roberta" not in source:  # of which 7 layers are fetched and dropped
        assert facts.download / 2**30 == pytest.approx(facts.memory, rel=0.005)


@pytest.mark.parametrize("source", sorted(set(FACTS) - NOT_ON_THE_HUB))
def test_a_source_is_looked_for_where_it_is_published(source: str, hub: LoopbackHub) -> None:
    name, _ = FACTS[source]
    with pytest.raises(CapRewardError):  # the Hub of the test is empty
        load_scorer(name, source, device="cpu")
    repository = REPOSITORIES.get(source, source)
    assert any(repository in path for _, path in hub.requests), hub.requests


def test_every_fact_is_counted_or_said_to_be_unknown() -> None:
    counted = {*photo_tables.SCORERS, *photo_tables.JUDGES, "llava-hf/llava-1.5-13b-hf"}
    assert {source for source, (_, facts) in FACTS.items() if facts.weights is not None} == counted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vela"], ["descriptiveness (desc)", "0 to 1", "--metric vela --source my-vela", "@inproceedings{vela,"]),
        (["CLIP-Score"], ["ViT-B-32:openai", "605 MB", "apache-2.0", "Hessel, Jack"]),
        (["length"], ["caption only", "Baseline of CapArena"]),
    ],
)
def test_one_metric_is_shown(arguments: list[str], said: list[str], capsys: Any) -> None:
    photo_tables.metrics(*arguments)
    printed = capsys.readouterr().out
    assert [each for each in said if each not in printed] == []
