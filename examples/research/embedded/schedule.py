"""What all steps share: their options, padded batches sorted by length, and one training loop that can be resumed."""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["START", "batches_by_length", "drawn_together", "fit", "mark_losses", "padded", "step_options"]

# The option of the steps that can go on from other weights than nothing.
START = {
    "default": "",
    "help": "checkpoint folder to start from, or (but for the captioner) last.pt of a step",
}

Row, Batch = TypeVar("Row"), TypeVar("Batch")


def step_options(doc: str | None, argv: Sequence[str] | None, **defaults: Any) -> argparse.Namespace:
    """Reads the options of a step, and seeds torch with `--seed`.

    Args:
        doc: docstring of the step's module.
        argv: as for `main`.
        defaults: {option: default}; a dict holds the arguments of `add_argument` instead.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"output": Path("runs/embedded"), "seed": 1, **defaults}.items():
        arguments = {"type": type(default), "default": default, "help": "default: %(default)s"}
        parser.add_argument("--" + name.replace("_", "-"), **(default if isinstance(default, dict) else arguments))
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    return options


def padded(rows: Sequence[Sequence[Any]], fill: Any) -> torch.Tensor:
    """Rows as a tensor (B, longest), filled up on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])


def batches_by_length(
    rows: Iterable[Row],
    size: int,
    length: Callable[[Row], int],
    collate: Callable[[list[Row]], Batch],
    rng: random.Random,
) -> list[Batch]:
    """Batches of rows of about equal length, so that little is padding, in random order."""
    rows = sorted(rows, key=length)
    batches = [collate(rows[first : first + size]) for first in range(0, len(rows), size)]
    rng.shuffle(batches)
    return batches


def drawn_together(draw: Callable[[int], list[Batch]]) -> Callable[[int], Batch]:
    """A function that gives the batch of a step, and draws several at a time."""
    pool: list[Batch] = []

    def batch_of(step: int) -> Batch:
        if not pool:
            pool.extend(draw(step))
        return pool.pop()

    return batch_of


def mark_losses(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Binary cross-entropy of logits (B, L, 2) of "this word is wrong" and "damaged", where the batch has a mark."""
    losses = {}
    for index, name in enumerate(("wrong", "damaged")):
        marked = batch[name] >= 0
        loss = F.binary_cross_entropy_with_logits(
            logits[..., index][marked], batch[name][marked].float(), reduction="sum"
        )
        losses[name] = loss / marked.sum().clamp(min=1)  # a batch may hold no mark at all
    return losses


def fit(
    losses_of: Callable[[int], Mapping[str, torch.Tensor]],
    options: argparse.Namespace,
    name: str,
    modules: Mapping[str, torch.nn.Module],
    *,
    weights: Mapping[str, float] | None = None,
    head: Sequence[torch.nn.Parameter] = (),
    head_lr: float = 1e-2,
    warmup: int = 100,
    floor: float = 0.02,
    attention: SDPBackend = SDPBackend.MATH,
    bfloat16: bool = True,
) -> None:
    """Runs AdamW on the weighted sum of losses; saves every 250 steps and goes on from the last save.

    The learning rate warms up and then follows a cosine by step, not by clock, so that a run can be repeated. Every
    step draws scenes of its own, so the running means that are printed are of scenes not seen before.

    Args:
        losses_of: the losses of a step; what has no gradient is printed only.
        options: of the step: `steps`, `lr` and `output`.
        name: of the folder in `output` where `last.pt` is saved.
        modules: what is trained, apart from frozen parameters, and saved.
        weights: of the losses, where not 1.
        head: parameters that take larger steps than the others, by an Adam with the rate `head_lr`, because they start
            from nothing and their inputs are small.
        floor: share of `lr` that the cosine ends at.
        attention: the kernel. On a CPU, bfloat16 takes less than half the time of float32, but of rows below some 200
            tokens only with plain attention.
        bfloat16: whether products are computed in it; LLaVA of transformers cannot mix it with its float32.
    """
    folder, steps, lr = options.output / name, options.steps, options.lr
    folder.mkdir(parents=True, exist_ok=True)
    trained = [parameter for module in modules.values() for parameter in module.parameters()]
    others = [each for each in trained if each.requires_grad and all(each is not own for own in head)]
    optimizer = torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.02)
    head_optimizer = torch.optim.Adam(head, lr=head_lr) if head else None
    last, first = folder / "last.pt", 0
    if last.exists():
        saved = torch.load(last, weights_only=True)
        for key, module in modules.items():
            module.load_state_dict(saved[key])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
        print(f"resumed at step {first}", flush=True)
    for module in modules.values():
        module.train()
    began, running = time.perf_counter(), {}
    for step in range(first, steps):
        share = min(1.0, (step + 1) / warmup) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = lr * share
        if head_optimizer is not None:
            head_optimizer.step()  # with the gradients of the step before
            head_optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16), sdpa_kernel(attention):
            losses = losses_of(step)
        loss = sum((weights or {}).get(key, 1.0) * part for key, part in losses.items() if part.requires_grad)
        optimizer.zero_grad(set_to_none=True)
        with sdpa_kernel(attention):
            loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        optimizer.step()
        for key, part in {"loss": loss, **losses}.items():
            value = float(part.detach())
            running[key] = 0.95 * running.get(key, value) + 0.05 * value
        if (step + 1) % 50 == 0:
            pace = (time.perf_counter() - began) / (step + 1 - first)
            text = " ".join(f"{key} {value:.4f}" for key, value in running.items())
            print(f"step {step + 1}/{steps} {pace:.3f} s/step {text}", flush=True)
        if (step + 1) % 250 == 0 or step + 1 == steps:
            states = {key: module.state_dict() for key, module in modules.items()}
            torch.save({**states, "optimizer": optimizer.state_dict(), "step": step + 1}, folder / "last.tmp")
            (folder / "last.tmp").replace(last)
