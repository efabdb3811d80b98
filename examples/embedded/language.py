"""Step 4: the language model learns the scenes' language, to find wrong and damaged words, and to rate."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from examples.embedded.configs import vela_config
from examples.embedded.schedule import batches_by_length, drawn_together, fit, mark_losses, padded, step_options
from examples.embedded.tokenizer import load_tokenizer
from reward.backbones.language import pad_rows
from reward.metrics.vela.model import VelaModel
from reward.scenes import ASPECTS, make_rated_sample
from reward.scenes.samples import RatedSample

__all__ = ["Batch", "draw_prompts"]

Batch = dict[str, torch.Tensor]

_IGNORED = -100.0


def _prompt_batch(model: VelaModel, rows: Sequence[tuple[RatedSample, int, int]]) -> Batch:
    """Padded prompts with labels at every token.

    Args:
        rows: samples, how many of its references each shows, and the index of the aspect it is rated on.

    Returns:
        input_ids, attention_mask (B, L) int64; text (B, L) bool, where captions stand; wrong, damaged (B, L) float, 1
        at such words of the candidate, 0 at its others, -100 elsewhere; aspect (B,); labels (B,) ratings in [0, 1].
    """
    prompts = model.text.prompts
    columns: dict[str, list[list[float]]] = {"ids": [], "text": [], "wrong": [], "damaged": []}
    for sample, shown, aspect in rows:
        prefix, _ = prompts.prefix(sample.references[:shown], model.config.aspects[aspect])
        tail = prompts.tail(model.config.aspects[aspect])
        ids: list[int] = []
        wrong: list[float] = []
        damaged: list[float] = []
        for position, word in enumerate(sample.candidate.caption.words()):
            tokens, _ = prompts.candidate((" " if position else "") + word.text)
            ids += tokens
            is_wrong = float(word.fact is not None and not sample.scene.is_true(word.fact))
            wrong += [is_wrong if shown else _IGNORED] * len(tokens)
            damaged += [float(word.damaged)] * len(tokens)
        before, after = [_IGNORED] * len(prefix), [_IGNORED] * len(tail)
        columns["ids"].append(prefix + ids + tail)
        columns["text"].append([shown > 0] * len(prefix) + [True] * len(ids) + [False] * len(tail))
        columns["wrong"].append(before + wrong + after)
        columns["damaged"].append(before + damaged + after)
    ids, mask = pad_rows(columns["ids"])
    ratings = [sample.candidate.ratings.score(ASPECTS[aspect]) for sample, _, aspect in rows]
    marks = {name: padded(columns[name], _IGNORED) for name in ("wrong", "damaged")}
    batch = {"input_ids": ids, "attention_mask": mask, "text": padded(columns["text"], False), **marks}
    return batch | {"aspect": torch.tensor([row[2] for row in rows]), "labels": torch.tensor(ratings)}


def draw_prompts(
    model: VelaModel, name: str, size: int, more: Callable[[list[RatedSample]], Batch] = lambda samples: {}
) -> list[Batch]:
    """Eight batches of prompts, each with what `more` gives for its samples."""
    rng = random.Random(name)
    rows = []
    for _ in range(size * 8):
        sample, shown = make_rated_sample(rng, references=2), rng.choice((0, 0, 1, 1, 2))
        rows.append((sample, shown, rng.randrange(len(ASPECTS))))

    def length(row: tuple[RatedSample, int, int]) -> int:
        return len(row[0].candidate.caption.text) + sum(map(len, row[0].references[: row[1]]))

    def collate(rows: list[tuple[RatedSample, int, int]]) -> Batch:
        return _prompt_batch(model, rows) | more([sample for sample, _, _ in rows])

    return batches_by_length(rows, size, length, collate, rng)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/language/last.pt`."""
    options = step_options(__doc__, argv, steps=800, batch=32, lr=2e-3)
    tokenizer = load_tokenizer(options.output)
    model = VelaModel.from_config(vela_config(tokenizer, image=False), tokenizer=tokenizer)
    tags = nn.Linear(128, 2)
    batch_of = drawn_together(lambda step: draw_prompts(model, f"language {options.seed} {step}", options.batch))

    def losses(step: int) -> dict[str, torch.Tensor]:
        batch = batch_of(step)
        inputs = {name: batch[name] for name in ("aspect", "input_ids", "attention_mask", "labels")}
        out = model(**inputs, output_hidden_states=True)
        logits = out.hidden_states[:, :-1] @ model.text.decoder.embed_tokens.weight.T
        where = batch["text"][:, 1:] & (batch["attention_mask"][:, 1:] == 1)
        language = F.cross_entropy(logits[where], batch["input_ids"][:, 1:][where])
        return {"rating": out.loss, "language": language} | mark_losses(tags(out.hidden_states), batch)

    weights = {"rating": 5.0, "language": 0.5, "wrong": 2.0, "damaged": 2.0}
    fit(losses, options, "language", {"model": model, "tags": tags}, weights=weights, warmup=200)


if __name__ == "__main__":
    main()
