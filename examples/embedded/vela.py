"""Step 5: VELA whole. Both branches start from the steps before and learn the mean human rating together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.align import image_batch
from examples.embedded.configs import vela_config
from examples.embedded.facts import COORDINATES
from examples.embedded.language import Batch, draw_prompts, tau_of_batches
from examples.embedded.schedule import drawn_together, fit, mark_losses, step_options
from examples.embedded.text import encode_text
from examples.embedded.tokenizer import load_tokenizer
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes.samples import RatedSample

__all__: list[str] = []


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/both` (or `text_only`): `last.pt` and the checkpoint folder `model`."""
    options = step_options(
        __doc__,
        argv,
        steps=350,
        batch=32,
        lr=5e-4,
        seed=2,
        branches={"choices": ("both", "text"), "default": "both", "help": "text: without image branch"},
    )
    tokenizer = load_tokenizer(options.output)
    both = options.branches == "both"
    model = VelaModel.from_config(vela_config(tokenizer, image=both), tokenizer=tokenizer)
    tags = nn.Linear(128, 2)
    _start(model, tags, options.output, both=both)
    facts = len(COORDINATES)
    heads = [model.weight, model.bias]
    others = [p for p in [*model.parameters(), *tags.parameters()] if all(p is not head for head in heads)]
    head_optimizer = torch.optim.Adam(heads, lr=3e-3)

    def image_parts(samples: list[RatedSample]) -> Batch:
        return image_batch(samples, tokenizer) if both else {}

    def scores_of(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """Scores (B,) of each row's aspect, hidden states (B, L, d), and the CLIP features."""
        pooled, hidden = model.text(batch["input_ids"], batch["attention_mask"])
        parts, features = [pooled], []
        if both:
            features = [
                model.image.encode_image(batch["pixels"]),
                encode_text(model.image.towers.clip, batch["clip_ids"]),
            ]
            parts.append(model.image.relate(*features))
        logits = (torch.cat(parts, -1) * model.weight[batch["aspect"]]).sum(-1) + model.bias[batch["aspect"]]
        return torch.sigmoid(logits), hidden, features

    batch_of = drawn_together(
        lambda step: draw_prompts(model, f"vela {options.seed} {step}", options.batch, 8, image_parts)
    )

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        batch = batch_of(step)
        head_optimizer.step()  # with the gradients of the step before
        head_optimizer.zero_grad(set_to_none=True)
        scores, hidden, features = scores_of(batch)
        figures = {"rating": F.mse_loss(scores, batch["labels"])} | mark_losses(tags(hidden), batch)
        loss = 10 * figures["rating"] + figures["wrong"] + figures["damaged"]
        for feature, name in zip(features, ("facts", "claims"), strict=False):
            figures[name] = F.mse_loss(feature[:, :facts], batch[name], reduction="none").sum(1).mean()
            loss = loss + 0.3 * figures[name]
        return loss, {name: float(part.detach()) for name, part in figures.items()}

    held_out = cache(lambda: draw_prompts(model, "vela held out", 32, 15, image_parts))

    def evaluate() -> dict[str, float]:
        scores = [scores_of(batch)[0] for batch in held_out()]
        mse = F.mse_loss(torch.cat(scores), torch.cat([batch["labels"] for batch in held_out()]))
        return {"mse": float(mse)} | tau_of_batches(scores, held_out())

    folder = options.output / ("both" if both else "text_only")
    fit(
        others,
        step_loss,
        options,
        folder.name,
        state={"model": model, "tags": tags},
        evaluate=evaluate,
        evaluate_every=200,
        warmup=50,
    )
    VelaScorer(model.eval()).save_pretrained(folder / "model")


def _start(model: VelaModel, tags: nn.Module, output: Path, *, both: bool) -> None:
    """Loads the language model of step 4 and the towers of step 3, and joins their heads."""
    language = torch.load(output / "language" / "last.pt", weights_only=True)
    tags.load_state_dict(language["tags"])
    trained = language["model"]
    if not both:
        model.load_state_dict(trained)
        return
    towers = torch.load(output / "align" / "last.pt", weights_only=True)["model"]
    state = {key: value for key, value in {**trained, **towers}.items() if key not in ("weight", "bias")}
    # Two heads that each explain the whole rating, put side by side, would explain it twice. Fluency is the language
    # model's to begin with, the other two are the towers'.
    share = torch.tensor([0.8, 0.8, 0.2])[:, None]
    state["weight"] = torch.cat([(1 - share) * trained["weight"], share * towers["weight"]], dim=1)
    state["bias"] = (1 - share[:, 0]) * trained["bias"] + share[:, 0] * towers["bias"]
    model.load_state_dict(state)


if __name__ == "__main__":
    main()
