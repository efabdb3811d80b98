"""Work and memory at the sizes of the papers, counted without a GPU: scoring, its share of GRPO, a training step."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.training import BeitScoreCollator, BeitScoreNetwork
from reward.metrics.vela.scorer import VelaScorer
from reward.metrics.vela.training import VelaCollator
from reward.training.memory import count_step
from tests import paper_sizes
from tests.benchmarks import photo_memory
from tests.benchmarks.measuring import make_table, record
from tests.fake_cuda import GIB, FakeDevice

ONE_PROMPT = "vela, paper-one-prompt"
SCORERS: dict[str, Callable[[FakeDevice], Any]] = {
    "vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16)),
    ONE_PROMPT: lambda gpu: VelaScorer(paper_sizes.vela(gpu, torch.bfloat16, preset="paper-one-prompt")),
    "beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, torch.bfloat16)),
}
GROUP = 8  # captions of an image in the tables of parts and shares
Step = Callable[[Any], tuple[Any, dict[str, Any]]]  # of a device, the network and the batch of a training step
PHOTO = (34, 46)  # patches of a policy's photo of 640 x 480 pixels


def parse() -> argparse.Namespace:
    """Command line of the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="captions per image (G)")
    parser.add_argument("--words", type=int, default=140, help="words of a caption; five references have half")
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="FOLDER",
        help="also write each table as sizes_TABLE.csv: scoring, parts, share and training",
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048], help="tokens of a training prompt")
    return parser.parse_args()


def scoring(options: argparse.Namespace) -> None:
    """Prints the work of a group, shared and alone, and the memory that it takes."""
    table = make_table(
        f"Scoring G captions of one image, {options.words} words, five references, bfloat16",
        ["metric", "G", "TFLOP shared", "TFLOP one by one", "ratio", "GiB weights", "GiB peak"],
    )
    for name, make in SCORERS.items():
        gpu = FakeDevice()
        scorer = make(gpu)
        weights, alone = gpu.bytes, 0
        for count in options.groups:
            rows = paper_sizes.captions_of_one_image(count, words=options.words)
            gpu.peak = gpu.bytes
            with gpu.run() as flops:
                scorer.score(rows)
            work = flops()
            record({f"{name}, G {count}, one by one / shared, FLOPs": count * (alone or work) / work})
            alone = alone or work // count
            table.add_row(
                *(name, str(count), f"{work / 1e12:.2f}", f"{count * alone / 1e12:.2f}", f"{count * alone / work:.2f}"),
                *(f"{weights / GIB:.2f}", f"{gpu.peak / GIB:.2f}"),
            )
    _show(table, options, "sizes_scoring.csv")


def parts(options: argparse.Namespace) -> None:
    """Prints what the work of VELA consists of, for 8 captions of an image, and how much of it is padding."""
    columns = ["metric", "part", "tokens", "of them padding", "TFLOP", "share, %"]
    table = make_table(f"The work of {GROUP} captions of one image, {options.words} words, by parts", columns)
    for name in ("vela", ONE_PROMPT):
        gpu = FakeDevice()
        model = SCORERS[name](gpu).model
        rows = paper_sizes.captions_of_one_image(GROUP, words=options.words)
        towers, texts = model.image.towers, [row.candidate for row in rows]
        prompts = model.text.prompts.many([(row.candidate, row.references) for row in rows], model.config.aspects)
        shared = len({tuple(prompt.prefix) for prompt in prompts[0]}) == 1
        first = [prompts[0][0]] if shared else prompts[0]
        after = len(prompts) * sum(len(each.tail) + (0 if shared else len(each.candidate)) for each in prompts[0])
        after += sum(len(row[0].candidate) for row in prompts) if shared else 0
        with gpu.run() as image_work, torch.no_grad():
            model.image.encode_image(towers.preprocess(rows[0].image)[None].to(gpu.name))
        with gpu.run() as text_work, torch.no_grad():
            model.image.encode_candidate(towers.tokenize(texts)[0])
        with gpu.run() as prefix_work, torch.no_grad():
            model.text._states._read([prompt.prefix for prompt in first])
        with gpu.run() as all_work, torch.no_grad():
            model.text.encode(prompts)
        read = GROUP * towers.context_length
        cells = [
            ("rubrics, references", sum(len(prompt.prefix) for prompt in first), _padding(first), prefix_work()),
            ("candidates, cues", after, 0, all_work() - prefix_work()),
            ("CLIP, candidates", read, read - sum(len(text.split()) + 2 for text in texts), text_work()),
            ("CLIP, image", 257, 0, image_work()),
        ]
        total = sum(work for *_, work in cells)
        for part, tokens, padding, work in cells:
            table.add_row(name, part, str(tokens), str(padding), f"{work / 1e12:.2f}", f"{100 * work / total:.1f}")
    _show(table, options, "sizes_parts.csv")


def _padding(prompts: list[Any]) -> int:
    lengths = [len(prompt.prefix) for prompt in prompts]
    return max(lengths) * len(lengths) - sum(lengths)


def share(options: argparse.Namespace) -> None:
    """Prints the share of the reward in a GRPO step's work, with Qwen2.5-VL-3B as the policy."""
    columns = ["trained", "metric", "TFLOP policy", "TFLOP reward", "share, %"]
    table = make_table(f"A GRPO step, {GROUP} captions of a photo of 640 x 480, {options.words} words each", columns)
    rewards = {}
    for name, references in (*((name, 5) for name in SCORERS), (ONE_PROMPT, 0)):
        gpu = FakeDevice()
        scorer = SCORERS[name](gpu)
        rows = paper_sizes.captions_of_one_image(GROUP, words=options.words, references=references)
        with gpu.run() as flops:
            scorer.score(rows)
        rewards[name if references else f"{name}, no references"] = flops()
    for trained, lora in (("LoRA", True), ("all weights", False)):
        gpu = FakeDevice("cpu")  # gradients need a real GPU, so these fake tensors are the CPU's
        policy = gpu.build(lambda lora=lora: photo_memory.make_policy("3B", lora=lora))
        inputs = photo_memory.make_inputs(1, options.words, PHOTO)
        with gpu.memory(), FlopCounterMode(display=False) as flops:
            with torch.no_grad():  # a caption is written in as much work as one pass over it takes
                policy.eval()(**inputs, logits_to_keep=options.words)
            photo_memory.learn(policy, inputs, options.words)
        work = GROUP * flops.get_total_flops()
        for name, reward in rewards.items():
            cells = (f"{work / 1e12:.0f}", f"{reward / 1e12:.1f}", f"{100 * reward / (work + reward):.1f}")
            table.add_row(trained, name, *cells)
    _show(table, options, "sizes_share.csv")


def training(options: argparse.Namespace) -> None:
    """Prints the memory of one training step of the presets called `paper`."""
    columns = ["metric", "batch", "tokens", "gradient checkpointing", "TFLOP", "GiB peak"]
    table = make_table("A training step of --preset paper", columns)
    # gradients need a real GPU, so these fake tensors are the CPU's
    for metric, checkpointing, make in training_steps(options.lengths):
        gpu = FakeDevice("cpu")
        network, batch = make(gpu)
        counted = count_step(network, batch, precision="bf16")
        with gpu.run() as flops, torch.autocast("cpu", torch.bfloat16):
            learn(network, batch, gpu.name)
        cells = (metric, *map(str, batch_size(batch)), str(checkpointing).lower())
        table.add_row(*cells, f"{flops() / 1e12:.1f}", f"{counted.total / GIB:.1f}")
    _show(table, options, "sizes_training.csv")


def training_steps(lengths: Sequence[int]) -> Iterator[tuple[str, bool, Step]]:
    """The metric and gradient checkpointing of a step, and what makes its network and its batch."""
    for length, checkpointing in product(lengths, (False, True)):

        def vela(device: Any, length: int = length, checkpointing: bool = checkpointing) -> Any:
            model = paper_sizes.vela(device, torch.bfloat16, checkpointing=checkpointing)
            batch = VelaCollator(model)(_rows(4))
            batch["input_ids"] = torch.ones(4, length, dtype=torch.long)
            batch["attention_mask"] = torch.ones(4, length, dtype=torch.long)
            return model, batch

        yield "vela", checkpointing, vela

    def beitscore(device: Any) -> Any:
        network = BeitScoreNetwork(*paper_sizes.beitscore(device, torch.float32))
        return network, BeitScoreCollator(network)(_rows(24))

    yield "beitscore", False, beitscore


def batch_size(batch: dict[str, Any]) -> tuple[int, int]:
    """Rows, and tokens of the longest."""
    return tuple(next(batch[name] for name in ("input_ids", "text_ids") if name in batch).shape)


def learn(network: Any, batch: dict[str, Any], device: str) -> None:
    """Forward and backward pass of a training step."""
    batch = {key: value.to(device) for key, value in batch.items()}
    labels = batch.pop("labels")
    torch.nn.functional.mse_loss(network.train()(**batch).scores, labels).backward()


def _show(table: Table, options: argparse.Namespace, name: str) -> None:
    Console(width=120).print(table)
    if options.csv:
        cells = zip(*(column.cells for column in table.columns), strict=True)
        with (options.csv / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([[column.header for column in table.columns], *cells])


def _rows(count: int) -> list[dict[str, Any]]:
    return [{"sample": row, "aspect": 0, "target": 0.5} for row in paper_sizes.captions_of_one_image(count)]


if __name__ == "__main__":
    arguments = parse()
    scoring(arguments)
    parts(arguments)
    share(arguments)
    training(arguments)
