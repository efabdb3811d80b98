"""Step 4: the language model learns the scenes' language, to find wrong and damaged words, and to rate."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend

from examples.research.embedded.attacked import broken, draw_sample, is_attacked, misnumbered, true_scores
from examples.research.embedded.configs import vela_config
from examples.research.embedded.schedule import (
    START,
    batches_by_length,
    drawn_together,
    fit,
    mark_losses,
    padded,
    step_options,
)
from examples.research.embedded.tokenizer import load_tokenizer
from reward.backbones.states import BranchedRows
from reward.metrics.vela.model import VelaModel
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import ASPECTS, sample_scene
from reward.scenes.samples import RatedSample

__all__ = ["Batch", "draw_prompts", "number_loss", "read_prompts"]

Batch = dict[str, torch.Tensor]

_IGNORED = -100.0


def _prompt_batch(model: VelaModel, rows: Sequence[tuple[RatedSample, int]]) -> Batch:
    """Padded prompts with labels at every token.

    Args:
        rows: samples, and how many of its references each shows.

    Returns:
        ids, positions, branch (B, L) int64, of `BranchedRows`, a branch for each aspect; text (B, L) bool, where
        captions stand; wrong, damaged (B, L) float, 1 at such words of the candidate, 0 at its others, -100 elsewhere
        and where it is not known; labels (B, 3) ratings in [0, 1].
    """
    prompts, aspects = model.text.prompts, model.config.aspects
    columns: dict[str, list[list[float]]] = {"text": [], "wrong": [], "damaged": []}
    trunks = []
    for sample, shown in rows:
        prefix, _ = prompts.prefix(sample.references[:shown], aspects[0])
        ids: list[int] = []
        wrong: list[float] = []
        damaged: list[float] = []
        unknown = is_attacked(sample)
        for position, word in enumerate(sample.candidate.caption.words()):
            tokens, _ = prompts.candidate((" " if position else "") + word.text)
            ids += tokens
            is_wrong = float(word.fact is not None and not sample.scene.is_true(word.fact))
            wrong += [is_wrong if shown and not unknown else _IGNORED] * len(tokens)
            damaged += [_IGNORED if unknown else float(word.damaged)] * len(tokens)
        before, most = [_IGNORED] * len(prefix), model.config.text.max_candidate_tokens
        trunks.append(prefix + ids[:most])
        columns["text"].append([shown > 0] * len(prefix) + [not unknown] * len(ids[:most]))
        columns["wrong"].append(before + wrong[:most])
        columns["damaged"].append(before + damaged[:most])
    made = BranchedRows.of(trunks, [prompts.tail(aspect) for aspect in aspects])
    length = made.ids.shape[1]
    marks = {
        name: padded([row + [fill] * (length - len(row)) for row in columns[name]], fill)
        for name, fill in (("text", False), ("wrong", _IGNORED), ("damaged", _IGNORED))
    }
    labels = torch.tensor([[true_scores(sample)[aspect] for aspect in ASPECTS] for sample, _ in rows])
    return {**made._asdict(), **marks, "labels": labels}


def read_prompts(model: VelaModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """g_r2c (B, 3, 2 * d) and the last hidden states (B, L, d) of a batch of prompts."""
    rows = BranchedRows(batch["ids"], batch["positions"], batch["branch"])
    mask = rows.attention_mask(torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32)
    hidden = model.text.decoder(
        input_ids=rows.ids, attention_mask=mask, position_ids=rows.positions, use_cache=False
    ).last_hidden_state
    return rows.pool(hidden, len(model.config.aspects)), hidden


def draw_prompts(
    model: VelaModel,
    name: str,
    size: int,
    more: Callable[[list[RatedSample]], Batch] = lambda samples: {},
    *,
    written: Path | None = None,
) -> list[Batch]:
    """Eight batches of prompts, each with what `more` gives for its samples."""
    rng = random.Random(name)
    rows = [(draw_sample(rng, references=2, written=written), rng.choice((0, 0, 1, 1, 2))) for _ in range(size * 8)]

    def length(row: tuple[RatedSample, int]) -> int:
        return len(row[0].candidate.caption.text) + sum(map(len, row[0].references[: row[1]]))

    def collate(rows: list[tuple[RatedSample, int]]) -> Batch:
        return _prompt_batch(model, rows) | more([sample for sample, _ in rows])

    return batches_by_length(rows, size, length, collate, rng)


def number_loss(model: VelaModel, tags: nn.Module, rng: random.Random) -> torch.Tensor:
    """Loss of finding nouns in the wrong number and broken sentences, in 48 short captions each."""
    scenes = [sample_scene(rng) for _ in range(64)]
    spoil = [misnumbered, broken] * 32
    rows = [
        (RatedSample(scene, (), make(scene, rng, short=True)), 0) for scene, make in zip(scenes, spoil, strict=True)
    ]
    batch = _prompt_batch(model, rows)
    return mark_losses(tags(read_prompts(model, batch)[1]), batch)["damaged"]


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/language/last.pt`."""
    options = step_options(__doc__, argv, steps=800, batch=32, lr=2e-3, start=START)
    tokenizer = load_tokenizer(options.output)
    model = VelaModel.from_config(vela_config(tokenizer, image=False), tokenizer=tokenizer)
    if options.start:
        before = VelaScorer.from_pretrained(options.start, device="cpu").model
        model.text.load_state_dict(before.text.state_dict())
        model.weight.data.copy_(before.weight[:, : model.text.size])
    tags = nn.Linear(128, 2)
    batch_of = drawn_together(lambda step: draw_prompts(model, f"language {options.seed} {step}", options.batch))

    def losses(step: int) -> dict[str, torch.Tensor]:
        batch = batch_of(step)
        pooled, hidden = read_prompts(model, batch)
        rating = F.mse_loss(model.head(pooled, None), batch["labels"])
        logits = hidden[:, :-1] @ model.text.decoder.embed_tokens.weight.T
        where = batch["text"][:, 1:] & (batch["branch"][:, 1:] == 0)
        language = F.cross_entropy(logits[where], batch["ids"][:, 1:][where])
        marks = mark_losses(tags(hidden), batch)
        numbers = number_loss(model, tags, random.Random(f"numbers {options.seed} {step}"))
        return {"rating": rating, "language": language, **marks, "numbers": numbers}

    weights = {"rating": 5.0, "language": 0.5, "wrong": 2.0, "damaged": 2.0, "numbers": 2.0}
    head = [model.weight, model.bias]
    modules, flash = {"model": model, "tags": tags}, SDPBackend.FLASH_ATTENTION
    fit(losses, options, "language", modules, weights=weights, head=head, head_lr=3e-3, attention=flash)


if __name__ == "__main__":
    main()
