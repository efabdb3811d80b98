"""Work and memory at the sizes of the papers, counted without a GPU: scoring, and its share of a step of GRPO."""

import argparse
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen2_5_VLForConditionalGeneration

from examples.photos_grpo import LORA
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.vela.scorer import VelaScorer
from tests.benchmarks.measuring import show
from tests.toys import paper_sizes
from tests.toys.fake_cuda import GIB, FakeDevice

ONE_PROMPT = "vela, paper-one-prompt"
SCORERS = {
    "vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16)),
    ONE_PROMPT: lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16, preset="paper-one-prompt")),
    "beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, torch.bfloat16)),
}
SCORING = ("metric", "G", "TFLOP shared", "TFLOP one by one", "ratio", "GiB weights", "GiB peak")
SHARE = ("trained", "metric", "TFLOP policy", "TFLOP reward", "share, %")
WORDS = 140  # of a caption; five references have half
GROUP = 8  # captions of an image in the table of shares
PHOTO = (34, 46)  # patches of a policy's photo of 640 x 480 pixels
PROMPT = 40  # tokens of the chat besides the photo


def main():
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="captions per image (G)")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="also write sizes_scoring.csv and sizes_share.csv")
    options = parser.parse_args()
    scored, shared = (options.csv and options.csv / f"sizes_{name}.csv" for name in ("scoring", "share"))
    what = f"{WORDS} words, five references, bfloat16"
    show(f"Scoring G captions of one image, {what}", SCORING, scoring(options.groups), scored)
    show(f"A GRPO step, {GROUP} captions of a photo of 640 x 480, {WORDS} words each", SHARE, share(), shared)


def scoring(groups):
    """The work of a group, shared and alone, and the memory that it takes."""
    for name, make in SCORERS.items():
        gpu = FakeDevice()
        scorer = make(gpu)
        weights, alone = gpu.bytes, 0
        for count in groups:
            rows = paper_sizes.captions_of_one_image(count, words=WORDS)
            gpu.peak = gpu.bytes
            with gpu.run() as flops:
                scorer.score(rows)
            work = flops()
            alone = alone or work // count
            tera = [f"{work / 1e12:.2f}", f"{count * alone / 1e12:.2f}", f"{count * alone / work:.2f}"]
            yield [name, str(count), *tera, f"{weights / GIB:.2f}", f"{gpu.peak / GIB:.2f}"]


def share():
    """The share of the reward in a GRPO step's work, with Qwen2.5-VL-3B as the policy."""
    rewards = {}
    for name, references in (*((name, 5) for name in SCORERS), (ONE_PROMPT, 0)):
        gpu = FakeDevice()
        scorer = SCORERS[name](gpu)
        with gpu.run() as flops:
            scorer.score(paper_sizes.captions_of_one_image(GROUP, words=WORDS, references=references))
        rewards[name if references else f"{name}, no references"] = flops()
    inputs = _inputs()
    for trained in ("LoRA", "all weights"):
        gpu = FakeDevice("cpu")  # gradients need a real GPU, so these fake tensors are the CPU's
        policy = gpu.build(lambda trained=trained: _policy(lora=trained == "LoRA"))
        with gpu.memory(), FlopCounterMode(display=False) as counted:
            with torch.no_grad():  # a caption is written in as much work as one pass over it takes
                policy.eval()(**inputs, logits_to_keep=WORDS)
            _learn(policy, inputs)
        work = GROUP * counted.get_total_flops()
        for name, reward in rewards.items():
            yield [trained, name, f"{work / 1e12:.0f}", f"{reward / 1e12:.1f}", f"{100 * reward / (work + reward):.1f}"]


def _policy(*, lora):
    """As `examples/photos_grpo.py` and TRL make it; without LoRA all of it is trained."""
    from trl.trainer.utils import add_fused_lm_head  # of newer versions than the oldest that we support

    model = Qwen2_5_VLForConditionalGeneration(paper_sizes.qwen_vl("3B")).to(torch.bfloat16)
    model.tie_weights()
    add_fused_lm_head(model)
    if lora:
        model = get_peft_model(model, LoraConfig(**LORA, task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    return model


def _inputs():
    """Tensors that hold values: how the model cuts photos into windows depends on them."""
    height, width = PHOTO
    image = height * width // 4
    ids = torch.full((1, image + 2 + PROMPT + WORDS), 1000)
    start, end, patch = 151_652, 151_653, 151_655
    ids[:, : image + 2] = torch.tensor([start, *[patch] * image, end])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == patch).int(),
        "pixel_values": torch.zeros(height * width, 3 * 2 * 14 * 14, dtype=torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, height, width]]),
    }


def _learn(policy, inputs):
    """Forward and backward pass of a training step, with gradient checkpointing."""
    policy.train()
    policy.gradient_checkpointing_enable({"use_reentrant": False})
    labels = inputs["input_ids"].clone()
    labels[:, :-WORDS] = -100
    with torch.autocast("cpu", torch.bfloat16):
        policy(**inputs, labels=labels, fused_lm_head=True).log_probs.mean().backward()


if __name__ == "__main__":
    main()
