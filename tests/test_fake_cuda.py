"""Metrics, rewards, judges, decoding and training steps on a GPU that is not there, at the sizes of the papers.

A tensor that was left on the CPU, or two dtypes that do not go together, raise here as they would on a GPU.
"""

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
from tests.toys import paper_sizes
from tests.toys.fake_cuda import GIB, FakeDevice
from tests.toys.paper_sizes import captions_of_one_image

pytestmark = pytest.mark.slow

BF16, FP32 = torch.bfloat16, torch.float32
# A few layers show what more of them would. "one prompt" reads a caption once for all aspects.
SCORERS = {
    "vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, BF16, layers=2)),
    "one prompt": lambda gpu: VelaScorer(paper_sizes.vela(gpu, BF16, layers=2, preset="paper-one-prompt")),
    "beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, BF16, layers=2)),
    "clipscore": lambda gpu: ClipScorer(paper_sizes.clip_towers(gpu, BF16)),
}


@pytest.mark.parametrize("name", SCORERS)
def test_scores_at_paper_size(name):
    """Two images, one of them with three captions; the CPU waits for the GPU only to read results."""
    gpu = FakeDevice()
    scorer = SCORERS[name](gpu)
    weights = gpu.bytes
    with gpu.run() as flops:
        table = scorer.score([*captions_of_one_image(3), *captions_of_one_image(1, color="blue")])
    assert table.errors == {}
    assert table.scores.shape == (4, len(scorer.spec.aspects))
    assert flops() > 1e11
    assert weights < gpu.peak < weights + GIB / 4
    assert gpu.bytes == weights
    assert sum(gpu.reads.values()) == (2 if name == "clipscore" else 1), gpu.reads


def test_an_offloaded_reward_leaves_the_gpu_between_calls():
    gpu = FakeDevice()
    reward = MetricReward(SCORERS["beitscore"](gpu), offload=True)
    with gpu.run():
        reward.load()
        assert gpu.bytes == 0
        for _ in range(2):
            assert reward.rewards(captions_of_one_image(2)) == [1.0, 1.0]
            assert gpu.bytes == 0
    assert gpu.peak > GIB / 8
    with pytest.raises(ConfigError, match="'length' runs no network of its own that could be moved: drop offload"):
        MetricReward("length", offload=True).load()


@pytest.mark.parametrize("name", ["vela", "beitscore"])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_training_step_at_paper_size(name, device):
    """On the GPU the forward pass, which finds what was left on the CPU; on fake tensors of the CPU the whole step."""
    gpu = FakeDevice(device)
    if name == "vela":
        network = paper_sizes.vela(gpu, BF16, layers=2)
        collate = VelaCollator(network)
    else:
        network = BeitScoreNetwork(*paper_sizes.beitscore(gpu, FP32, layers=2))
        collate = BeitScoreCollator(network)
    network.train()
    batch = collate([{"sample": row, "aspect": 0, "target": 0.5} for row in captions_of_one_image(2)])
    with gpu.run():
        labels = batch.pop("labels").to(device)
        output = network(**{key: value.to(device) for key, value in batch.items()})
        loss = torch.nn.functional.mse_loss(output.scores, labels)
        assert loss.dtype == torch.float32
        if device == "cpu":
            loss.backward()
            assert [key for key, p in network.named_parameters() if p.requires_grad and p.grad is None] == []
            torch.optim.AdamW(network.parameters()).step()


def test_a_judge_at_paper_size():
    gpu = FakeDevice()
    judge = LocalJudge(*paper_sizes.judge_parts(gpu, BF16, layers=2))
    image = captions_of_one_image(1)[0].image
    questions = [Question(f"Rate this caption from 0 to 9: {caption}", image) for caption in ("a star", "a red star")]
    with gpu.run():
        digits = list("0123456789")
        judge.generate(questions, max_new_tokens=1, track=digits)
        gpu.reads.clear()  # the first call also compares shared and whole prompts
        judge.generate(questions, max_new_tokens=1, track=digits)
        assert sum(gpu.reads.values()) <= 9, gpu.reads
        assert len(judge.generate(questions, max_new_tokens=4)) == 2


def test_best_of_n_at_paper_size():
    """Captioner and metric on one GPU. A captioner with image tokens would count them on the GPU, without values."""
    gpu = FakeDevice()
    model, tokenizer = paper_sizes.captioner(gpu, BF16)
    images = [captions_of_one_image(1)[0].image] * 2
    decoding = BestOfN(MetricReward(SCORERS["beitscore"](gpu)), n=4, processor=tokenizer, images=images)
    gpu.condition = True  # every caption ends at its first token
    with gpu.run():
        pixels = torch.zeros(2, 3, 224, 224, dtype=BF16, device="cuda")
        out = model.generate(pixel_values=pixels, custom_generate=decoding, max_new_tokens=4)
    assert gpu.is_on(out)
    assert out.shape == (2, 2)
