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
from examples.embedded.beit_match import PairMaker, aid_loss
from examples.embedded.beit_model import Aided
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
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--lr", type=float, default=4e-4)
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

    def rated(rng: random.Random, number: int) -> tuple[list[Scene], list[list[Word]], torch.Tensor]:
        scenes, words, scores = [], [], []
        for _ in range(number):
            scene = sample_scene(rng)
            candidate = make_candidate(scene, rng)
            scenes.append(scene)
            words.append([Word(word.text) for word in candidate.caption.words()])
            scores.append(sum(candidate.ratings.score(aspect) for aspect in ASPECTS) / len(ASPECTS))
        return scenes, words, torch.tensor(scores)

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        rng = random.Random(f"beit rate {options.seed} {step}")
        scenes, words, scores = rated(rng, 32)
        captions = [reader.tokens(row) for row in words]
        image = list(range(len(scenes)))
        count = len(captions)
        if not plain:
            others, pairs = maker.draw(rng, 14, CATEGORIES, most=None, grounded=0.7)
            image += [len(scenes) + index for index in range(len(pairs)) for _ in range(2)]
            captions += [caption for pair in pairs for caption in pair]
            scenes = [*scenes, *others]
        matched = len(captions)
        for index in rng.sample(range(len(scenes)), 6):
            captions.append(reader.spoiled(caption_of(scenes[index], rng), scenes[index], rng, mask=0.25, replace=0.15))
            image.append(index)
        batch = reader.batch(captions, rng, shift=0.0)
        out = aided(scene_pixels(scenes), torch.tensor(image), batch)
        human = (torch.sigmoid(out.logits[:count]) - scores).abs().mean()
        aids, figures = aid_loss(out, batch, [scenes[index] for index in image])
        loss = 4.0 * human + 0.5 * aids
        if not plain:
            order = order_loss(out.logits[count:matched])
            loss = loss + order
            figures["order"] = float(order.detach())
        return loss, {"human": float(human.detach()), **figures}

    rng = random.Random("beit rate held out")
    scenes, words, scores = rated(rng, 400)
    batch = reader.batch([reader.tokens(row) for row in words], rng, shift=0.0)
    sets: dict[str, tuple[list[Scene], Batch]] = {}
    for name in (*CATEGORIES, "words"):
        draws = random.Random(f"beit match held out {name}")
        found = maker.draw(draws, 100, (name,) if name != "words" else (), most=None, grounded=float(name != "words"))
        sets[name] = (found[0], reader.batch([caption for pair in found[1] for caption in pair], draws, shift=0.0))

    def evaluate() -> dict[str, float]:
        logits = aided(scene_pixels(scenes), torch.arange(len(scenes)), batch).logits
        figures = {"tau_b": float(kendalltau(logits.numpy(), scores.numpy()).statistic)}
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
