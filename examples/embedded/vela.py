"""Step 5: VELA whole. Both branches start from the steps before and learn the mean human rating together."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.align import image_batch, tau_c
from examples.embedded.facts import COORDINATES
from examples.embedded.language import prompt_rows
from examples.embedded.schedule import fit
from examples.embedded.text import encode_text
from examples.embedded.tokenizer import load_tokenizer
from examples.embedded.vela_config import vela_config
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS, make_rated_sample

__all__: list[str] = []


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/both` (or `text_only`): `last.pt` and the checkpoint folder `model`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/embedded"))
    parser.add_argument(
        "--branches", choices=("both", "text"), default="both", help="text: the ablation without image branch"
    )
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    tokenizer = load_tokenizer(options.output)
    both = options.branches == "both"
    model = VelaModel.from_config(vela_config(tokenizer, image=both), tokenizer=tokenizer)
    tags = nn.Linear(128, 2)
    _start(model, tags, options.output, both=both)
    facts = len(COORDINATES)
    heads = [model.weight, model.bias]
    others = [p for p in [*model.parameters(), *tags.parameters()] if all(p is not head for head in heads)]
    head_optimizer = torch.optim.Adam(heads, lr=3e-3)

    def draw(name: str, size: int, number: int) -> list[dict[str, torch.Tensor]]:
        rng = random.Random(name)
        rows = []
        for _ in range(size * number):
            sample, shown = make_rated_sample(rng, references=2), rng.choice((0, 0, 1, 1, 2))
            length = len(sample.candidate.caption.text) + sum(map(len, sample.references[:shown]))
            rows.append((length, sample, shown, rng.randrange(len(ASPECTS))))
        rows.sort(key=lambda row: row[0])
        found = []
        for first in range(0, len(rows), size):
            _, samples, shown, aspects = map(list, zip(*rows[first : first + size], strict=True))
            batch = prompt_rows(model, samples, shown, aspects) | {"aspect": torch.tensor(aspects)}
            found.append(batch | (image_batch(samples, tokenizer) if both else {}))
        rng.shuffle(found)
        return found

    def scores_of(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """Scores (B,) of each row's aspect, hidden states (B, L, d), and the CLIP features."""
        pooled, hidden = model.text(batch["input_ids"], batch["attention_mask"])
        parts, features = [pooled], []
        if both:
            features = [model.encode_image(batch["pixels"]), encode_text(model.image.towers.clip, batch["clip_ids"])]
            parts.append(model.image.relate(*features))
        logits = (torch.cat(parts, -1) * model.weight[batch["aspect"]]).sum(-1) + model.bias[batch["aspect"]]
        return torch.sigmoid(logits), hidden, features

    pool: list[dict[str, torch.Tensor]] = []

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        if not pool:
            pool.extend(draw(f"vela {options.seed} {step}", options.batch, 8))
        batch = pool.pop()
        head_optimizer.step()  # with the gradients of the step before
        head_optimizer.zero_grad(set_to_none=True)
        scores, hidden, features = scores_of(batch)
        figures = {"rating": F.mse_loss(scores, batch["labels"])}
        marks = tags(hidden)
        for index, name in enumerate(("wrong", "damaged")):
            at = batch[name] >= 0
            count = at.sum().clamp(min=1)  # a batch of short prompts may show no reference
            figures[name] = (
                F.binary_cross_entropy_with_logits(marks[..., index][at], batch[name][at], reduction="sum") / count
            )
        loss = 10 * figures["rating"] + figures["wrong"] + figures["damaged"]
        for feature, name in zip(features, ("facts", "claims"), strict=False):
            figures[name] = F.mse_loss(feature[:, :facts], batch[name], reduction="none").sum(1).mean()
            loss = loss + 0.3 * figures[name]
        return loss, {name: float(part.detach()) for name, part in figures.items()}

    held_out = draw("vela held out", 32, 15)

    def evaluate() -> dict[str, float]:
        scores = torch.cat([scores_of(batch)[0] for batch in held_out])
        found = {"mse": float(F.mse_loss(scores, torch.cat([batch["labels"] for batch in held_out])))}
        aspects = torch.cat([batch["aspect"] for batch in held_out])
        free = torch.cat([(batch["wrong"] < 0).all(1) for batch in held_out])
        labels = torch.cat([batch["labels"] for batch in held_out])
        for shown, name in ((~free, "refs"), (free, "free")):
            for index, aspect in enumerate(ASPECTS):
                at = shown & (aspects == index)
                found[f"{aspect}_{name}"] = tau_c(scores[at, None].expand(-1, 3), labels[at, None].expand(-1, 3))[
                    "desc"
                ]
        return found

    folder = options.output / ("both" if both else "text_only")
    fit(
        others,
        step_loss,
        steps=options.steps,
        lr=options.lr,
        state={"model": model, "tags": tags},
        folder=folder,
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
