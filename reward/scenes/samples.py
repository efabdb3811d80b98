"""Rated samples: a scene, its references, one caption of known quality, and its ratings by simulated raters."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reward.scenes.describe import Caption, Style, describe
from reward.scenes.edits import DAMAGES, ERRORS, damage, drop_facts, make_error
from reward.scenes.graph import Fact, Scene, sample_scene
from reward.scenes.oracle import FactScores, Oracle, score_claims
from reward.scenes.render import render

if TYPE_CHECKING:
    from datasets import Dataset


ASPECTS = ("desc", "rel", "flu")
RATERS = 3
# Standard deviation of a rater around the truth, in points of five. With it a single simulated rater agrees with the
# mean of the other two at tau-c .61, .54 and .52 (500 scenes); the VELA paper reports tau-b .31 to .54 for people on
# LongCap-Arena. The value was fixed before any model was trained.
NOISE = 0.9
# Share of candidates that describe another picture altogether, as a retrieval error would.
_RETRIEVED = 0.05


@dataclass(frozen=True)
class Ratings:
    """Ratings of one caption.

    Args:
        true: {aspect: rating before noise, in [1, 5]}.
        raters: {aspect: whole ratings 1..5, one per rater}.
    """

    true: dict[str, float]
    raters: dict[str, tuple[int, ...]]

    def score(self, aspect: str) -> float:
        """Mean rating of an aspect mapped to [0, 1]."""
        ratings = self.raters[aspect]
        return (sum(ratings) / len(ratings) - 1) / 4


def true_ratings(fact_scores: FactScores, damages: Sequence[str]) -> dict[str, float]:
    """The ratings of a rater without noise.

    Descriptiveness follows recall; relevance follows precision, reaching its worst at .4; fluency loses
    points for each damage (`reward.scenes.edits.DAMAGES`), a little less for each further one.

    Args:
        fact_scores: the caption's claims compared with the truth.
        damages: kinds of damage done to the caption.

    Returns:
        {aspect: rating in [1, 5]}.
    """
    lost = sum(
        DAMAGES[kind] * 0.85**position for position, kind in enumerate(sorted(damages, key=lambda k: -DAMAGES[k]))
    )
    return {
        "desc": 1 + 4 * min(1.0, fact_scores.recall / 0.96),
        "rel": 1 + 4 * max(0.0, (fact_scores.precision - 0.4) / 0.6),
        "flu": max(1.0, 5 - lost),
    }


# The damage that a fault in an oracle's reading counts as.
_FAULTS = {"repetition": "repetition", "agreement": "agreement", "truncation": "truncation", "unreadable": "word_order"}


def rate_text(text: str, scene: Scene) -> dict[str, float]:
    """The ratings, without noise, of any text as a caption of a scene, by what the oracle reads in it.

    A sentence whose claims were all made before counts as a repetition, in whatever words. A text that claims nothing
    gets the lowest rating in each aspect, because there is no caption to rate.

    Args:
        text: any text.
        scene: the truth.

    Returns:
        {aspect: rating in [1, 5]}; see `true_ratings`.

    Example:
        >>> rate_text("It is a simple drawing.", sample_scene(random.Random(0)))
        {'desc': 1.0, 'rel': 1.0, 'flu': 1.0}
    """
    oracle = Oracle()
    reading = oracle.read(text)
    if not reading.claims:
        return dict.fromkeys(ASPECTS, 1.0)
    damages: list[str] = []
    for kind, number in reading.faults.items():
        damages += [_FAULTS[kind]] * number
    # Attacks repeat facts in other words, which the grammar alone would let pass.
    said: frozenset[Fact] = frozenset()
    sentences = dict.fromkeys(part.strip() for part in " ".join(text.lower().split()).split("."))
    for sentence in sentences:  # equal sentences are faults already
        claims = oracle.read(sentence + ".").claims
        damages += ["repetition"] * (bool(claims) and claims <= said)
        said |= claims
    return true_ratings(score_claims(reading.claims, scene), damages)


def rate(true: dict[str, float], rng: random.Random) -> Ratings:
    """Ratings of three raters: truth plus normal noise of `NOISE` points, rounded to 1..5."""
    raters = {}
    for aspect, value in true.items():
        noisy = [round(value + rng.gauss(0, NOISE)) for _ in range(RATERS)]
        raters[aspect] = tuple(min(5, max(1, rating)) for rating in noisy)
    return Ratings(dict(true), raters)


@dataclass(frozen=True)
class Candidate:
    """A caption of known quality, with the kinds of its errors and damages and its ratings."""

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


def make_references(scene: Scene, rng: random.Random, number: int) -> tuple[str, ...]:
    """`number` true, fluent and nearly complete captions of 40 to 150 words, as people might write them.

    Args:
        scene: the scene to describe.
        rng: source of wording.
        number: how many.
    """
    texts = []
    for _ in range(number):
        # In a fixed order: the order of a set differs between processes, and each fact draws a random number.
        facts = sorted(scene.facts(), key=str)
        style = Style(split=rng.choice((0.2, 0.5)), filler=rng.randint(0, 2), spatial=rng.randint(0, 2))
        stated = {fact for fact in facts if fact[0] in ("object", "count") or rng.random() < 0.97}
        texts.append(describe(scene, rng, facts=stated, style=style).text)
    return tuple(texts)


def make_candidate(scene: Scene, rng: random.Random) -> Candidate:
    """A caption of random quality. Length does not reveal it: poor captions are padded, good ones are often terse."""
    belief = scene  # the scene as the writer of the caption believes it to be
    errors: list[str] = []
    if rng.random() < _RETRIEVED:
        belief = sample_scene(rng)
        errors.append("retrieved")
    else:
        for _ in range(rng.choice((0, 0, 1, 1, 2, 2, 3, 3, 4, 5))):
            kind = rng.choice(ERRORS)
            changed = make_error(belief, kind, rng)
            if changed:
                belief = changed
                errors.append(kind)
    keep = rng.choice((1.0, 1.0, rng.uniform(0.1, 1.0), rng.uniform(0.1, 1.0), rng.uniform(0.1, 0.6)))
    padding_rate = 0.6 if keep < 0.6 else 0.25
    if rng.random() < padding_rate:
        split = rng.choice((0.3, 0.6, 0.9))
        filler = rng.randint(1, 4)
        spatial = rng.randint(0, 3)
    else:
        split = rng.choice((0.0, 0.0, 0.3, 0.6))
        filler = rng.choice((0, 0, 0, 1))
        spatial = rng.choice((0, 0, 0, 1))
    style = Style(split=split, filler=filler, spatial=spatial, order=rng.choice(("scene", "random")))
    caption = describe(belief, rng, facts=drop_facts(belief, keep, rng), style=style)
    damages: list[str] = []
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2, 2, 3, 4))):
        kind = rng.choice(tuple(DAMAGES))
        damaged = damage(caption, kind, rng)
        if damaged:
            caption = damaged
            damages.append(kind)
    ratings = rate(true_ratings(score_claims(caption.claims, scene), damages), rng)
    return Candidate(caption, tuple(errors), tuple(damages), ratings)


def make_rated_sample(rng: random.Random, *, references: int | None = None) -> RatedSample:
    """A random scene with one to three references (or the number given) and one rated candidate."""
    scene = sample_scene(rng)
    number = rng.randint(1, 3) if references is None else references
    return RatedSample(scene, make_references(scene, rng, number), make_candidate(scene, rng))


def make_dataset(n: int, seed: int) -> Dataset:
    """Makes `n` rated captions of `n` random scenes; the same arguments always give the same rows.

    Args:
        n: number of rows, at least 1.
        seed: any whole number; rows of different seeds are different scenes.

    Returns:
        A data set with the columns of LongCap-Arena, file_name (str), image (PIL), refs (list of str), cand (str) and
        score (float in [0, 1]); and beside them desc, rel, flu (score is their mean), ratings (JSON: per aspect the
        three raters' whole ratings 1..5), truth (JSON: per aspect the rating without noise), errors and damages (lists
        of str), and scene (JSON, for `Oracle.score`).

    Example:
        >>> rows = make_dataset(2, seed=0)
        >>> sorted(set(rows.column_names) & {"cand", "file_name", "image", "refs", "score"})
        ['cand', 'file_name', 'image', 'refs', 'score']
    """
    from datasets import Dataset, Features, Image, List, Value

    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    text, number, texts = Value("string"), Value("float64"), List(Value("string"))
    features = Features(
        {"file_name": text, "image": Image(), "refs": texts, "cand": text, "score": number}
        | dict.fromkeys(ASPECTS, number)
        | {"ratings": text, "truth": text, "errors": texts, "damages": texts, "scene": text}
    )
    rows = []
    for index in range(n):
        # One generator a row: row k is the same whatever n is.
        sample = make_rated_sample(random.Random(f"capreward scenes {seed} {index}"))
        ratings = sample.candidate.ratings
        scores = {name: ratings.score(name) for name in ASPECTS}
        row = {
            "file_name": f"scene_{seed}_{index:06d}.png",
            "image": render(sample.scene),
            "refs": list(sample.references),
            "cand": sample.candidate.caption.text,
            "score": sum(scores.values()) / len(scores),
            **scores,
            "ratings": json.dumps(ratings.raters),
            "truth": json.dumps(ratings.true),
            "errors": list(sample.candidate.errors),
            "damages": list(sample.candidate.damages),
            "scene": sample.scene.to_json(),
        }
        rows.append(row)
    return Dataset.from_list(rows, features=features)
