"""BEiTScore, step 2: with the picture in sight, the text stream learns to name the true word and to see a wrong one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from examples.embedded.beit_data import MASK, Batch, Reader, excerpt
from examples.embedded.beit_model import Aided, aid_loss
from examples.embedded.beit_vision import scene_pixels
from examples.embedded.configs import beit_config
from examples.embedded.schedule import fit, step_options
from examples.embedded.tokenizer import load_tokenizer
from reward.scenes import Caption, Scene, Style, describe, sample_scene

__all__ = ["caption_of", "start_from"]


def start_from(model: torch.nn.Module, path: Path) -> None:
    """Loads the weights that an earlier step left under `path`, whose names the model shares."""
    saved = torch.load(path, weights_only=True)
    for name in ("beit3", "reader"):
        if name in saved:
            part = model.model.beit3 if name == "beit3" else model.reader
            part.load_state_dict(saved[name])
    if "aided" in saved:
        model.load_state_dict(saved["aided"])


def lay_out(table: torch.nn.Embedding) -> None:
    """Fills a position table with sines, so that equal distances look alike from the first step on."""
    rows, width = table.weight.shape
    angle = torch.arange(rows)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    table.weight.data[:, 0::2], table.weight.data[:, 1::2] = 0.05 * angle.sin(), 0.05 * angle.cos()


def caption_of(scene: Scene, rng: random.Random, most: int | None = None) -> Caption:
    """A true caption of a scene, or one to `most` neighbouring sentences of it."""
    style = Style(split=rng.choice((0.0, 0.3, 0.7)), spatial=rng.randint(0, 3), filler=rng.choice((0, 0, 1)))
    caption = describe(scene, rng, style=style)
    return excerpt(caption, rng, most) if most else caption


def main(argv: Sequence[str] | None = None) -> None:
    """Trains from `<output>/beit_vision/last.pt` and writes `<output>/beit_words/last.pt`."""
    options = step_options(__doc__, argv, steps=4000, scenes=32, captions=2, lr=1e-3)
    tokenizer = load_tokenizer(options.output)
    config = beit_config(len(tokenizer))
    aided = Aided(config)
    start_from(aided, options.output / "beit_vision" / "last.pt")
    lay_out(aided.model.beit3.encoder.embed_positions["B"])
    reader = Reader(tokenizer, config.max_text_tokens)

    def draw(name: str, scenes: int, most: int, shift: float) -> tuple[list[Scene], torch.Tensor, Batch]:
        rng = random.Random(name)
        drawn = [sample_scene(rng) for _ in range(scenes)]
        captions, image = [], []
        for index, scene in enumerate(drawn):
            for _ in range(options.captions):
                caption = caption_of(scene, rng, most)
                captions.append(reader.spoiled(caption, scene, rng, mask=0.25, replace=0.15))
                image.append(index)
        return drawn, torch.tensor(image), reader.batch(captions, rng, shift=shift)

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        # A sentence first: what it states stands in it wherever it is. Whole captions later.
        done = step / options.steps
        most, shift = (2, 0.0) if done < 0.4 else (5, 0.5) if done < 0.8 else (12, 0.5)
        scenes, image, batch = draw(f"beit words {options.seed} {step}", options.scenes, most, shift)
        out = aided(scene_pixels(scenes), image, batch)
        return aid_loss(out, batch, [scenes[index] for index in image.tolist()], errors=1.0)

    held_out = cache(lambda: draw("beit words held out", 128, 2, 0.0))

    def evaluate() -> dict[str, float]:
        scenes, image, batch = held_out()
        pixels = scene_pixels(scenes)
        figures = {}
        for name, which in (("", image), ("other_", (image + 1) % len(scenes))):
            out = aided(pixels, which, batch)
            masked = batch.facts & (batch.ids == MASK)
            figures[name + "masked"] = float((out.words.argmax(-1) == batch.truth)[masked].float().mean())
            where = batch.facts & ~masked
            right, wrong = out.errors[where & ~batch.wrong], out.errors[where & batch.wrong]
            figures[name + "look"] = float((out.looks * batch.cells).sum(-1)[:, batch.cells.any(-1)].mean())
            figures[name + "auc"] = float((wrong[:, None] > right[None]).float().mean())
        return figures

    fit(
        aided.parameters(),
        step_loss,
        options,
        "beit_words",
        floor=0.4,
        state={"aided": aided},
        evaluate=evaluate,
        evaluate_every=250,
    )


if __name__ == "__main__":
    main()
