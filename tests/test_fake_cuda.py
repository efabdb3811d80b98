"""Metrics, rewards, judges, decoding and training steps on a GPU that is not there, at the sizes of the papers.

A tensor that was left on the CPU, or two dtypes that do not go together, raise here as they would on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from integrations.hf_generate import BestOfN
from reward import MetricReward
from reward.errors import ConfigError
from reward.judges import Question
from reward.judges.local import LocalJudge
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.training import BeitScoreCollator, BeitScoreNetwork
from reward.metrics.clipscore.scorer import ClipScorer
from reward.metrics.vela.scorer import VelaScorer
from reward.metrics.vela.training import VelaCollator
from reward.samples import CaptionSample
from tests.toys import paper_sizes
from tests.toys.fake_cuda import GIB, FakeDevice

pytestmark = pytest.mark.slow

BF16, FP32 = torch.bfloat16, torch.float32


def make_scorer(name: str, gpu: FakeDevice, dtype: torch.dtype, layers: int = 2) -> Any:
    """A metric of the papers' width and images; a few layers show what more of them would."""
    if name == "beitscore":
        return BeitScoreScorer(*paper_sizes.beitscore(gpu, dtype, layers=layers))
    if name == "clipscore":
        return ClipScorer(paper_sizes.clip_towers(gpu, dtype))
    preset = "paper-one-prompt" if name == "vela with one prompt" else "paper"
    return VelaScorer(paper_sizes.vela(gpu, dtype, lora=name == "vela with adapters", layers=layers, preset=preset))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, BF16) for name in ("vela", "vela with adapters", "vela with one prompt", "beitscore", "clipscore")),
        ("vela", FP32),
    ],
)
def test_scores_at_paper_size(name: str, dtype: torch.dtype) -> None:
    """Two images, one of them with three captions; the CPU waits for the GPU only to read results."""
    gpu = FakeDevice()
    scorer = make_scorer(name, gpu, dtype)
    weights = gpu.bytes
    rows = [*paper_sizes.captions_of_one_image(3), *paper_sizes.captions_of_one_image(1, color="blue")]
    with gpu.run() as flops:
        table = scorer.score(rows)
    assert table.errors == {}
    assert table.scores.shape == (4, len(scorer.spec.aspects))
    assert flops() > 1e11
    assert weights < gpu.peak < weights + GIB / 4
    assert gpu.bytes == weights
    reading = {"clipscore": {"reward/metrics/clipscore/scorer.py _unit": 2}}
    expected = {f"reward/metrics/{name.split()[0]}/scorer.py score_groups": 1}
    assert gpu.reads == reading.get(name, expected)


def test_a_group_of_a_trainer_shares_its_prefix() -> None:
    """The call that GRPO makes, for 4 captions of an image, takes far less work than 4 calls for one each."""
    gpu = FakeDevice()
    reward = MetricReward(make_scorer("vela with adapters", gpu, BF16))
    rows = paper_sizes.captions_of_one_image(4)

    def call(some: list[CaptionSample]) -> list[float | None]:
        prompts = [[{"role": "user", "content": "Describe the image."}]] * len(some)
        completions = [[{"role": "assistant", "content": row.candidate}] for row in some]
        columns = {"image": [row.image for row in some], "references": [row.references for row in some]}
        return reward(prompts=prompts, completions=completions, completion_ids=[[1]] * len(some), **columns)

    with gpu.run() as flops:
        assert call(rows) == [1.0] * 4
        shared = flops()
        call(rows[:1])
    assert 2 < 4 * (flops() - shared) / shared < 4


def test_one_prompt_for_all_aspects_reads_a_caption_once() -> None:
    work, rows = {}, paper_sizes.captions_of_one_image(8, words=140)
    for name in ("vela", "vela with one prompt"):
        gpu = FakeDevice()
        scorer = make_scorer(name, gpu, BF16, layers=1)
        with gpu.run() as flops:
            scorer.score(rows)
        work[name] = flops()
    assert work["vela"] > 1.6 * work["vela with one prompt"]


def test_an_offloaded_reward_leaves_the_gpu_between_calls() -> None:
    gpu = FakeDevice()
    reward = MetricReward(make_scorer("beitscore", gpu, BF16), offload=True)
    rows = paper_sizes.captions_of_one_image(2)
    with gpu.run():
        reward.load()
        assert gpu.bytes == 0
        for _ in range(2):
            assert reward.rewards(rows) == [1.0, 1.0]
            assert gpu.bytes == 0
    assert gpu.peak > GIB / 8


def test_a_metric_without_network_is_not_offloaded() -> None:
    with pytest.raises(ConfigError, match="'length' runs no network of its own that could be moved: drop offload"):
        MetricReward("length", offload=True).rewards([CaptionSample("A star.")])


@pytest.mark.parametrize("name", ["vela", "beitscore"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_training_step_at_paper_size(name: str, device: str) -> None:
    """On the GPU the forward pass, which finds what was left on the CPU; on fake tensors of the CPU the whole step."""
    gpu = FakeDevice(device)
    network: Any
    if name == "vela":
        network = paper_sizes.vela(gpu, BF16, layers=2)
        collate: Any = VelaCollator(network)
    else:
        model, tokenizer = paper_sizes.beitscore(gpu, FP32, layers=2)
        network = BeitScoreNetwork(model, tokenizer)
        collate = BeitScoreCollator(network)
    network.train()
    trained = {key: value for key, value in network.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(trained.values())
    rows = [{"sample": row, "aspect": 0, "target": 0.5} for row in paper_sizes.captions_of_one_image(2)]
    batch = collate(rows)
    with gpu.run():
        labels = batch.pop("labels").to(device)
        output = network(**{key: value.to(device) for key, value in batch.items()})
        loss = torch.nn.functional.mse_loss(output.scores, labels)
        assert loss.dtype == torch.float32
        if device == "cpu":
            loss.backward()
            assert [key for key, value in trained.items() if value.grad is None] == []
            optimizer.step()


def test_a_judge_at_paper_size() -> None:
    gpu = FakeDevice()
    judge = LocalJudge(*paper_sizes.judge_parts(gpu, BF16, layers=2))
    image = paper_sizes.captions_of_one_image(1)[0].image
    questions = [Question(f"Rate this caption from 0 to 9: {caption}", image) for caption in ("a star", "a red star")]
    with gpu.run():
        assert judge.answer_distribution(questions, list("0123456789")).shape == (2, 10)
        gpu.reads.clear()  # the first call also compares shared and whole prompts
        judge.answer_distribution(questions, list("0123456789"))
        assert sum(gpu.reads.values()) <= 6, gpu.reads
        assert len(judge.generate(questions, max_new_tokens=4)) == 2


def test_best_of_n_at_paper_size() -> None:
    """Captioner and metric on one GPU. A captioner with image tokens would count them on the GPU, without values."""
    gpu = FakeDevice()
    model, tokenizer = paper_sizes.captioner(gpu, BF16)
    image = paper_sizes.captions_of_one_image(1)[0].image
    decoding = BestOfN(MetricReward(make_scorer("beitscore", gpu, BF16)), n=4, processor=tokenizer, images=[image] * 2)
    gpu.condition = True  # every caption ends at its first token
    with gpu.run():
        pixels = torch.zeros(2, 3, 224, 224, dtype=BF16, device="cuda")
        out = model.generate(pixel_values=pixels, custom_generate=decoding, max_new_tokens=4)
    assert gpu.is_on(out)
    assert out.shape == (2, 2)
