"""What all steps share: their options, batches sorted by length, and one plain training loop that can be resumed."""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn import functional as F

__all__ = ["batches_by_length", "drawn_together", "fit", "mark_losses", "step_options"]

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
    parameters: Iterable[torch.nn.Parameter],
    step_loss: Callable[[int], tuple[torch.Tensor, dict[str, float]]],
    options: argparse.Namespace,
    name: str,
    *,
    state: dict[str, torch.nn.Module],
    warmup: int = 100,
    weight_decay: float = 0.02,
    evaluate: Callable[[], dict[str, float]] | None = None,
    evaluate_every: int = 500,
    floor: float = 0.02,
) -> None:
    """Runs AdamW on `step_loss(step) -> (loss, figures)`; saves every 250 steps and goes on from the last save.

    The learning rate warms up and then follows a cosine by step, not by clock, so that a run can be repeated.

    Args:
        options: of the step: `steps`, `lr` and `output`.
        name: of the folder in `output` where `last.pt` is saved.
        state: modules to save.
        floor: share of `lr` that the cosine ends at.
    """
    folder, steps, lr = options.output / name, options.steps, options.lr
    folder.mkdir(parents=True, exist_ok=True)
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.98), weight_decay=weight_decay)
    last, first = folder / "last.pt", 0
    if last.exists():
        saved = torch.load(last, weights_only=True)
        for name, module in state.items():
            module.load_state_dict(saved[name])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
        print(f"resumed at step {first}", flush=True)
    began, running = time.perf_counter(), {}
    for step in range(first, steps):
        share = min(1.0, (step + 1) / warmup) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = lr * share
        for module in state.values():
            module.train()
        loss, figures = step_loss(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        for name, value in {"loss": float(loss.detach()), **figures}.items():
            running[name] = 0.95 * running.get(name, value) + 0.05 * value
        if (step + 1) % 50 == 0:
            text = " ".join(f"{name} {value:.4f}" for name, value in running.items())
            print(
                f"step {step + 1}/{steps} {(time.perf_counter() - began) / (step + 1 - first):.3f} s/step {text}",
                flush=True,
            )
        # A run too short for one evaluation is a trial of the plumbing, and would spend its time measuring noise.
        if evaluate and steps >= evaluate_every and ((step + 1) % evaluate_every == 0 or step + 1 == steps):
            for module in state.values():
                module.eval()
            with torch.no_grad():
                print("held out", " ".join(f"{name} {value:.4f}" for name, value in evaluate().items()), flush=True)
        if (step + 1) % 250 == 0 or step + 1 == steps:
            blob = {name: module.state_dict() for name, module in state.items()} | {
                "optimizer": optimizer.state_dict(),
                "step": step + 1,
            }
            torch.save(blob, folder / "last.tmp")
            (folder / "last.tmp").replace(last)
