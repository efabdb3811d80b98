"""Step 3: both CLIP towers together: contrast, facts as before, and the ratings through VELA's image branch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from examples.research.embedded.attacked import draw_sample, true_scores
from examples.research.embedded.configs import vela_config
from examples.research.embedded.facts import fact_loss, fact_vector, scene_vector
from examples.research.embedded.schedule import batches_by_length, drawn_together, fit, step_options
from examples.research.embedded.tokenizer import load_tokenizer
from examples.research.embedded.vision import pixels
from reward.metrics.vela.model import ImageBranch, VelaModel
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS
from reward.scenes.samples import RatedSample

__all__ = ["features", "image_batch", "load_towers", "stated"]

Batch = dict[str, torch.Tensor]


def image_batch(samples: list[RatedSample], branch: ImageBranch) -> Batch:
    """pixels (B, 3, 96, 96), clip_ids (B, L), facts and claims (B, F), ratings (B, 3) of rated samples."""
    captions = [sample.candidate.caption for sample in samples]
    return {
        "pixels": pixels([sample.scene for sample in samples]),
        "clip_ids": branch.towers.tokenize([caption.text for caption in captions])[0],
        "facts": torch.stack([scene_vector(sample.scene) for sample in samples]),
        "claims": torch.stack([fact_vector(caption.claims) for caption in captions]),
        "ratings": torch.tensor([[true_scores(sample)[aspect] for aspect in ASPECTS] for sample in samples]),
    }


def features(branch: ImageBranch, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (B, D) of the images and of the captions."""
    return branch.encode_image(batch["pixels"]), branch.encode_candidate(batch["clip_ids"])


def stated(image: torch.Tensor, text: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
    """The losses of what both kinds of features state."""
    return {"facts": fact_loss(image, batch["facts"]), "claims": fact_loss(text, batch["claims"])}


def load_towers(clip: torch.nn.Module, output: Path) -> None:
    """Puts the image and text towers of steps 1 and 2 into a CLIP."""
    vision = torch.load(output / "vision" / "last.pt", weights_only=True)["model"]
    text = torch.load(output / "text" / "last.pt", weights_only=True)["clip"]
    clip.load_state_dict({**text, **{key: value for key, value in vision.items() if key.startswith("visual.")}})


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/align/last.pt` and the checkpoint `<output>/align/model` (image branch alone)."""
    options = step_options(__doc__, argv, steps=260, batch=64, lr=5e-4)
    tokenizer = load_tokenizer(options.output)
    model = VelaModel.from_config(vela_config(tokenizer, text=False), tokenizer=tokenizer)
    load_towers(model.image.towers.clip, options.output)

    def draw(step: int) -> list[Batch]:
        rng = random.Random(f"align {options.seed} {step}")
        samples = [draw_sample(rng, references=0) for _ in range(options.batch * 8)]

        def length(sample: RatedSample) -> int:
            return len(sample.candidate.caption.text)

        return batches_by_length(samples, options.batch, length, lambda rows: image_batch(rows, model.image), rng)

    batch_of = drawn_together(draw)

    def losses(step: int) -> dict[str, torch.Tensor]:
        batch = batch_of(step)
        image, text = features(model.image, batch)
        rating = F.mse_loss(model.head(None, model.image.relate(image, text)), batch["ratings"])
        errors = stated(image, text, batch)
        logits = 20 * F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T
        target = torch.arange(len(logits))
        contrast = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        return {"rating": rating, **errors, "contrast": contrast}

    weights = {"rating": 10.0, "facts": 0.5, "claims": 0.5, "contrast": 0.2}
    heads = [model.weight, model.bias]
    fit(losses, options, "align", {"model": model}, weights=weights, head=heads, head_lr=1e-2, warmup=50)
    VelaScorer(model.eval()).save_pretrained(options.output / "align" / "model")


if __name__ == "__main__":
    main()
