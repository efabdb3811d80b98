"""BEiTScore, step 4: stage 2 of the paper, L1 regression on (simulated) human scores; stage 1 is kept on beside it."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from scipy.stats import kendalltau
from torch.nn import functional as F

from examples.embedded.beit import beit_config
from examples.embedded.beit_data import Batch, Reader
from examples.embedded.beit_match import LATE, PairMaker
from examples.embedded.beit_model import Aided, aid_loss
from examples.embedded.beit_vision import scene_pixels
from examples.embedded.beit_words import caption_of, start_from
from examples.embedded.schedule import fit
from examples.embedded.tokenizer import load_tokenizer
from reward.scenes import ASPECTS, Scene, make_candidate, sample_scene
from reward.scenes.language import Word
from reward.scenes.pairs import CATEGORIES

__all__ = ["order_loss"]


def order_loss(logits: torch.Tensor) -> torch.Tensor:
    """Logistic loss of the difference of logits (2 P,), correct and incorrect in turn.

    Stage 1 asks for 1 and 0, human scores lie in between: of stage 1 only the order is kept on.
    """
    return F.softplus(logits[1::2] - logits[::2]).mean()


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes `<output>/beit_rate/last.pt`, or with `--without-stage-1` `<output>/beit_plain/last.pt`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/embedded"))
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without-stage-1", action="store_true", help="the ablation: from step 2, without pairs")
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    tokenizer = load_tokenizer(options.output)
    config = beit_config(len(tokenizer))
    aided = Aided(config)
    plain = options.without_stage_1
    start_from(aided, options.output / ("beit_words" if plain else "beit_match") / "last.pt")
    reader = Reader(tokenizer, config.max_text_tokens)
    maker = PairMaker(reader)

    def ratings(rng: random.Random, size: int, number: int) -> list[tuple[list[Scene], Batch, torch.Tensor]]:
        """`number` batches of scenes, captions and human scores, drawn together and sorted by length."""
        rows = []
        for _ in range(size * number):
            scene = sample_scene(rng)
            candidate = make_candidate(scene, rng)
            score = sum(candidate.ratings.score(aspect) for aspect in ASPECTS) / len(ASPECTS)
            rows.append((scene, reader.tokens([Word(word.text) for word in candidate.caption.words()]), score))
        rows.sort(key=lambda row: len(row[1].ids))
        batches = []
        for first in range(0, len(rows), size):
            scenes, captions, scores = zip(*rows[first : first + size], strict=True)
            batches.append((list(scenes), reader.batch(captions, rng, shift=0.0), torch.tensor(scores)))
        rng.shuffle(batches)
        return batches

    pool: list[tuple[list[Scene], Batch, torch.Tensor]] = []

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        rng = random.Random(f"beit rate {options.seed} {step}")
        if not pool:
            pool.extend(ratings(rng, 20, 8))
        scenes, batch, scores = pool.pop()
        logits = aided(scene_pixels(scenes), torch.arange(len(scenes)), batch).logits
        human = (torch.sigmoid(logits) - scores).abs().mean()
        figures = {"human": float(human.detach())}

        others, pairs = maker.draw(rng, 10, (*CATEGORIES, *LATE), most=None, grounded=0.65)
        captions = [] if plain else [caption for pair in pairs for caption in pair]
        image = [] if plain else [index for index in range(len(pairs)) for _ in range(2)]
        matched = len(captions)
        for index in range(len(others)) if plain else rng.sample(range(len(others)), 4):
            captions.append(reader.spoiled(caption_of(others[index], rng), others[index], rng, mask=0.15, replace=0.3))
            image.append(index)
        words = reader.batch(captions, rng, shift=0.0)
        out = aided(scene_pixels(others), torch.tensor(image), words)
        aids, more = aid_loss(out, words, [others[index] for index in image])
        loss = 4.0 * human + 0.5 * aids
        if not plain:
            order = order_loss(out.logits[:matched])
            loss = loss + order
            figures["order"] = float(order.detach())
        return loss, figures | more

    held_out = ratings(random.Random("beit rate held out"), 50, 8)
    sets = maker.held_out()

    def evaluate() -> dict[str, float]:
        given = [aided(scene_pixels(scenes), torch.arange(len(scenes)), batch).logits for scenes, batch, _ in held_out]
        scores = torch.cat([scores for _, _, scores in held_out])
        figures = {"tau_b": float(kendalltau(torch.cat(given).numpy(), scores.numpy()).statistic)}
        for name, (pictures, pairs) in sets.items():
            logits = aided(scene_pixels(pictures), torch.arange(len(pictures)).repeat_interleave(2), pairs).logits
            figures[name] = float((logits[::2] > logits[1::2]).float().mean())
        return figures

    fit(
        aided.parameters(),
        step_loss,
        steps=options.steps,
        lr=options.lr,
        floor=0.02,
        state={"aided": aided},
        folder=options.output / ("beit_plain" if plain else "beit_rate"),
        evaluate=evaluate,
        evaluate_every=250,
    )


if __name__ == "__main__":
    main()
