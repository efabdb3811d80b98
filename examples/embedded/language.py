"""Step 4: the language model learns the scenes' language, to find wrong and damaged words, and to rate."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.schedule import fit
from examples.embedded.tokenizer import load_tokenizer
from examples.embedded.vela_config import vela_config
from reward.metrics.vela.model import VelaModel
from reward.scenes import ASPECTS, make_rated_sample
from reward.scenes.samples import RatedSample

__all__ = ["prompt_rows"]

_IGNORED = -100.0


def prompt_rows(
    model: VelaModel, samples: list[RatedSample], references: list[int], aspects: list[int]
) -> dict[str, torch.Tensor]:
    """Padded prompts with labels at every token.

    Args:
        references: how many of its references each sample shows.
        aspects: index of the aspect each sample is rated on.

    Returns:
        input_ids, attention_mask (B, L) int64; text (B, L) bool, where captions stand; wrong, damaged (B, L) float, 1
        at such words of the candidate, 0 at its others, -100 elsewhere; labels (B,) ratings in [0, 1].
    """
    prompts = model.text.prompts
    rows = []
    for sample, shown, aspect in zip(samples, references, aspects, strict=True):
        candidate = sample.candidate.caption
        prefix, _ = prompts.prefix(sample.references[:shown], model.config.aspects[aspect])
        ids: list[int] = []
        wrong: list[float] = []
        damaged: list[float] = []
        for position, word in enumerate(candidate.words()):
            tokens, _ = prompts.candidate((" " if position else "") + word.text)
            ids += tokens
            is_wrong = float(word.fact is not None and not sample.scene.is_true(word.fact))
            wrong += [is_wrong if shown else _IGNORED] * len(tokens)
            damaged += [float(word.damaged)] * len(tokens)
        tail = prompts.tail(model.config.aspects[aspect])
        around = [_IGNORED] * len(prefix), [_IGNORED] * len(tail)
        rows.append(
            {
                "input_ids": prefix + ids + tail,
                "text": [shown > 0] * len(prefix) + [True] * len(ids) + [False] * len(tail),
                "wrong": around[0] + wrong + around[1],
                "damaged": around[0] + damaged + around[1],
            }
        )
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "text": False, "wrong": _IGNORED, "damaged": _IGNORED}
    batch = {
        name: torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])
        for name, value in fill.items()
    }
    batch["attention_mask"] = torch.tensor(
        [[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]
    )
    batch["labels"] = torch.tensor(
        [sample.candidate.ratings.score(ASPECTS[aspect]) for sample, aspect in zip(samples, aspects, strict=True)]
    )
    return batch


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/language/last.pt`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/embedded"))
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    tokenizer = load_tokenizer(options.output)
    model = VelaModel.from_config(vela_config(tokenizer, image=False), tokenizer=tokenizer)
    tags = nn.Linear(128, 2)

    def draw(name: str, size: int, number: int) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """`number` batches drawn together and sorted by length, so that little is padding."""
        rng = random.Random(name)
        rows = []
        for _ in range(size * number):
            sample, shown, aspect = make_rated_sample(rng, references=2), rng.choice((0, 0, 1, 1, 2)), rng.randrange(3)
            length = len(sample.candidate.caption.text) + sum(map(len, sample.references[:shown]))
            rows.append((length, sample, shown, aspect))
        rows.sort(key=lambda row: row[0])
        found = []
        for first in range(0, len(rows), size):
            _, samples, shown, aspects = zip(*rows[first : first + size], strict=True)
            found.append((prompt_rows(model, list(samples), list(shown), list(aspects)), torch.tensor(aspects)))
        rng.shuffle(found)
        return found

    pool: list[tuple[dict[str, torch.Tensor], torch.Tensor]] = []

    def losses(batch: dict[str, torch.Tensor], aspects: torch.Tensor) -> dict[str, torch.Tensor]:
        out = model(
            aspect=aspects,
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            labels=batch["labels"],
            output_hidden_states=True,
        )
        hidden = out.hidden_states
        logits = hidden[:, :-1] @ model.text.decoder.embed_tokens.weight.T
        where = batch["text"][:, 1:] & (batch["attention_mask"][:, 1:] == 1)
        found = {"rating": out.loss, "language": F.cross_entropy(logits[where], batch["input_ids"][:, 1:][where])}
        marks = tags(hidden)
        for index, name in enumerate(("wrong", "damaged")):
            at = batch[name] >= 0
            # A batch of short prompts may show no reference, and then says nothing about wrong words.
            count = at.sum().clamp(min=1)
            found[name] = (
                F.binary_cross_entropy_with_logits(marks[..., index][at], batch[name][at], reduction="sum") / count
            )
        return found

    weights = {"rating": 5.0, "language": 0.5, "wrong": 2.0, "damaged": 2.0}

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        if not pool:
            pool.extend(draw(f"language {options.seed} {step}", options.batch, 8))
        parts = losses(*pool.pop())
        return sum(weights[name] * part for name, part in parts.items()), {
            name: float(part.detach()) for name, part in parts.items()
        }

    held_out = draw("language held out", 32, 12)

    def evaluate() -> dict[str, float]:
        from scipy.stats import kendalltau

        figures = dict.fromkeys(weights, 0.0)
        scores: list[tuple[int, bool, float, float]] = []
        for batch, aspects in held_out:
            for name, part in losses(batch, aspects).items():
                figures[name] += float(part) / len(held_out)
            out = model(aspect=aspects, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
            free = [bool((row != _IGNORED).sum() == 0) for row in batch["wrong"]]
            scores += zip(aspects.tolist(), free, out.scores.tolist(), batch["labels"].tolist(), strict=True)
        for index, aspect in enumerate(ASPECTS):
            for free in (False, True):
                pairs = [(a, b) for k, f, a, b in scores if k == index and f == free]
                tau = kendalltau(*zip(*pairs, strict=True), variant="c").statistic
                figures[f"{aspect}{'_free' if free else '_refs'}"] = float(tau)
        return figures

    fit(
        [*model.parameters(), *tags.parameters()],
        step_loss,
        steps=options.steps,
        lr=options.lr,
        state={"model": model, "tags": tags},
        folder=options.output / "language",
        evaluate=evaluate,
        evaluate_every=300,
        warmup=200,
    )


if __name__ == "__main__":
    main()
