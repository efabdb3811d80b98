"""Photos: what the specs say of checkpoints is as counted at their sizes, and `capreward metrics` shows it."""

import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration

from examples import photos_grpo
from reward import load_scorer
from reward.cli.metrics import metrics
from reward.errors import CapRewardError
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.clipscore.scorer import ClipScorer
from reward.metrics.vela.scorer import VelaScorer
from reward.registry import list_metrics, metric_spec
from tests.toys import paper_sizes
from tests.toys.fake_cuda import FakeDevice

FACTS = {facts.source: (name, facts) for name in list_metrics() for facts in metric_spec(name).checkpoints}
NOT_ON_THE_HUB = {"my-vela", "my-beitscore", "http://localhost:8123"} | {name for name in FACTS if ".pth" in name}
REPOSITORIES = {  # where open_clip finds what it calls ARCHITECTURE:TAG
    "ViT-B-32:openai": "timm/vit_base_patch32_clip_224.openai",
    "ViT-L-14:openai": "timm/vit_large_patch14_clip_224.openai",
    "ViT-H-14:laion2b_s32b_b79k": "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
}
CAPTIONS, FP32 = 8, torch.float32  # captions of one image
# {source: its scorer at its size}, one of each architecture; others differ from these in sizes alone
SCORERS = {
    "ViT-B-32:openai": lambda gpu: ClipScorer(paper_sizes.clip_towers(gpu, FP32, "ViT-B-32")),
    "BeichenZhang/LongCLIP-L": lambda gpu: ClipScorer(paper_sizes.clip_towers(gpu, FP32, context_length=248)),
    "google/siglip-so400m-patch14-384": lambda gpu: ClipScorer(paper_sizes.siglip_towers(gpu, FP32, 32_000)),
    "FacebookAI/roberta-large": lambda gpu: paper_sizes.bert(gpu, FP32),
    "my-vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, FP32)),
    "my-beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, FP32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("source", SCORERS)
def test_weights_and_work_of_a_metric_are_as_counted(source):
    facts, gpu = FACTS[source][1], FakeDevice()
    scorer = SCORERS[source](gpu)
    with gpu.run() as flops:
        assert not scorer.score(paper_sizes.captions_of_one_image(CAPTIONS)).errors
    assert facts.weights == sum(value.numel() for value in scorer.model.parameters())
    assert facts.gflops == pytest.approx(flops() / CAPTIONS / 1e9, rel=0.005)


def test_the_policy_and_judge_of_the_script_is_free_and_as_large_as_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(photos_grpo, "is_torch_bf16_gpu_available", lambda: True)
    options = photos_grpo.parse(["--images", str(tmp_path), "--output", "out"])
    facts = FACTS[options.model][1]
    model = FakeDevice().build(lambda: Qwen3VLForConditionalGeneration(paper_sizes.qwen3_vl("4B")))
    model.tie_weights()
    assert (options.second_source, facts.licence) == (options.model, "apache-2.0")
    assert facts.weights == sum(value.numel() for value in model.parameters())


@pytest.mark.parametrize("source", sorted(set(FACTS) - NOT_ON_THE_HUB))
def test_a_source_is_looked_for_where_it_is_published_and_holds_its_weights(source, hub):
    name, facts = FACTS[source]
    if "roberta" not in source:  # of which 7 layers are fetched and dropped
        assert facts.download / 2**30 == pytest.approx(facts.memory, rel=0.005)
    with pytest.raises(CapRewardError):  # the Hub of the test is empty
        load_scorer(name, source, device="cpu")
    repository = REPOSITORIES.get(source, source)
    assert any(repository in path for _, path in hub.requests), hub.requests


def test_the_metrics_for_photos_are_printed_with_every_checkpoint(capsys):
    metrics(purpose="photos")
    lines = capsys.readouterr().out.splitlines()
    assert [source for source in FACTS if not any(line.startswith(f"│ {source} ") for line in lines)] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vela", ["descriptiveness (desc)", "0 to 1", "-m vela=my-vela", "@inproceedings{vela,"]),
        ("CLIP-Score", ["ViT-B-32:openai", "605 MB", "apache-2.0", "Hessel, Jack"]),
        ("length", ["caption only", "Baseline of CapArena"]),
    ],
)
def test_one_metric_is_shown(name, said, capsys):
    metrics([name])
    printed = capsys.readouterr().out
    assert [each for each in said if each not in printed] == []
