"""Photos: the facts about checkpoints in the specs can be counted or resolved."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration, Qwen3VLForConditionalGeneration

from reward import load_scorer
from reward.backbones.fit import on_meta
from reward.cli.metrics import metrics
from reward.errors import CapRewardError
from reward.metrics.base import CheckpointFacts
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.clipscore.scorer import ClipScorer
from reward.metrics.vela.scorer import VelaScorer
from reward.registry import list_metrics, metric_spec
from tests.toys import paper_sizes
from tests.toys.fake_cuda import FakeDevice
from tests.toys.loopback_hub import LoopbackHub

FACTS: dict[str, tuple[str, CheckpointFacts]] = {
    facts.source: (name, facts) for name in list_metrics() for facts in metric_spec(name).checkpoints
}
NOT_ON_THE_HUB = {"my-vela", "my-beitscore", "http://localhost:8123"} | {name for name in FACTS if ".pth" in name}
REPOSITORIES = {  # where open_clip finds what it calls ARCHITECTURE:TAG
    "ViT-B-32:openai": "timm/vit_base_patch32_clip_224.openai",
    "ViT-L-14:openai": "timm/vit_large_patch14_clip_224.openai",
    "ViT-H-14:laion2b_s32b_b79k": "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
}


FP32, CAPTIONS = torch.float32, 8  # of one image


def _clip(gpu: FakeDevice, name: str, context_length: int = 77) -> ClipScorer:
    return ClipScorer(paper_sizes.clip_towers(gpu, FP32, name, context_length=context_length))


# {source: how its scorer is built at its size}; PAC-S has the networks of the CLIPs that it was trained from
SCORERS: dict[str, Callable[[FakeDevice], Any]] = {
    **dict.fromkeys(
        ("ViT-B-32:openai", "clip_ViT-B-32.pth", "PAC++_clip_ViT-B-32.pth"), partial(_clip, name="ViT-B-32")
    ),
    **dict.fromkeys(
        ("ViT-L-14:openai", "openClip_ViT-L-14.pth", "PAC++_clip_ViT-L-14.pth"), partial(_clip, name="ViT-L-14")
    ),
    "ViT-H-14:laion2b_s32b_b79k": partial(_clip, name="ViT-H-14"),
    "BeichenZhang/LongCLIP-B": partial(_clip, name="ViT-B-16", context_length=248),
    "BeichenZhang/LongCLIP-L": partial(_clip, name="ViT-L-14", context_length=248),
    "google/siglip-so400m-patch14-384": lambda gpu: ClipScorer(paper_sizes.siglip_towers(gpu, FP32, 32_000)),
    "google/siglip2-so400m-patch14-384": lambda gpu: ClipScorer(paper_sizes.siglip_towers(gpu, FP32, 256_000)),
    "FacebookAI/roberta-large": lambda gpu: paper_sizes.bert(gpu, FP32),
    "my-vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, FP32)),
    "my-beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, FP32)),
}
JUDGES = {f"Qwen/Qwen2.5-VL-{size}-Instruct": size for size in ("3B", "7B")} | {"llava-hf/llava-1.5-13b-hf": "13b"}
JUDGES |= {"Skywork/Skywork-VL-Reward-7B": "7B", "Qwen/Qwen3-VL-Reranker-2B": "reranker"}  # the former without its head


@cache
def counted(make: Callable[[FakeDevice], Any]) -> tuple[int, float]:
    """Weights, and GFLOPs a caption."""
    gpu = FakeDevice()
    scorer = make(gpu)
    with gpu.run() as flops:
        assert not scorer.score(paper_sizes.captions_of_one_image(CAPTIONS)).errors
    return sum(value.numel() for value in scorer.model.parameters()), flops() / CAPTIONS / 1e9


@pytest.mark.slow
@pytest.mark.parametrize("source", SCORERS)
def test_weights_and_work_of_a_metric_are_as_counted(source: str) -> None:
    facts, (weights, gflops) = FACTS[source][1], counted(SCORERS[source])
    assert (facts.weights, facts.gflops) == (weights, pytest.approx(gflops, rel=0.005))


@pytest.mark.slow
@pytest.mark.parametrize("source", JUDGES)
def test_weights_of_a_judge_are_as_counted(source: str) -> None:
    if JUDGES[source] == "reranker":
        with on_meta():
            judge: Any = Qwen3VLForConditionalGeneration(paper_sizes.qwen3_vl_2b())
    elif "llava" not in source:
        with on_meta():
            judge = Qwen2_5_VLForConditionalGeneration(paper_sizes.qwen_vl(JUDGES[source]))
    else:
        judge, _ = paper_sizes.judge_parts(FakeDevice(), torch.float16)
    assert FACTS[source][1].weights == sum(value.numel() for value in judge.parameters())


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


def test_the_metrics_for_photos_are_printed_as_tables_with_every_checkpoint(capsys: Any) -> None:
    metrics(purpose="photos", markdown=True)
    which, checkpoints = (part.splitlines() for part in capsys.readouterr().out.split("\n\n")[:2])
    assert which[:2] == ["| metric | captions | needs | cannot see |", "| --- | --- | --- | --- |"]
    assert {line.count(" | ") for line in which} == {3}
    assert {line.count(" | ") for line in checkpoints} == {5}
    assert [source for source in FACTS if not any(line.startswith(f"| `{source}` |") for line in checkpoints)] == []


def test_every_fact_is_counted_or_said_to_be_unknown() -> None:
    assert {source for source, (_, facts) in FACTS.items() if facts.weights is not None} == {*SCORERS, *JUDGES}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vela"], ["descriptiveness (desc)", "0 to 1", "-m vela=my-vela", "@inproceedings{vela,"]),
        (["CLIP-Score"], ["ViT-B-32:openai", "605 MB", "apache-2.0", "Hessel, Jack"]),
        (["length"], ["caption only", "Baseline of CapArena"]),
    ],
)
def test_one_metric_is_shown(arguments: list[str], said: list[str], capsys: Any) -> None:
    metrics(arguments)
    printed = capsys.readouterr().out
    assert [each for each in said if each not in printed] == []
