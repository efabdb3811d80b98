"""Teaches the embedded captioner to rate captions of scenes, as FLEUR and HarmonicEval ask it to.

    python -m examples.research.judge_scenes.train
    python -m examples.research.judge_scenes.train --steps 6000 --output runs/judge

Writes `<output>/model`, a vision-language model as any other, and `<output>/fleur` and `<output>/harmoniceval`, which
load_scorer reads. Run again, it goes on from its last save.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from examples.research.embedded.facts import CELL_LABELS
from examples.research.embedded.schedule import batches_by_length, drawn_together, fit, mark_losses, step_options
from examples.research.embedded.vision import pixels
from examples.research.judge_scenes.questions import FLEUR_PROMPT, HARMONIC_PROMPT, Row, RowMaker, pad_rows
from integrations.demo.captioner import load_captioner
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.scenes import ASPECTS, make_candidate, sample_scene
from reward.scenes.graph import GRID

__all__ = ["JudgeTrainer"]

CANDIDATES, QUESTIONS = 2, 2  # captions of a scene, and questions about a caption, that are drawn together
POOL = 8  # batches that are drawn together and sorted by length, so that little is padding
# What the heads say: two marks on a word, what an object looks like, its cell, three ratings.
HEADS = [2, sum(CELL_LABELS), GRID * GRID, len(ASPECTS)]
WEIGHTS = {"answer": 1.0, "wrong": 2.0, "damaged": 2.0, "object": 0.5, "truth": 5.0, "words": 0.3}

Batch = dict[str, torch.Tensor]


class JudgeTrainer:
    """Batches and losses.

    A rating alone says little about what it rests on. So the states are to say more, to linear heads that are thrown
    away afterwards: which words of a caption are wrong and which spoil its language, what the object they are about
    looks like and where it is, and at the answer the ratings without the raters' noise. And the words that are right
    are to be foreseen, as when the captioner was trained.

    Args:
        model, processor: the captioner; its image tower is not trained.
        batch: questions per step.
        seed: of the drawing; scenes come from streams of the name "judge <seed> <step>".
    """

    def __init__(self, model: Any, processor: Any, *, batch: int, seed: int) -> None:
        self.model, self.batch = model, batch
        model.model.vision_tower.requires_grad_(False)
        self.rows = RowMaker(processor, model.config.image_seq_length)
        self.heads = nn.Linear(model.config.text_config.hidden_size, sum(HEADS))
        self.batch_of = drawn_together(lambda step: self.draw(f"judge {seed} {step}", POOL))

    def draw(self, name: str, number: int) -> list[Batch]:
        """`number` batches with what the image tower sees, `features` (B', tokens, D) of rows that show an image."""
        rng = random.Random(name)
        scenes = [sample_scene(rng) for _ in range(self.batch * number // (CANDIDATES * QUESTIONS))]
        rows: list[tuple[Row, int]] = []
        for index, scene in enumerate(scenes):
            for _ in range(CANDIDATES):
                candidate = make_candidate(scene, rng)
                rows += [
                    (self.rows.row(self.rows.draw_kind(rng), candidate, scene, rng), index) for _ in range(QUESTIONS)
                ]
        with torch.no_grad():
            tower = self.model.model.vision_tower
            seen = tower(pixels(scenes), output_hidden_states=True)
            features = seen.hidden_states[self.model.config.vision_feature_layer]
            if self.model.config.vision_feature_select_strategy == "default":
                features = features[:, 1:]  # without the class token
        pad, vocabulary = self.rows.tokenizer.pad_token_id, self.model.config.text_config.vocab_size

        def collate(part: list[tuple[Row, int]]) -> Batch:
            seen = features[[index for row, index in part if row.sees_image]]
            return pad_rows([row for row, _ in part], pad, vocabulary) | {"features": seen}

        return batches_by_length(rows, self.batch, lambda row: len(row[0].ids), collate, rng)

    def losses(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Cross-entropy of the answers, and what the heads miss."""
        inputs = self.model.get_input_embeddings()(batch["input_ids"])
        if len(batch["features"]):
            projected = self.model.model.multi_modal_projector(batch["features"])
            places = batch["input_ids"] == self.model.config.image_token_id
            inputs = inputs.masked_scatter(places[..., None], projected)
        hidden = self.model.model(inputs_embeds=inputs, attention_mask=batch["attention_mask"]).last_hidden_state
        row, place = batch["at"].T
        logits = self.model.lm_head(hidden[row, place - 1])
        losses = {"answer": F.cross_entropy(logits, batch["answers"], reduction="sum") / len(batch["input_ids"])}
        marks, looks, cells, ratings = self.heads(hidden).split(HEADS, dim=-1)
        losses |= mark_losses(marks, batch)
        about = batch["cell"] >= 0
        where = batch["cell"][about]
        shown = batch["shown"][about.nonzero()[:, 0], where]
        parts = looks[about].split(CELL_LABELS, dim=-1)
        missed = sum(F.cross_entropy(part, shown[:, kind], reduction="sum") for kind, part in enumerate(parts))
        missed = F.cross_entropy(cells[about], where, reduction="sum") + missed
        losses["object"] = missed / about.sum().clamp(min=1)
        losses["truth"] = (ratings[row, place - 1] - batch["truth"][row]).square().mean()
        right = (batch["wrong"][:, 1:] == 0) & (batch["damaged"][:, 1:] == 0)
        words = self.model.lm_head(hidden[:, :-1][right])
        wanted = batch["input_ids"][:, 1:][right]
        losses["words"] = F.cross_entropy(words, wanted, reduction="sum") / right.sum().clamp(min=1)
        return losses


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes the judge and the two scorers."""
    output, captioner = Path("runs/judge"), {"default": "embedded", "help": "what to begin with; default: %(default)s"}
    options = step_options(__doc__, argv, output=output, captioner=captioner, steps=4000, batch=32, lr=1e-3)
    model, processor = load_captioner(options.captioner)
    trainer = JudgeTrainer(model, processor, batch=options.batch, seed=options.seed)
    modules = {"model": model, "heads": trainer.heads}

    def losses(step: int) -> dict[str, torch.Tensor]:
        return trainer.losses(trainer.batch_of(step))

    fit(losses, options, ".", modules, weights=WEIGHTS, warmup=50, bfloat16=False)
    folder = options.output / "model"
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    # No question of the training held references.
    fleur = FleurScorer.from_pretrained(folder, device="cpu", prompt=FLEUR_PROMPT, use_references=False)
    fleur.save_pretrained(options.output / "fleur")
    harmonic = HarmonicScorer.from_pretrained(folder, device="cpu", prompt=HARMONIC_PROMPT)
    harmonic.save_pretrained(options.output / "harmoniceval")


if __name__ == "__main__":
    main()
