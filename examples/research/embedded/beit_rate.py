"""BEiTScore, step 4: stage 2 of the paper, L1 regression on (simulated) human scores; stage 1 is kept on beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from examples.research.embedded.attacked import draw_sample, true_scores
from examples.research.embedded.beit_data import Batch, Tokens
from examples.research.embedded.beit_match import LATE, PairMaker
from examples.research.embedded.beit_model import AIDS
from examples.research.embedded.beit_vision import scene_pixels
from examples.research.embedded.beit_words import start_from
from examples.research.embedded.schedule import START, batches_by_length, fit, step_options
from reward.scenes import Scene
from reward.scenes.language import Word
from reward.scenes.pairs import CATEGORIES

__all__ = ["order_loss"]


def order_loss(logits: torch.Tensor) -> torch.Tensor:
    """Logistic loss of the difference of logits (2 P,), correct and incorrect in turn.

    Stage 1 asks for 1 and 0, human scores lie in between: of stage 1 only the order is kept on.
    """
    return F.softplus(logits[1::2] - logits[::2]).mean()


def main(argv: Sequence[str] | None = None) -> None:
    """Trains from `<output>/beit_match/last.pt` and writes `<output>/beit_rate/last.pt`."""
    written = {"type": Path, "help": "JSON lines with scene and caption, that policies wrote"}
    options = step_options(__doc__, argv, steps=900, lr=6e-4, written=written, start=START)
    aided, reader = start_from("beit_match", options.output, options.start)
    maker = PairMaker(reader)

    pool: list[tuple[list[Scene], Batch, torch.Tensor]] = []

    def draw_ratings(rng: random.Random) -> list[tuple[list[Scene], Batch, torch.Tensor]]:
        """Eight batches of scenes, captions and human scores."""
        rows = []
        for _ in range(20 * 8):
            sample = draw_sample(rng, references=0, written=options.written)
            scores = true_scores(sample)
            words = [Word(word.text) for word in sample.candidate.caption.words()]
            rows.append((sample.scene, reader.tokens(words), sum(scores.values()) / len(scores)))

        def collate(rows: list[tuple[Scene, Tokens, float]]) -> tuple[list[Scene], Batch, torch.Tensor]:
            scenes, captions, scores = zip(*rows, strict=True)
            return list(scenes), reader.batch(captions, rng, shift=0.0), torch.tensor(scores)

        return batches_by_length(rows, 20, lambda row: len(row[1]), collate, rng)

    def losses(step: int) -> dict[str, torch.Tensor]:
        rng = random.Random(f"beit rate {options.seed} {step}")
        if not pool:
            pool.extend(draw_ratings(rng))
        scenes, batch, scores = pool.pop()
        logits = aided(scene_pixels(scenes), torch.arange(len(scenes)), batch).logits
        # The L1 of the paper has no gradient where the sigmoid is flat: after it alone, logits were 13 to 22, and good
        # captions all scored 1.000. Cross entropy with the score as its target has a gradient there.
        human = {
            "human": (torch.sigmoid(logits) - scores).abs().mean(),
            "steep": F.binary_cross_entropy_with_logits(logits, scores),
        }

        kinds = {"grounded": 0.8, "relations": 0.1, "attacked": 0.6}
        others, pairs = maker.draw(rng, 16, (*CATEGORIES, *LATE), most=None, **kinds)
        spoiled = rng.sample(range(len(others)), 2)
        out, losses = maker.look(aided, others, pairs, spoiled, rng, most=None, shift=0.0)
        ordered = {"order": order_loss(out.logits[: 2 * len(pairs)])}
        # A sentence with two verbs is soon seen when it stands alone, but not among others: that takes many pairs.
        scenes, pairs = maker.draw_broken(rng, 8)
        out, ends = maker.look(aided, scenes, pairs, (), rng, most=None, shift=0.0)
        ordered |= {"broken": order_loss(out.logits), "ends": ends["errors"]}
        return {**human, **ordered, **losses}

    weights = {"human": 4.0, "steep": 2.0} | {name: 0.5 * weight for name, weight in AIDS.items()}
    # A checkpoint folder has no heads that help in training.
    folder = bool(options.start) and not options.start.endswith(".pt")
    aids = [part for name, part in aided.named_parameters() if not name.startswith("model.")] if folder else []
    fit(losses, options, "beit_rate", {"aided": aided}, weights=weights, head=aids, head_lr=2e-3)


if __name__ == "__main__":
    main()
