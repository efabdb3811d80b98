"""BEiTScore, step 1: the image stream learns to state what each cell of a scene shows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from examples.research.embedded.configs import SEEING, beit_config
from examples.research.embedded.facts import CELL_LABELS, cell_labels, cell_losses
from examples.research.embedded.schedule import fit, step_options
from examples.research.embedded.vision import drawings
from reward.metrics.beitscore.encoder import Beit3
from reward.scenes import Scene, sample_scene
from reward.scenes.graph import BACKGROUNDS

__all__ = ["CellReader", "cell_loss", "scene_pixels"]

# Of the kinds in `CELL_LABELS`. Actions are thin lines over other things, and are learned last.
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0)


def scene_pixels(scenes: Sequence[Scene]) -> torch.Tensor:
    """Pixels (B, 3, 96, 96) in [-1, 1] of rendered scenes."""
    return drawings(scenes) / 127.5 - 1


class CellReader(nn.Module):
    """Linear heads on the image stream, used in training only: what each cell shows, and the background."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.cells = nn.Linear(4 * width, sum(CELL_LABELS))
        self.background = nn.Linear(width, len(BACKGROUNDS))

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(cell logits (B, 9, sum of classes), background logits (B, 5)) of image states (B, 37, d)."""
        states = self.norm(states)
        patches = states[:, 1:].view(len(states), 3, 2, 3, 2, -1).transpose(2, 3).flatten(3)
        return self.cells(patches.flatten(1, 2)), self.background(states[:, 0])


def cell_loss(logits: tuple[torch.Tensor, torch.Tensor], scenes: Sequence[Scene], labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of `CellReader`'s logits with the scenes' `cell_labels` and backgrounds."""
    grounds = torch.tensor([BACKGROUNDS.index(scene.background) for scene in scenes])
    loss = F.cross_entropy(logits[1], grounds)
    for weight, part in zip(WEIGHTS, cell_losses(logits[0], labels), strict=True):
        loss = loss + weight * part
    return loss


def lay_out_patches(table: torch.nn.Embedding, generator: torch.Generator) -> None:
    """Adds rows and columns of the cells to the image's position table, about as large as the patches' own vectors.

    What a cell shows can be told without knowing where it is, so nothing in this step would make places visible.
    """
    width = table.weight.shape[1]
    rows, columns = torch.randn(2, 3, width, generator=generator) * 0.8
    cells = (rows[:, None, None, None] + columns[None, None, :, None]).expand(3, 2, 3, 2, width)
    table.weight.data[-36:] += cells.reshape(36, width)


def image_states(beit3: Beit3, pixels: torch.Tensor) -> torch.Tensor:
    """States (B, 37, d) of the image stream alone after `SEEING` layers."""
    image = beit3.embed_image(pixels)
    text = image.new_zeros(len(image), 0, image.shape[2])
    for layer in beit3.encoder.layers[:SEEING]:
        image, text = layer(image, text, None)
    return image


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/beit_vision/last.pt`."""
    options = step_options(__doc__, argv, steps=4000, batch=64, lr=1e-3)
    config = beit_config(640)
    beit3, reader = Beit3(config), CellReader(config.hidden_size)
    lay_out_patches(beit3.encoder.embed_positions["A"], torch.Generator().manual_seed(options.seed))

    def losses(step: int) -> dict[str, torch.Tensor]:
        rng = random.Random(f"beit vision {options.seed} {step}")
        scenes = [sample_scene(rng) for _ in range(options.batch)]
        labels = torch.stack([cell_labels(scene) for scene in scenes])
        return {"cells": cell_loss(reader(image_states(beit3, scene_pixels(scenes))), scenes, labels)}

    fit(losses, options, "beit_vision", {"beit3": beit3, "reader": reader}, floor=0.3)


if __name__ == "__main__":
    main()
