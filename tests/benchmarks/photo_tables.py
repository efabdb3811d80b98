"""What docs/PHOTOS.md shows, counted without a GPU: the metrics for photos, and the memory of its recipe.

python -m tests.benchmarks.photo_tables            # count the metrics, and print the tables of the page
python -m tests.benchmarks.photo_tables --memory   # count the recipe's memory anew, into docs/results (minutes)
python -m tests.benchmarks.photo_tables --write    # write the tables into the page
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from reward.backbones.fit import on_meta
from reward.cli.metrics import metrics
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.clipscore.scorer import ClipScorer
from reward.metrics.vela.scorer import VelaScorer
from tests import paper_sizes
from tests.benchmarks.photo_memory import Memory, count
from tests.fake_cuda import FakeDevice

FP32 = torch.float32
PAGE = Path(__file__).resolve().parents[2] / "docs" / "PHOTOS.md"
MEMORY = PAGE.parent / "results" / "photos_memory.csv"
HEADS = ["policy", "tokens a caption", "weights", "LoRA, AdamW", "reward", "training", "writing", "at most"]
CAPTIONS = 8  # of one image


def _clip(name: str, context_length: int = 77) -> Callable[[FakeDevice], Any]:
    return lambda gpu: ClipScorer(paper_sizes.clip_towers(gpu, FP32, name, context_length=context_length))


# {source: how its scorer is built at its size}; PAC-S has the networks of the CLIPs that it was trained from
SCORERS: dict[str, Callable[[FakeDevice], Any]] = {
    "ViT-B-32:openai": _clip("ViT-B-32"),
    "ViT-L-14:openai": _clip("ViT-L-14"),
    "ViT-H-14:laion2b_s32b_b79k": _clip("ViT-H-14"),
    "BeichenZhang/LongCLIP-B": _clip("ViT-B-16", 248),
    "BeichenZhang/LongCLIP-L": _clip("ViT-L-14", 248),
    "clip_ViT-B-32.pth": _clip("ViT-B-32"),
    "openClip_ViT-L-14.pth": _clip("ViT-L-14"),
    "PAC++_clip_ViT-B-32.pth": _clip("ViT-B-32"),
    "PAC++_clip_ViT-L-14.pth": _clip("ViT-L-14"),
    "FacebookAI/roberta-large": lambda gpu: paper_sizes.bert(gpu, FP32),
    "my-vela": lambda gpu: VelaScorer(paper_sizes.vela(gpu, FP32)),
    "my-beitscore": lambda gpu: BeitScoreScorer(*paper_sizes.beitscore(gpu, FP32)),
}
JUDGES = {
    "Qwen/Qwen2.5-VL-3B-Instruct": paper_sizes.qwen_vl("3B"),
    "Qwen/Qwen2.5-VL-7B-Instruct": paper_sizes.qwen_vl("7B"),
}


def count_scorer(source: str) -> tuple[int, float]:
    """Numbers in the networks of a checkpoint, and billions of operations a caption."""
    gpu = FakeDevice()
    scorer = SCORERS[source](gpu)
    with gpu.run() as flops:
        table = scorer.score(paper_sizes.captions_of_one_image(CAPTIONS))
    assert not table.errors, table.errors
    return sum(value.numel() for value in scorer.model.parameters()), flops() / CAPTIONS / 1e9


def count_judge(source: str) -> int:
    """Numbers in the network of a judge."""
    with on_meta():
        if source in JUDGES:
            return sum(value.numel() for value in Qwen2_5_VLForConditionalGeneration(JUDGES[source]).parameters())
    return sum(value.numel() for value in paper_sizes.judge_parts(FakeDevice(), torch.float16)[0].parameters())


def tables() -> dict[str, str]:
    """{command: what it prints}, for the places of the page that show it."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        metrics(purpose="photos", markdown=True)
    with MEMORY.open(newline="", encoding="utf-8") as file:
        heads, *rows = csv.reader(file)
    lines = [heads, ["---"] * len(heads), *rows]
    memory = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return {"capreward metrics --for photos --markdown": printed.getvalue(), "docs/results/photos_memory.csv": memory}


def write_memory() -> None:
    """Counts the memory of the recipe for both policies."""
    with MEMORY.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADS)
        for size in ("3B", "7B"):
            writer.writerows(memory_row(size, length, found) for length, found in count(size, (64, 256)).items())


def memory_row(size: str, length: int, found: Memory) -> list[str]:
    """Cells of the table."""
    parts = (found.weights, found.adapter, found.reward, found.training, found.generation, found.peak)
    return [f"Qwen2.5-VL-{size}", str(length), *(f"{part:.1f}" for part in parts)]


def fill(page: str) -> str:
    """The page with every table as its command prints it now."""
    for command, table in tables().items():
        start, end = f"<!-- {command} -->\n", "<!-- end -->"
        before, found, rest = page.partition(start)
        assert found, f"the page has no line {start!r}"
        page = before + found + table + end + rest.partition(end)[2]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/PHOTOS.md")
    parser.add_argument("--memory", action="store_true", help="count the memory of the recipe anew")
    options = parser.parse_args()
    if options.memory:
        write_memory()
        return
    if options.write:
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    for source in SCORERS:
        weights, gflops = count_scorer(source)
        print(f"{source}: weights={weights:_}, gflops={gflops:.3g}")
    for source in (*JUDGES, "llava-hf/llava-1.5-13b-hf"):
        print(f"{source}: weights={count_judge(source):_}")
    print(*tables().values(), sep="\n")


if __name__ == "__main__":
    main()
