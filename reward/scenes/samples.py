"""Rated samples of the synthetic world: a scene, its references, one candidate of known quality, and its ratings."""

from __future__ import annotations

import random
from dataclasses import dataclass

from reward.scenes.describe import Caption, Style, describe
from reward.scenes.edits import DAMAGES, ERRORS, damage, drop_facts, make_error
from reward.scenes.graph import Scene, sample_scene
from reward.scenes.oracle import compare
from reward.scenes.raters import Ratings, rate, true_ratings

__all__ = ["Candidate", "RatedSample", "make_candidate", "make_rated_sample", "make_references"]

# Share of candidates that describe another picture altogether, as a retrieval error would.
_RETRIEVED = 0.05


@dataclass(frozen=True)
class Candidate:
    """A caption of known quality: the kinds of errors and damages in it, and ratings for it."""

    caption: Caption
    errors: tuple[str, ...]
    damages: tuple[str, ...]
    ratings: Ratings


@dataclass(frozen=True)
class RatedSample:
    """One row of the data set before rendering."""

    scene: Scene
    references: tuple[str, ...]
    candidate: Candidate


def make_references(scene: Scene, rng: random.Random, number: int, *, short: bool = False) -> tuple[str, ...]:
    """`number` captions that people might have written: true and fluent.

    Args:
        scene: what they describe.
        rng: source of wording.
        number: how many.
        short: whether they name two objects with their colours, in under 40 words; by default they are nearly complete,
            40 to 150 words long.
    """
    found = []
    for _ in range(number):
        # In a fixed order: a set of strings has another one in every process, and each draws a random number.
        facts = sorted(scene.facts(), key=str)
        if short:
            named = {entity.noun for entity in rng.sample(scene.entities, 2)}
            stated = {
                fact for fact in facts if fact[0] in ("object", "count", "colour", "action") and named & set(fact)
            }
            style = Style()
        else:
            style = Style(split=rng.choice((0.2, 0.5)), filler=rng.randint(0, 2), spatial=rng.randint(0, 2))
            stated = {fact for fact in facts if fact[0] in ("object", "count") or rng.random() < 0.97}
        found.append(describe(scene, rng, facts=stated, style=style).text)
    return tuple(found)


def make_candidate(scene: Scene, rng: random.Random) -> Candidate:
    """A caption of random quality. Length is no guide to it: poor captions are padded, full ones are often terse."""
    belief, errors = (sample_scene(rng), ["retrieved"]) if rng.random() < _RETRIEVED else (scene, [])
    for _ in range(rng.choice((0, 0, 1, 1, 2, 2, 3, 3, 4, 5)) if not errors else 0):
        kind = rng.choice(ERRORS)
        changed = make_error(belief, kind, rng)
        if changed:
            belief, errors = changed, [*errors, kind]
    keep = rng.choice((1.0, 1.0, rng.uniform(0.1, 1.0), rng.uniform(0.1, 1.0), rng.uniform(0.1, 0.6)))
    padded = rng.random() < (0.6 if keep < 0.6 else 0.25)
    style = Style(
        split=rng.choice((0.0, 0.0, 0.3, 0.6)) if not padded else rng.choice((0.3, 0.6, 0.9)),
        filler=rng.randint(1, 4) if padded else rng.choice((0, 0, 0, 1)),
        spatial=rng.randint(0, 3) if padded else rng.choice((0, 0, 0, 1)),
        order=rng.choice(("scene", "random")),
    )
    caption = describe(belief, rng, facts=drop_facts(belief, keep, rng), style=style)
    damages: list[str] = []
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2, 2, 3, 4))):
        kind = rng.choice(tuple(DAMAGES))
        damaged = damage(caption, kind, rng)
        if damaged:
            caption, damages = damaged, [*damages, kind]
    ratings = rate(true_ratings(compare(caption.claims, scene), damages), rng)
    return Candidate(caption, tuple(errors), tuple(damages), ratings)


def make_rated_sample(rng: random.Random, *, references: int | None = None) -> RatedSample:
    """A random scene with one to three references (or the number given) and one rated candidate."""
    scene = sample_scene(rng)
    number = rng.randint(1, 3) if references is None else references
    return RatedSample(scene, make_references(scene, rng, number), make_candidate(scene, rng))
