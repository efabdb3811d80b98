"""BEiTScore, step 1: the image stream learns to state what each cell of a scene shows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.configs import SEEING, beit_config
from examples.embedded.facts import CELL_LABELS, cell_labels
from examples.embedded.schedule import fit, step_options
from reward.metrics.beitscore.encoder import Beit3
from reward.scenes import render, sample_scene
from reward.scenes.graph import BACKGROUNDS, Scene

__all__ = ["CellReader", "cell_loss", "scene_pixels"]

NAMES = ("noun", "colour", "size", "pattern", "count", "word", "action")
# Actions are thin lines over other things, and are learned last.
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0)


def scene_pixels(scenes: Sequence[Scene]) -> torch.Tensor:
    """Pixels (B, 3, 96, 96) in [-1, 1] of rendered scenes."""
    images = np.stack([np.asarray(render(scene)) for scene in scenes])
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1


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


def cell_loss(
    logits: tuple[torch.Tensor, torch.Tensor], scenes: Sequence[Scene], labels: torch.Tensor | None = None
) -> torch.Tensor:
    """Cross-entropy of `CellReader`'s logits; `labels` are the scenes' `cell_labels` where they are there already."""
    if labels is None:
        labels = torch.stack([cell_labels(scene) for scene in scenes])
    grounds = torch.tensor([BACKGROUNDS.index(scene.background) for scene in scenes])
    # Empty cells are half of all: without weights the heads first learn to say "nothing".
    occupied = (labels[..., 0] > 0).float() * 0.8 + 0.2
    loss = F.cross_entropy(logits[1], grounds)
    for k, part in enumerate(logits[0].split(list(CELL_LABELS), dim=-1)):
        each = F.cross_entropy(part.transpose(1, 2), labels[..., k], reduction="none")
        loss = loss + WEIGHTS[k] * (each * occupied).mean()
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

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        rng = random.Random(f"beit vision {options.seed} {step}")
        scenes = [sample_scene(rng) for _ in range(options.batch)]
        return cell_loss(reader(image_states(beit3, scene_pixels(scenes))), scenes), {}

    def evaluate() -> dict[str, float]:
        rng = random.Random("beit vision held out")
        held_out = [sample_scene(rng) for _ in range(512)]
        labels = torch.stack([cell_labels(scene) for scene in held_out])
        logits, _ = reader(image_states(beit3, scene_pixels(held_out)))
        figures = {}
        for k, part in enumerate(logits.split(list(CELL_LABELS), dim=-1)):
            where = labels[..., k] > 0
            figures[NAMES[k]] = float((part.argmax(-1) == labels[..., k])[where].float().mean())
        return figures

    fit(
        [*beit3.parameters(), *reader.parameters()],
        step_loss,
        options,
        "beit_vision",
        floor=0.3,
        state={"beit3": beit3, "reader": reader},
        evaluate=evaluate,
        evaluate_every=250,
    )


if __name__ == "__main__":
    main()
