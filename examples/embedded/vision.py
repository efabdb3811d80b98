"""Step 1: the image tower learns to state the facts of a picture, in its embedding and in each cell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import open_clip
import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.configs import MEAN, STD, clip_config
from examples.embedded.facts import CELL_LABELS, COORDINATES, HARD, cell_labels, fact_figures, fact_vector
from examples.embedded.schedule import fit, step_options
from reward.scenes import render, sample_scene
from reward.scenes.graph import Scene

__all__ = ["make_clip", "pixels"]


def make_clip(vocabulary: int = 800, eos_id: int = 2) -> open_clip.CLIP:
    """An untrained CLIP of the embedded sizes."""
    return open_clip.CLIP(**clip_config(vocabulary, eos_id))


def pixels(scenes: list[Scene]) -> torch.Tensor:
    """Normalised pixels (B, 3, 96, 96) of rendered scenes."""
    images = np.stack([np.asarray(render(scene)) for scene in scenes])
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return (tensor - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


class VisionWithLabels(nn.Module):
    """An open_clip image tower with linear heads on its cells, used in training only."""

    def __init__(self, visual: nn.Module, width: int) -> None:
        super().__init__()
        self.visual = visual
        self.cells = nn.Linear(width, sum(CELL_LABELS))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(embedding (B, D), cell logits (B, 9, sum of classes))."""
        hidden = self.visual.transformer(self.visual._embeds(images))
        pooled, tokens = self.visual._pool(hidden)
        side = int(tokens.shape[1] ** 0.5)
        grid = tokens.view(len(tokens), side // 2, 2, side // 2, 2, -1).mean((2, 4))
        return pooled @ self.visual.proj, self.cells(grid.flatten(1, 2))


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/vision/last.pt`."""
    options = step_options(__doc__, argv, steps=2900, batch=64, lr=1e-3)
    clip = make_clip()
    model = VisionWithLabels(clip.visual, 192)
    facts = len(COORDINATES)

    def batch(name: str, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rng = random.Random(name)
        scenes = [sample_scene(rng) for _ in range(size)]
        return (
            pixels(scenes),
            torch.stack([fact_vector(scene.facts()) for scene in scenes]),
            torch.stack([cell_labels(scene) for scene in scenes]),
        )

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        images, truth, cells = batch(f"vision {options.seed} {step}", options.batch)
        embedding, logits = model(images)
        error = (HARD * (embedding[:, :facts] - truth).square()).sum(1).mean()
        parts = logits.split(list(CELL_LABELS), dim=-1)
        # Empty cells are half of all: without weights the heads first learn to say "nothing".
        occupied = (cells[..., 0] > 0).float() * 0.8 + 0.2
        cell = sum(
            (F.cross_entropy(part.transpose(1, 2), cells[..., k], reduction="none") * occupied).mean()
            for k, part in enumerate(parts)
        )
        return error + cell, {"facts": float(error.detach()), "cells": float(cell.detach())}

    held_out = cache(lambda: batch("vision held out", 512))

    def evaluate() -> dict[str, float]:
        images, truth, cells = held_out()
        embedding, logits = model(images)
        figures = fact_figures(embedding[:, :facts], truth)
        names = ("noun", "colour", "size", "pattern", "count", "word", "action")
        for k, part in enumerate(logits.split(list(CELL_LABELS), dim=-1)):
            where = cells[..., k] > 0
            figures["cell_" + names[k]] = float((part.argmax(-1) == cells[..., k])[where].float().mean())
        return figures

    fit(
        model.parameters(),
        step_loss,
        options,
        "vision",
        state={"model": model},
        evaluate=evaluate,
        evaluate_every=250,
    )


if __name__ == "__main__":
    main()
