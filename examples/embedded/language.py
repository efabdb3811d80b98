"""Step 4: the language model learns the scenes' language, to find wrong and damaged words, and to rate."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.configs import vela_config
from examples.embedded.schedule import batches_by_length, drawn_together, fit, mark_losses, step_options
from examples.embedded.tokenizer import load_tokenizer
from reward.metrics.vela.model import VelaModel
from reward.scenes import ASPECTS, make_rated_sample
from reward.scenes.samples import RatedSample

__all__ = ["draw_prompts", "prompt_rows", "tau_of_batches"]

Batch = dict[str, torch.Tensor]

_IGNORED = -100.0


def prompt_rows(model: VelaModel, samples: list[RatedSample], references: list[int], aspects: list[int]) -> Batch:
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


def draw_prompts(
    model: VelaModel, name: str, size: int, number: int, more: Callable[[list[RatedSample]], Batch] = lambda samples: {}
) -> list[Batch]:
    """`number` batches of `prompt_rows`, each with the key `aspect` (B,) and with what `more` gives for its samples."""
    rng = random.Random(name)
    rows = []
    for _ in range(size * number):
        sample, shown = make_rated_sample(rng, references=2), rng.choice((0, 0, 1, 1, 2))
        rows.append((sample, shown, rng.randrange(len(ASPECTS))))

    def length(row: tuple[RatedSample, int, int]) -> int:
        return len(row[0].candidate.caption.text) + sum(map(len, row[0].references[: row[1]]))

    def collate(rows: list[tuple[RatedSample, int, int]]) -> Batch:
        samples, shown, aspects = map(list, zip(*rows, strict=True))
        return prompt_rows(model, samples, shown, aspects) | {"aspect": torch.tensor(aspects)} | more(samples)

    return batches_by_length(rows, size, length, collate, rng)


def tau_of_batches(scores: list[torch.Tensor], batches: list[Batch]) -> dict[str, float]:
    """Kendall's tau-c of the scores with the ratings, per aspect, with references (`refs`) and without (`free`)."""
    from scipy.stats import kendalltau

    given, labels, aspects = (
        torch.cat(parts) for parts in (scores, *([batch[key] for batch in batches] for key in ("labels", "aspect")))
    )
    free = torch.cat([(batch["wrong"] == _IGNORED).all(1) for batch in batches])
    figures = {}
    for index, aspect in enumerate(ASPECTS):
        for shown, name in ((~free, "refs"), (free, "free")):
            at = shown & (aspects == index)
            figures[f"{aspect}_{name}"] = float(kendalltau(given[at], labels[at], variant="c").statistic)
    return figures


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/language/last.pt`."""
    options = step_options(__doc__, argv, steps=800, batch=32, lr=2e-3)
    tokenizer = load_tokenizer(options.output)
    model = VelaModel.from_config(vela_config(tokenizer, image=False), tokenizer=tokenizer)
    tags = nn.Linear(128, 2)

    batch_of = drawn_together(lambda step: draw_prompts(model, f"language {options.seed} {step}", options.batch, 8))

    def losses(batch: Batch) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """The losses and the scores (B,)."""
        inputs = {name: batch[name] for name in ("aspect", "input_ids", "attention_mask", "labels")}
        out = model(**inputs, output_hidden_states=True)
        hidden = out.hidden_states
        logits = hidden[:, :-1] @ model.text.decoder.embed_tokens.weight.T
        where = batch["text"][:, 1:] & (batch["attention_mask"][:, 1:] == 1)
        parts = {"rating": out.loss, "language": F.cross_entropy(logits[where], batch["input_ids"][:, 1:][where])}
        return parts | mark_losses(tags(hidden), batch), out.scores

    weights = {"rating": 5.0, "language": 0.5, "wrong": 2.0, "damaged": 2.0}

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        parts, _ = losses(batch_of(step))
        return sum(weights[name] * part for name, part in parts.items()), {
            name: float(part.detach()) for name, part in parts.items()
        }

    held_out = cache(lambda: draw_prompts(model, "language held out", 32, 12))

    def evaluate() -> dict[str, float]:
        measured = [losses(batch) for batch in held_out()]
        figures = {name: sum(float(parts[name]) for parts, _ in measured) / len(measured) for name in weights}
        return figures | tau_of_batches([scores for _, scores in measured], held_out())

    fit(
        [*model.parameters(), *tags.parameters()],
        step_loss,
        options,
        "language",
        state={"model": model, "tags": tags},
        evaluate=evaluate,
        evaluate_every=300,
        warmup=200,
    )


if __name__ == "__main__":
    main()
