"""BEiTScore, step 3: stage 1 of the paper, a correct caption against an incorrect one, in three curriculum steps."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import torch
from torch.nn import functional as F

from examples.research.embedded.attacked import RELATED, WAYS, broken, scene_tagger, worsened
from examples.research.embedded.beit_data import Reader, Tokens
from examples.research.embedded.beit_model import AIDS, Aided, Outputs, aid_losses
from examples.research.embedded.beit_vision import scene_pixels
from examples.research.embedded.beit_words import caption_of, start_from
from examples.research.embedded.facts import excerpt
from examples.research.embedded.schedule import fit, step_options
from reward.audit.attacks import ATTACKS, Material, attack
from reward.corruptions.words import corrupt_words
from reward.scenes import Scene, Style, describe, drop_facts, make_candidate, make_references, rate_text, sample_scene
from reward.scenes.language import Word
from reward.scenes.pairs import CATEGORIES, make_pair

__all__ = ["LATE", "PairMaker"]

OPPOSITE = {"above": "below", "below": "above", "left": "right", "right": "left"}

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
        self,
        rng: random.Random,
        number: int,
        categories: Sequence[str],
        *,
        most: int | None,
        grounded: float = 0.75,
        relations: float = 0.0,
        attacked: float = 0.0,
    ) -> tuple[list[Scene], list[tuple[Tokens, Tokens]]]:
        """`number` scenes and their pairs, all long or all short, so that little is padding.

        Args:
            most: sentences around the error; None keeps captions whole.
            grounded: share of pairs whose error is only seen with the picture; the others are corrupted in their words
                or describe another scene.
            relations, attacked: shares of all pairs whose relations are turned round, and of attacked captions.
        """
        long = rng.random() < 0.5
        scenes: list[Scene] = []
        pairs: list[tuple[Tokens, Tokens]] = []
        while len(scenes) < number:
            scene = sample_scene(rng)
            draw = rng.random()
            if draw < attacked:
                made = self._attacked(scene, rng)
            elif draw < attacked + relations:
                made = self._relation(scene, rng, most)
            elif rng.random() < grounded:
                made = self._grounded(scene, rng, categories, most, long)
            else:
                made = self._other(scene, rng, most or (None if long else 4))
            if made is not None:
                scenes.append(scene)
                pairs.append(made)
        return scenes, pairs

    def draw_broken(self, rng: random.Random, number: int) -> tuple[list[Scene], list[tuple[Tokens, Tokens]]]:
        """`number` scenes, and for each some sentences, whole and broken."""
        rows: list[tuple[Scene, tuple[Tokens, Tokens]]] = []
        while len(rows) < number:
            scene = sample_scene(rng)
            if made := self._broken(scene, rng, rng.choice((1, 2, 2, 3, 5, 9))):
                rows.append((scene, made))
        return [scene for scene, _ in rows], [pair for _, pair in rows]

    def look(
        self,
        aided: Aided,
        scenes: Sequence[Scene],
        pairs: Sequence[tuple[Tokens, Tokens]],
        spoiled: Iterable[int],
        rng: random.Random,
        *,
        most: int | None,
        shift: float,
    ) -> tuple[Outputs, dict[str, torch.Tensor]]:
        """One pass over the pairs' captions, correct and incorrect in turn, and over spoiled ones of some scenes.

        Returns:
            What the network gives, and the losses of the heads in between.
        """
        captions = [caption for pair in pairs for caption in pair]
        image = [index for index in range(len(pairs)) for _ in range(2)]
        for index in spoiled:
            caption = caption_of(scenes[index], rng, most)
            captions.append(self._reader.spoiled(caption, scenes[index], rng, mask=0.15, replace=0.3))
            image.append(index)
        batch = self._reader.batch(captions, rng, shift=shift)
        out = aided(scene_pixels(scenes), torch.tensor(image), batch)
        return out, aid_losses(out, batch, [scenes[index] for index in image])

    def _grounded(
        self, scene: Scene, rng: random.Random, categories: Sequence[str], most: int | None, long: bool
    ) -> tuple[Tokens, Tokens] | None:
        pair = make_pair(scene, rng.choice(categories), rng, long=long)
        if pair is None:
            return None
        return self._reader.pair(pair.around_error(rng, most) if most else pair, scene)

    def _relation(self, scene: Scene, rng: random.Random, most: int | None) -> tuple[Tokens, Tokens] | None:
        """A caption with true relations of objects, and the same with some of them turned round."""
        spatial, facts = rng.randint(1, 8), drop_facts(scene, rng.choice((0.3, 0.6, 1.0)), rng)
        caption = describe(scene, rng, facts=facts, style=Style(split=rng.choice((0.0, 0.5)), spatial=spatial))
        caption = excerpt(caption, rng, 2 * most) if most else caption
        right = caption.words()
        turned = [
            sentence
            for sentence in caption.sentences
            if sentence.claims and sentence.claims[0][0] == "spatial" and rng.random() < 0.8
        ]
        if not turned:
            return None
        facts_turned = {sentence.claims[0] for sentence in turned}
        words = [
            Word(OPPOSITE.get(word.text, word.text), word.fact) if word.fact in facts_turned else word for word in right
        ]
        wrong = [place for place, (new, old) in enumerate(zip(words, right, strict=True)) if new.text != old.text]
        return self._reader.tokens(right, (), right, scene), self._reader.tokens(words, wrong, right)

    def _attacked(self, scene: Scene, rng: random.Random) -> tuple[Tokens, Tokens] | None:
        """A caption, and what an attack, broken sentences or a few changed facts make of it where that is worse."""
        draw = rng.random()
        if draw < 0.5:
            return self._worsened(scene, rng)
        if draw < 0.7:
            return self._broken(scene, rng, rng.choice((1, 2, 9)))
        base = (describe(scene, rng) if rng.random() < 0.5 else make_candidate(scene, rng).caption).text
        others = [make_candidate(sample_scene(rng), rng).caption.text]
        material = Material(rng, others, make_references(scene, rng, 1), rng.randint(1, 9), scene_tagger)
        pair = attack(rng.choice([*ATTACKS, *(*RELATED, "repeated nouns") * 4]), base, material)
        if pair is None:
            return None
        worse = [sum(rate_text(text, scene).values()) for text in pair]
        if worse[1] >= worse[0] - 0.2:
            return None
        right, spoilt = ([Word(word) for word in text.split(" ")] for text in pair)
        return self._reader.tokens(right), self._reader.tokens(spoilt)

    def _worsened(self, scene: Scene, rng: random.Random) -> tuple[Tokens, Tokens] | None:
        captions = worsened(scene, rng, rng.choice(WAYS))
        if captions is None:
            return None
        right, spoilt = (caption.words() for caption in captions)
        wrong = [place for place, word in enumerate(spoilt) if word.fact and not scene.is_true(word.fact)]
        return self._reader.tokens(right, (), right, scene), self._reader.tokens(spoilt, wrong, right)

    def _broken(self, scene: Scene, rng: random.Random, most: int) -> tuple[Tokens, Tokens] | None:
        """Up to `most` sentences, whole and with broken ones among them."""
        whole = excerpt(describe(scene, rng), rng, most)
        words = broken(scene, rng, base=whole).caption.words()
        wrong = [place for place, word in enumerate(words) if word.damaged]
        if not wrong:
            return None
        return self._reader.tokens(whole.words(), ends=True), self._reader.tokens(words, wrong, ends=True)

    def _other(self, scene: Scene, rng: random.Random, most: int | None) -> tuple[Tokens, Tokens] | None:
        caption = caption_of(scene, rng, most)
        right = caption.words()
        if rng.random() < 0.3:
            text: str | None = caption_of(sample_scene(rng), rng, most).text
        else:
            text = corrupt_words(caption.text, rng, rng.choice(WORD_LEVEL))
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
    aided, reader = start_from("beit_words", options.output)
    maker = PairMaker(reader)

    def losses(step: int) -> dict[str, torch.Tensor]:
        done = step / options.steps
        categories = (*STEPS[0 if done < 0.34 else 1 if done < 0.51 else 2], *LATE)
        most = 2 if done < 0.26 else 5 if done < 0.67 else 3 if done < 0.78 else None
        rng = random.Random(f"beit match {options.seed} {step}")
        scenes, pairs = maker.draw(rng, options.pairs, categories, most=most, grounded=0.8)
        # Naming masked words goes on, so that what step 2 learned stays.
        spoiled = rng.sample(range(len(scenes)), options.pairs)
        out, losses = maker.look(aided, scenes, pairs, spoiled, rng, most=most or 4, shift=0.5)
        logits = out.logits[: 2 * len(pairs)]
        order = (logits[::2] > logits[1::2]).float().mean()
        return {"match": match_loss(logits), "order": order, **losses}

    # Nearly constant: each kind of error is learned all at once, some late, and none at a small rate.
    fit(losses, options, "beit_match", {"aided": aided}, weights=AIDS, floor=0.7)


if __name__ == "__main__":
    main()
