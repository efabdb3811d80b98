"""BEiTScore, step 2: with the picture in sight, the text stream learns to name the true word and to see a wrong one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from examples.research.embedded.beit_data import Reader
from examples.research.embedded.beit_model import AIDS, Aided, aid_losses
from examples.research.embedded.beit_vision import scene_pixels
from examples.research.embedded.configs import beit_config
from examples.research.embedded.facts import excerpt
from examples.research.embedded.schedule import fit, step_options
from examples.research.embedded.tokenizer import load_tokenizer
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.scenes import Caption, Scene, Style, describe, sample_scene

__all__ = ["caption_of", "start_from"]


def start_from(step: str, output: Path, checkpoint: str = "") -> tuple[Aided, Reader]:
    """The network with the weights that an earlier step left under `output`, and a reader of captions for it.

    With a checkpoint, its weights are taken instead; unless it is a state `last.pt` of a step, the heads that help in
    training then start from nothing.
    """
    tokenizer = load_tokenizer(output)
    config = beit_config(len(tokenizer))
    aided = Aided(config)
    if checkpoint and not checkpoint.endswith(".pt"):
        aided.model.load_state_dict(BeitScoreScorer.from_pretrained(checkpoint, device="cpu").model.state_dict())
        return aided, Reader(tokenizer, config.max_text_tokens)
    saved = torch.load(checkpoint or output / step / "last.pt", weights_only=True)
    if "aided" in saved:
        aided.load_state_dict(saved["aided"])
    else:
        aided.model.beit3.load_state_dict(saved["beit3"])
        aided.reader.load_state_dict(saved["reader"])
    return aided, Reader(tokenizer, config.max_text_tokens)


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
    aided, reader = start_from("beit_vision", options.output)
    lay_out(aided.model.beit3.encoder.embed_positions["B"])

    def losses(step: int) -> dict[str, torch.Tensor]:
        # A sentence first: what it states stands in it wherever it is. Whole captions later.
        done = step / options.steps
        most, shift = (2, 0.0) if done < 0.4 else (5, 0.5) if done < 0.8 else (12, 0.5)
        rng = random.Random(f"beit words {options.seed} {step}")
        scenes = [sample_scene(rng) for _ in range(options.scenes)]
        image = [index for index in range(len(scenes)) for _ in range(options.captions)]
        shown = [scenes[index] for index in image]
        captions = [
            reader.spoiled(caption_of(scene, rng, most), scene, rng, mask=0.25, replace=0.15) for scene in shown
        ]
        batch = reader.batch(captions, rng, shift=shift)
        return aid_losses(aided(scene_pixels(scenes), torch.tensor(image), batch), batch, shown)

    fit(losses, options, "beit_words", {"aided": aided}, weights=AIDS | {"errors": 1.0}, floor=0.4)


if __name__ == "__main__":
    main()
