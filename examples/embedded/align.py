"""Step 3: both CLIP towers together: contrast, facts as before, and the ratings through VELA's image branch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from examples.embedded.configs import vela_config
from examples.embedded.facts import COORDINATES, fact_vector
from examples.embedded.schedule import batches_by_length, drawn_together, fit, step_options
from examples.embedded.text import clip_ids, encode_text
from examples.embedded.tokenizer import load_tokenizer
from examples.embedded.vision import pixels
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS, make_rated_sample

__all__ = ["ImageBatch", "image_batch", "load_towers", "tau_c"]

ImageBatch = dict[str, torch.Tensor]


def image_batch(samples: list[Any], tokenizer: Any) -> ImageBatch:
    """pixels (B, 3, 96, 96), clip_ids (B, L), facts and claims (B, F), ratings (B, 3) of rated samples."""
    return {
        "pixels": pixels([sample.scene for sample in samples]),
        "clip_ids": clip_ids([sample.candidate.caption.text for sample in samples], tokenizer),
        "facts": torch.stack([fact_vector(sample.scene.facts()) for sample in samples]),
        "claims": torch.stack([fact_vector(sample.candidate.caption.claims) for sample in samples]),
        "ratings": torch.tensor([[sample.candidate.ratings.score(aspect) for aspect in ASPECTS] for sample in samples]),
    }


def load_towers(model: VelaModel, output: Path) -> None:
    """Puts the image and text towers of steps 1 and 2 into the model's CLIP."""
    clip = model.image.towers.clip
    vision = torch.load(output / "vision" / "last.pt", weights_only=True)["model"]
    clip.visual.load_state_dict(
        {key.removeprefix("visual."): value for key, value in vision.items() if key.startswith("visual.")}
    )
    text = torch.load(output / "text" / "last.pt", weights_only=True)["clip"]
    missing, unexpected = clip.load_state_dict(
        {k: v for k, v in text.items() if not k.startswith("visual.")}, strict=False
    )
    if unexpected or any(not key.startswith("visual.") for key in missing):
        raise ValueError(f"text tower does not fit: {missing[:3]} {unexpected[:3]}")


def tau_c(scores: torch.Tensor, ratings: torch.Tensor) -> dict[str, float]:
    """Kendall's tau-c per aspect of (N, 3) scores with (N, 3) ratings."""
    from scipy.stats import kendalltau

    return {
        aspect: float(kendalltau(scores[:, k], ratings[:, k], variant="c").statistic)
        for k, aspect in enumerate(ASPECTS)
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/align/last.pt` and the checkpoint `<output>/align/model` (image branch alone)."""
    options = step_options(__doc__, argv, steps=260, batch=64, lr=5e-4)
    tokenizer = load_tokenizer(options.output)
    model = VelaModel.from_config(vela_config(tokenizer, text=False), tokenizer=tokenizer)
    load_towers(model, options.output)
    clip, facts = model.image.towers.clip, len(COORDINATES)
    heads = [model.weight, model.bias]
    parameters = [parameter for parameter in model.parameters() if all(parameter is not head for head in heads)]

    def batches(name: str, size: int, number: int) -> list[ImageBatch]:
        rng = random.Random(name)
        samples = [make_rated_sample(rng, references=0) for _ in range(size * number)]
        return batches_by_length(
            samples,
            size,
            lambda sample: len(sample.candidate.caption.text),
            lambda rows: image_batch(rows, tokenizer),
            rng,
        )

    batch_of = drawn_together(lambda step: batches(f"align {options.seed} {step}", options.batch, 8))
    # The head starts from nothing and its inputs are small: it takes larger steps than the towers do.
    head_optimizer = torch.optim.Adam(heads, lr=1e-2)

    def scores_of(batch: ImageBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image, text = model.image.encode_image(batch["pixels"]), encode_text(clip, batch["clip_ids"])
        return image, text, model.head(None, model.image.relate(image, text))

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        batch = batch_of(step)
        head_optimizer.step()  # with the gradients of the step before
        head_optimizer.zero_grad(set_to_none=True)
        image, text, scores = scores_of(batch)
        rating = F.mse_loss(scores, batch["ratings"])
        errors = [
            F.mse_loss(made[:, :facts], batch[name], reduction="none").sum(1).mean()
            for made, name in ((image, "facts"), (text, "claims"))
        ]
        logits = 20 * F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T
        target = torch.arange(len(logits))
        contrast = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        figures = {"rating": rating, "facts": errors[0], "claims": errors[1], "contrast": contrast}
        return 10 * rating + 0.5 * sum(errors) + 0.2 * contrast, {
            name: float(part.detach()) for name, part in figures.items()
        }

    held_out = cache(lambda: batches("align held out", 64, 8))

    def evaluate() -> dict[str, float]:
        scores = torch.cat([scores_of(batch)[2] for batch in held_out()])
        ratings = torch.cat([batch["ratings"] for batch in held_out()])
        return {"mse": float(F.mse_loss(scores, ratings))} | tau_c(scores, ratings)

    fit(
        parameters,
        step_loss,
        options,
        "align",
        state={"model": model},
        evaluate=evaluate,
        evaluate_every=100,
        warmup=50,
    )
    VelaScorer(model.eval()).save_pretrained(options.output / "align" / "model")


if __name__ == "__main__":
    main()
