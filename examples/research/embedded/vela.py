"""Step 5: VELA whole. Both branches start from the steps before and learn the ratings together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend

from examples.research.embedded.align import features, image_batch, stated
from examples.research.embedded.configs import vela_config
from examples.research.embedded.language import Batch, draw_prompts, number_loss, read_prompts
from examples.research.embedded.schedule import START, drawn_together, fit, mark_losses, step_options
from examples.research.embedded.tokenizer import load_tokenizer
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes.samples import RatedSample

__all__: list[str] = []


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/both`: `last.pt` and the checkpoint folder `model`."""
    written = {"type": Path, "help": "JSON lines with scene and caption, that policies wrote"}
    frozen = {"action": "store_true", "help": "train the language model and the head alone"}
    own = {"written": written, "start": START, "frozen_towers": frozen}
    options = step_options(__doc__, argv, steps=350, batch=32, lr=5e-4, seed=2, **own)
    tokenizer = load_tokenizer(options.output)
    model = VelaModel.from_config(vela_config(tokenizer), tokenizer=tokenizer)
    tags = nn.Linear(128, 2)
    new: list[nn.Parameter] = [*tags.parameters()]
    if options.start.endswith(".pt"):
        before = torch.load(options.start, weights_only=True)
        model.load_state_dict(before["model"])
        tags.load_state_dict(before["tags"])
        new = [model.weight, model.bias]
    elif options.start:  # a checkpoint has no tags
        model.load_state_dict(VelaScorer.from_pretrained(options.start, device="cpu").model.state_dict())
    else:
        _start(model, tags, options.output)
        new = [model.weight, model.bias]
    if options.frozen_towers:
        model.image.requires_grad_(False)

    def image_parts(samples: list[RatedSample]) -> Batch:
        return image_batch(samples, model.image)

    batch_of = drawn_together(
        lambda step: draw_prompts(
            model, f"vela {options.seed} {step}", options.batch, image_parts, written=options.written
        )
    )

    def losses(step: int) -> dict[str, torch.Tensor]:
        batch = batch_of(step)
        pooled, hidden = read_prompts(model, batch)
        image, text = features(model.image, batch)
        rating = F.mse_loss(model.head(pooled, model.image.relate(image, text)), batch["labels"])
        numbers = number_loss(model, tags, random.Random(f"numbers {options.seed} {step}"))
        losses = {"rating": rating, **mark_losses(tags(hidden), batch), "numbers": numbers}
        return losses | stated(image, text, batch)

    modules = {"model": model, "tags": tags}
    weights = {"rating": 20.0, "numbers": 2.0, "facts": 0.3, "claims": 0.3}
    flash = SDPBackend.FLASH_ATTENTION
    fit(losses, options, "both", modules, weights=weights, head=new, head_lr=3e-3, warmup=50, attention=flash)
    VelaScorer(model.eval()).save_pretrained(options.output / "both" / "model")


def _start(model: VelaModel, tags: nn.Module, output: Path) -> None:
    """Loads the language model of step 4 and the towers of step 3, and joins their heads."""
    language = torch.load(output / "language" / "last.pt", weights_only=True)
    tags.load_state_dict(language["tags"])
    trained = language["model"]
    towers = torch.load(output / "align" / "last.pt", weights_only=True)["model"]
    # Two heads that each explain the whole rating, put side by side, would explain it twice. Fluency is the language
    # model's to begin with, the other two are the towers'.
    share = torch.tensor([0.8, 0.8, 0.2])[:, None]
    weight = torch.cat([(1 - share) * trained["weight"], share * towers["weight"]], dim=1)
    bias = (1 - share[:, 0]) * trained["bias"] + share[:, 0] * towers["bias"]
    model.load_state_dict({**trained, **towers, "weight": weight, "bias": bias})


if __name__ == "__main__":
    main()
