"""One plain training loop: AdamW, warm-up, cosine by step (not by clock, so that it can be repeated), resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

__all__ = ["fit"]


def fit(
    parameters: Iterable[torch.nn.Parameter],
    step_loss: Callable[[int], tuple[torch.Tensor, dict[str, float]]],
    *,
    steps: int,
    lr: float,
    state: dict[str, torch.nn.Module],
    folder: Path,
    warmup: int = 100,
    weight_decay: float = 0.02,
    evaluate: Callable[[], dict[str, float]] | None = None,
    evaluate_every: int = 500,
    floor: float = 0.02,
) -> None:
    """Runs `steps` updates of `step_loss(step) -> (loss, figures)`; saves every 250 and goes on from the last save.

    Args:
        state: modules to save under `folder/last.pt`.
        floor: share of `lr` that the cosine ends at.
    """
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
