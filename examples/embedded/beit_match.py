"""BEiTScore, step 3: stage 1 of the paper, a correct caption against an incorrect one, in three curriculum steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import torch
from torch.nn import functional as F

from examples.embedded.beit_data import Batch, Reader, Tokens
from examples.embedded.beit_model import Aided, aid_loss
from examples.embedded.beit_vision import scene_pixels
from examples.embedded.beit_words import caption_of, start_from
from examples.embedded.configs import beit_config
from examples.embedded.schedule import fit, step_options
from examples.embedded.tokenizer import load_tokenizer
from reward.corruptions.words import repeat_words, shuffle_sentences, shuffle_words
from reward.scenes import Scene, sample_scene
from reward.scenes.language import Word
from reward.scenes.pairs import CATEGORIES, make_pair

__all__ = ["FOUNDATION", "PairMaker"]

# Categories of the paper's steps (a), (b) and (c).
FOUNDATION = ("spatial", "actant_swap", "action", "noun", "attribute")
STEPS = (FOUNDATION, (*FOUNDATION, "count"), CATEGORIES)
# Learned last, and so drawn twice as often.
LATE = ("actant_swap", "attribute", "count")
WORD_LEVEL = ("shuffle_words", "repeat_noun", "repeat_adjective", *("shuffle_sentences", "repeat_verb") * 2)


class PairMaker:
    """Draws scenes, each with a correct and an incorrect caption of it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def draw(
        self, rng: random.Random, number: int, categories: Sequence[str], *, most: int | None, grounded: float = 0.75
    ) -> tuple[list[Scene], list[tuple[Tokens, Tokens]]]:
        """`number` scenes and their pairs, all long or all short, so that little is padding.

        Args:
            most: sentences around the error; None keeps captions whole.
            grounded: share of pairs whose error is only seen with the picture; the others are corrupted in their words
                or describe another scene.
        """
        long = rng.random() < 0.5
        scenes: list[Scene] = []
        pairs: list[tuple[Tokens, Tokens]] = []
        while len(scenes) < number:
            scene = sample_scene(rng)
            made = (
                self._grounded(scene, rng, categories, most, long)
                if rng.random() < grounded
                else self._other(scene, rng, most or (None if long else 4))
            )
            if made is not None:
                scenes.append(scene)
                pairs.append(made)
        return scenes, pairs

    def held_out(self) -> dict[str, tuple[list[Scene], Batch]]:
        """{category, or "words"}: 100 scenes, and their correct and incorrect captions in turn, whole."""
        sets = {}
        for name in (*CATEGORIES, "words"):
            rng = random.Random(f"beit match held out {name}")
            words = name == "words"
            scenes, pairs = self.draw(rng, 100, () if words else (name,), most=None, grounded=float(not words))
            captions = [caption for pair in pairs for caption in pair]
            sets[name] = (scenes, self._reader.batch(captions, rng, shift=0.0))
        return sets

    def _grounded(
        self, scene: Scene, rng: random.Random, categories: Sequence[str], most: int | None, long: bool
    ) -> tuple[Tokens, Tokens] | None:
        pair = make_pair(scene, rng.choice(categories), rng, long=long)
        if pair is None:
            return None
        return self._reader.pair(pair.around_error(rng, most) if most else pair, scene)

    def _other(self, scene: Scene, rng: random.Random, most: int | None) -> tuple[Tokens, Tokens] | None:
        caption = caption_of(scene, rng, most)
        right = caption.words()
        if rng.random() < 0.3:
            text: str | None = caption_of(sample_scene(rng), rng, most).text
        elif (kind := rng.choice(WORD_LEVEL)).startswith("repeat_"):
            text = repeat_words(caption.text, rng, part=kind.removeprefix("repeat_"))
        else:
            text = (shuffle_words if kind == "shuffle_words" else shuffle_sentences)(caption.text, rng)
        if text is None:
            return None
        # Words that state nothing: which of them are wrong is not known.
        return self._reader.tokens(right, (), right, scene), self._reader.tokens([Word(word) for word in text.split()])


def match_loss(logits: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of logits (2 P,), correct and incorrect in turn."""
    return F.binary_cross_entropy_with_logits(logits, torch.tensor([1.0, 0.0]).repeat(len(logits) // 2))


def main(argv: Sequence[str] | None = None) -> None:
    """Trains from `<output>/beit_words/last.pt` and writes `<output>/beit_match/last.pt`."""
    options = step_options(__doc__, argv, steps=7000, pairs=14, lr=1e-3)
    tokenizer = load_tokenizer(options.output)
    config = beit_config(len(tokenizer))
    aided = Aided(config)
    start_from(aided, options.output / "beit_words" / "last.pt")
    reader = Reader(tokenizer, config.max_text_tokens)
    maker = PairMaker(reader)

    def step_loss(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        done = step / options.steps
        categories = (*STEPS[0 if done < 0.34 else 1 if done < 0.51 else 2], *LATE)
        most = 2 if done < 0.26 else 5 if done < 0.67 else 3 if done < 0.78 else None
        rng = random.Random(f"beit match {options.seed} {step}")
        scenes, pairs = maker.draw(rng, options.pairs, categories, most=most, grounded=0.8)
        captions = [caption for pair in pairs for caption in pair]
        image = [index for index in range(len(pairs)) for _ in range(2)]
        matched = len(captions)
        # Naming masked words goes on, so that what step 2 learned stays.
        for index in rng.sample(range(len(scenes)), options.pairs):
            captions.append(
                reader.spoiled(caption_of(scenes[index], rng, most or 4), scenes[index], rng, mask=0.15, replace=0.3)
            )
            image.append(index)
        batch = reader.batch(captions, rng, shift=0.5)
        out = aided(scene_pixels(scenes), torch.tensor(image), batch)
        match = match_loss(out.logits[:matched])
        aids, figures = aid_loss(out, batch, [scenes[index] for index in image])
        order = (out.logits[0:matched:2] > out.logits[1:matched:2]).float().mean()
        return match + aids, {"match": float(match.detach()), "order": float(order), **figures}

    sets = cache(maker.held_out)

    def evaluate() -> dict[str, float]:
        figures = {}
        for name, (scenes, batch) in sets().items():
            image = torch.arange(len(scenes)).repeat_interleave(2)
            pixels = scene_pixels(scenes)
            logits = aided(pixels, image, batch).logits
            figures[name] = float((logits[::2] > logits[1::2]).float().mean())
            if name != "words":
                logits = aided(pixels, (image + 1) % len(scenes), batch).logits
                figures["other_" + name] = float((logits[::2] > logits[1::2]).float().mean())
        return figures

    fit(
        aided.parameters(),
        step_loss,
        options,
        "beit_match",
        # Nearly constant: each kind of error is learned all at once, some late, and none at a small rate.
        floor=0.7,
        state={"aided": aided},
        evaluate=evaluate,
        evaluate_every=500,
    )


if __name__ == "__main__":
    main()
