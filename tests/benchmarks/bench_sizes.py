"""Work and memory at the sizes of the papers, counted without a GPU: scoring, and its share of a step of GRPO."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen2_5_VLForConditionalGeneration

from examples.photos_grpo import LORA
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.vela.scorer import VelaScorer
from tests.benchmarks.measuring import make_table, write_csv
from tests.toys import paper_sizes
from tests.toys.fake_cuda import GIB, FakeDevice

__all__ = ["ONE_PROMPT", "SCORERS"]

ONE_PROMPT = "vela, paper-one-prompt"
SCORERS: dict[str, Callable[[Any], Any]] = {
    "vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16)),
    ONE_PROMPT: lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16, preset="paper-one-prompt")),
    "beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, torch.bfloat16)),
}
GROUP = 8  # captions of an image in the table of shares
PHOTO = (34, 46)  # patches of a policy's photo of 640 x 480 pixels
PROMPT = 40  # tokens of the chat besides the photo


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="captions per image (G)")
    parser.add_argument("--words", type=int, default=140, help="words of a caption; five references have half")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="also write sizes_scoring.csv and sizes_share.csv")
    options = parser.parse_args()
    for name, table in (("scoring", scoring(options.groups, options.words)), ("share", share(options.words))):
        Console(width=120).print(table)
        if options.csv:
            write_csv(options.csv / f"sizes_{name}.csv", table)


def scoring(groups: list[int], words: int) -> Table:
    """The work of a group, shared and alone, and the memory that it takes."""
    table = make_table(
        f"Scoring G captions of one image, {words} words, five references, bfloat16",
        ["metric", "G", "TFLOP shared", "TFLOP one by one", "ratio", "GiB weights", "GiB peak"],
    )
    for name, make in SCORERS.items():
        gpu = FakeDevice()
        scorer = make(gpu)
        weights, alone = gpu.bytes, 0
        for count in groups:
            rows = paper_sizes.captions_of_one_image(count, words=words)
            gpu.peak = gpu.bytes
            with gpu.run() as flops:
                scorer.score(rows)
            work = flops()
            alone = alone or work // count
            table.add_row(
                *(name, str(count), f"{work / 1e12:.2f}", f"{count * alone / 1e12:.2f}", f"{count * alone / work:.2f}"),
                *(f"{weights / GIB:.2f}", f"{gpu.peak / GIB:.2f}"),
            )
    return table


def share(words: int) -> Table:
    """The share of the reward in a GRPO step's work, with Qwen2.5-VL-3B as the policy."""
    columns = ["trained", "metric", "TFLOP policy", "TFLOP reward", "share, %"]
    table = make_table(f"A GRPO step, {GROUP} captions of a photo of 640 x 480, {words} words each", columns)
    rewards = {}
    for name, references in (*((name, 5) for name in SCORERS), (ONE_PROMPT, 0)):
        gpu = FakeDevice()
        scorer = SCORERS[name](gpu)
        with gpu.run() as flops:
            scorer.score(paper_sizes.captions_of_one_image(GROUP, words=words, references=references))
        rewards[name if references else f"{name}, no references"] = flops()
    for trained, lora in (("LoRA", True), ("all weights", False)):
        gpu = FakeDevice("cpu")  # gradients need a real GPU, so these fake tensors are the CPU's
        policy = gpu.build(lambda lora=lora: _policy(lora=lora))
        inputs = _inputs(words)
        with gpu.memory(), FlopCounterMode(display=False) as flops:
            with torch.no_grad():  # a caption is written in as much work as one pass over it takes
                policy.eval()(**inputs, logits_to_keep=words)
            _learn(policy, inputs, words)
        work = GROUP * flops.get_total_flops()
        for name, reward in rewards.items():
            cells = (f"{work / 1e12:.0f}", f"{reward / 1e12:.1f}", f"{100 * reward / (work + reward):.1f}")
            table.add_row(trained, name, *cells)
    return table


def _policy(*, lora: bool) -> Any:
    """As `examples/photos_grpo.py` and TRL make it; without LoRA all of it is trained."""
    from trl.trainer.utils import add_fused_lm_head  # of newer versions than the oldest that we support

    model = Qwen2_5_VLForConditionalGeneration(paper_sizes.qwen_vl("3B")).to(torch.bfloat16)
    model.tie_weights()
    add_fused_lm_head(model)
    if lora:
        model = get_peft_model(model, LoraConfig(**LORA, task_type="CAUSAL_LM"))
        model.enable_input_require_grads()
    return model


def _inputs(completion: int) -> dict[str, torch.Tensor]:
    """Tensors that hold values: how the model cuts photos into windows depends on them."""
    height, width = PHOTO
    image = height * width // 4
    ids = torch.full((1, image + 2 + PROMPT + completion), 1000)
    start, end, patch = 151_652, 151_653, 151_655
    ids[:, : image + 2] = torch.tensor([start, *[patch] * image, end])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == patch).int(),
        "pixel_values": torch.zeros(height * width, 3 * 2 * 14 * 14, dtype=torch.bfloat16),
        "image_grid_thw": torch.tensor([[1, height, width]]),
    }


def _learn(policy: Any, inputs: dict[str, torch.Tensor], length: int) -> None:
    """Forward and backward pass of a training step, with gradient checkpointing, on captions of so many tokens."""
    policy.train()
    policy.gradient_checkpointing_enable({"use_reentrant": False})
    labels = inputs["input_ids"].clone()
    labels[:, :-length] = -100
    with torch.autocast("cpu", torch.bfloat16):
        policy(**inputs, labels=labels, fused_lm_head=True).log_probs.mean().backward()


if __name__ == "__main__":
    main()
