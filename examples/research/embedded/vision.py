"""Step 1: the image tower learns to state the facts of a picture, in its embedding and in each cell."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import open_clip
import torch
from torch import nn

from examples.research.embedded.configs import MEAN, STD, clip_config
from examples.research.embedded.facts import CELL_LABELS, HARD, cell_labels, cell_losses, fact_loss, scene_vector
from examples.research.embedded.schedule import START, fit, step_options
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import Scene, render, sample_scene

__all__ = ["drawings", "make_clip", "pixels"]


def make_clip(vocabulary: int = 800, eos_id: int = 2) -> open_clip.CLIP:
    """An untrained CLIP of the embedded sizes."""
    return open_clip.CLIP(**clip_config(vocabulary, eos_id))


def drawings(scenes: Sequence[Scene]) -> torch.Tensor:
    """Pixels (B, 3, 96, 96) in [0, 255] of rendered scenes."""
    return torch.from_numpy(np.stack([np.asarray(render(scene)) for scene in scenes])).permute(0, 3, 1, 2).float()


def pixels(scenes: Sequence[Scene]) -> torch.Tensor:
    """Normalised pixels (B, 3, 96, 96) of rendered scenes."""
    return (drawings(scenes) / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


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
    options = step_options(__doc__, argv, steps=2900, batch=64, lr=1e-3, start=START)
    model = VisionWithLabels(make_clip().visual, 192)
    if options.start.endswith(".pt"):
        model.load_state_dict(torch.load(options.start, weights_only=True)["model"])
    elif options.start:
        towers = VelaScorer.from_pretrained(options.start, device="cpu").model.image.towers
        model.visual.load_state_dict(towers.clip.visual.state_dict())

    def losses(step: int) -> dict[str, torch.Tensor]:
        rng = random.Random(f"vision {options.seed} {step}")
        scenes = [sample_scene(rng) for _ in range(options.batch)]
        embedding, logits = model(pixels(scenes))
        truth = torch.stack([scene_vector(scene) for scene in scenes])
        cells = torch.stack([cell_labels(scene) for scene in scenes])
        return {
            "facts": fact_loss(embedding, truth, weights=HARD),
            "cells": sum(cell_losses(logits, cells)),
            "roles": 2 * cell_losses(logits, cells)[-1],
        }

    fit(losses, options, "vision", {"model": model})


if __name__ == "__main__":
    main()
