"""BEiTScore, step 4: stage 2 of the paper, L1 regression on (simulated) human scores; stage 1 is kept on beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import torch
from scipy.stats import kendalltau
from torch.nn import functional as F

from examples.embedded.beit_data import Batch, Reader, Tokens
from examples.embedded.beit_match import LATE, PairMaker
from examples.embedded.beit_model import Aided, aid_loss
from examples.embedded.beit_vision import scene_pixels
from examples.embedded.beit_words import caption_of, start_from
from examples.embedded.configs import beit_config
from examples.embedded.schedule import batches_by_length, fit, step_options
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
    options = step_options(
        __doc__,
        argv,
        steps=900,
        lr=6e-4,
        without_stage_1={"action": "store_true", "help": "start from step 2, and use no pairs"},
    )
    tokenizer = load_tokenizer(options.output)
    config = beit_config(len(tokenizer))
    aided = Aided(config)
    plain = options.without_stage_1
    start_from(aided, options.output / ("beit_words" if plain else "beit_match") / "last.pt")
    reader = Reader(tokenizer, config.max_text_tokens)
    maker = PairMaker(reader)

    def ratings(rng: random.Random, size: int) -> list[tuple[list[Scene], Batch, torch.Tensor]]:
        """Eight batches of scenes, captions and human scores."""
        rows = []
        for _ in range(size * 8):
            scene = sample_scene(rng)
            candidate = make_candidate(scene, rng)
            score = sum(candidate.ratings.score(aspect) for aspect in ASPECTS) / len(ASPECTS)
            rows.append((scene, reader.tokens([Word(word.text) for word in candidate.caption.words()]), score))

        def collate(rows: list[tuple[Scene, Tokens, float]]) -> tuple[list[Scene], Batch, torch.Tensor]:
            scenes, captions, scores = zip(*rows, strict=True)
            return list(scenes), reader.batch(captions, rng, shift=0.0), torch.tensor(scores)

        return batches_by_length(rows, size, lambda row: len(row[1].ids), collate, rng)

    pool: list[tuple[list[Scene], Batch, torch.Tensor]] = []

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        rng = random.Random(f"beit rate {options.seed} {step}")
        if not pool:
            pool.extend(ratings(rng, 20))
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

    held_out = cache(lambda: ratings(random.Random("beit rate held out"), 50))
    sets = cache(maker.held_out)

    def evaluate() -> dict[str, float]:
        given = [
            aided(scene_pixels(scenes), torch.arange(len(scenes)), batch).logits for scenes, batch, _ in held_out()
        ]
        scores = torch.cat([scores for _, _, scores in held_out()])
        figures = {"tau_b": float(kendalltau(torch.cat(given).numpy(), scores.numpy()).statistic)}
        for name, (pictures, pairs) in sets().items():
            logits = aided(scene_pixels(pictures), torch.arange(len(pictures)).repeat_interleave(2), pairs).logits
            figures[name] = float((logits[::2] > logits[1::2]).float().mean())
        return figures

    fit(
        aided.parameters(),
        step_loss,
        options,
        "beit_plain" if plain else "beit_rate",
        floor=0.02,
        state={"aided": aided},
        evaluate=evaluate,
        evaluate_every=250,
    )


if __name__ == "__main__":
    main()
