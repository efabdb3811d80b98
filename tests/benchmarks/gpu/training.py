"""Seconds and memory of a training step of VELA and BEiTScore, beside the memory that `capreward train` counts."""

from __future__ import annotations

import gc
import time

import torch

from reward.training.memory import count_step
from tests.benchmarks import bench_sizes
from tests.benchmarks.gpu.card import Card, Place
from tests.benchmarks.gpu.results import Report
from tests.fake_cuda import GIB, FakeDevice

__all__ = ["measure"]

LENGTHS, STEPS = (512, 1024), 4


def measure(report: Report, place: Place) -> None:
    """Adds a row for each step; one that the card has no room for says so."""
    lengths = LENGTHS[:1] if place.simulated else LENGTHS
    for metric, checkpointing, make in bench_sizes.training_steps(lengths):
        network, batch = make(FakeDevice("cpu"))
        counted = count_step(network, batch, precision="bf16").total
        rows, tokens = bench_sizes.batch_size(batch)
        cells = {"metric": metric, "batch": rows, "tokens": tokens, "gradient checkpointing": checkpointing}
        cells["GiB counted"] = f"{counted / GIB:.1f}"
        if not place.simulated:
            try:
                seconds, peak = _measured(make)
                cells |= {"GiB": f"{peak / GIB:.1f}", "measured / counted": f"{peak / counted:.2f}"}
                cells["seconds"] = f"{seconds:.2f}"
            except torch.cuda.OutOfMemoryError:
                cells["GiB"] = "no room"
        report.row("A training step of --preset paper, bfloat16", **cells)
        del network, batch
        gc.collect()
        torch.cuda.empty_cache()


def _measured(make: bench_sizes.Step) -> tuple[float, int]:
    """Seconds of the fastest step, and most bytes of any."""
    card, best = Card(), float("inf")
    network, batch = make(card)
    with card.run():
        optimizer = torch.optim.AdamW(value for value in network.parameters() if value.requires_grad)
        for _ in range(STEPS):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            with torch.autocast("cuda", torch.bfloat16):
                bench_sizes.learn(network, batch, "cuda")
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - begin)
    return best, card.peak
