"""Metrics on held-out pairs of captions that differ in one error, short and long, and on spoiled captions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reward import CaptionSample
from reward.corruptions.words import repeat_words, shuffle_sentences, shuffle_words
from reward.metaeval import Interval, PairwiseResult, bootstrap_weights, mean_difference, pairwise_accuracy
from reward.scenes import CATEGORIES, make_pair_dataset
from reward.scenes.benchmark import WORD_LEVEL

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["LENGTHS", "OTHER_IMAGE", "SPOILED", "PairsPart", "Rate", "measure_pairs", "measure_spoiling"]

Rate = Callable[[list[CaptionSample]], np.ndarray]  # (N,), larger is better

LENGTHS = ("short", "long")
OTHER_IMAGE = ", another scene's image"
# Kinds of word-level spoiling, by whose score a policy could be rewarded for nothing.
SPOILED = ("shuffle_words", "shuffle_sentences", "repeat_noun", "repeat_verb", "repeat_adjective")


@dataclass
class PairsPart:
    """Pairwise accuracy of metrics.

    Args:
        pairs: of each category and length.
        seed: of the scenes.
        errors: {length: {metric: result}} for the errors that only the picture shows.
        words: the same for errors in the words alone, and for captions of other scenes.
        changes: {length: {metric: {kind: mean score of spoiled minus mean score of correct captions}}}.
    """

    pairs: int
    seed: int
    errors: dict[str, dict[str, PairwiseResult]]
    words: dict[str, dict[str, PairwiseResult]]
    changes: dict[str, dict[str, dict[str, Interval]]]


def measure_pairs(
    metrics: Mapping[str, Rate],
    *,
    pairs: int,
    seed: int,
    controls: Sequence[str] = (),
    resamples: int = 1000,
) -> PairsPart:
    """Rates correct and incorrect captions of held-out scenes.

    Results on short pairs and on long pairs come from different seeds of the bootstrap, so that `minus` takes them as
    what they are: independent.

    Args:
        metrics: {name: gives scores}.
        pairs: of each category and length, at least 2.
        seed: of the scenes.
        controls: metrics that are also shown each pair with the image of another pair of its category, under their
            name and `OTHER_IMAGE`: what they then still tell apart they do not tell by the picture.
        resamples: of the bootstrap.
    """
    part = PairsPart(pairs, seed, {}, {}, {})
    for place, length in enumerate(LENGTHS):
        rows = make_pair_dataset(pairs, seed, long=length == "long")
        scores = {}
        for name, rate in metrics.items():
            scores[name] = _rate_pairs(rate, rows, shift=0)
            if name in controls:
                scores[name + OTHER_IMAGE] = _rate_pairs(rate, rows, shift=1)
        for categories, results in ((CATEGORIES, part.errors), (WORD_LEVEL, part.words)):
            own = np.array([category in categories for category in rows["category"]])
            names = [category for category in rows["category"] if category in categories]
            scenes = [scene for scene, wanted in zip(rows["scene"], own, strict=True) if wanted]
            results[length] = {
                name: pairwise_accuracy(
                    correct[own], incorrect[own], names, clusters=scenes, resamples=resamples, seed=place
                )
                for name, (correct, incorrect) in scores.items()
            }
        weights = bootstrap_weights(pairs, resamples=resamples)
        kinds = np.array(rows["category"])
        part.changes[length] = {
            name: {kind: mean_difference(after[kinds == kind], before[kinds == kind], weights) for kind in SPOILED}
            for name, (before, after) in scores.items()
            if name in metrics
        }
    return part


def measure_spoiling(
    metrics: Mapping[str, Rate], rows: Dataset, *, seed: int = 0, resamples: int = 1000
) -> dict[str, dict[str, Interval]]:
    """How word-level spoiling changes the mean score of captions of any quality.

    Args:
        metrics: {name: gives scores}.
        rows: from `reward.scenes.make_dataset`; a caption that a kind does not apply to is left out of that kind.
        seed: of the spoiling.
        resamples: of the bootstrap.

    Returns:
        {metric: {kind: mean score of the spoiled minus mean score of the same captions as they were}}.
    """
    captions, images = list(rows["cand"]), list(rows["image"])
    before = {name: rate(_samples(captions, images)) for name, rate in metrics.items()}
    changes: dict[str, dict[str, Interval]] = {name: {} for name in metrics}
    for kind in SPOILED:
        made = [spoil(text, kind, random.Random(f"{seed} {kind} {row}")) for row, text in enumerate(captions)]
        kept = [row for row, text in enumerate(made) if text is not None]
        spoiled = _samples([text for text in made if text is not None], [images[row] for row in kept])
        weights = bootstrap_weights(len(kept), resamples=resamples)
        for name, rate in metrics.items():
            changes[name][kind] = mean_difference(rate(spoiled), before[name][kept], weights)
    return changes


def spoil(caption: str, kind: str, rng: random.Random) -> str | None:
    """A caption after one of `SPOILED`; None where there is nothing to shuffle or repeat.

    Example:
        >>> spoil("A red star. A ring.", "shuffle_sentences", random.Random(0))
        'A ring. A red star.'
    """
    if kind == "shuffle_words":
        return shuffle_words(caption, rng)
    if kind == "shuffle_sentences":
        return shuffle_sentences(caption, rng)
    return repeat_words(caption, rng, kind.removeprefix("repeat_"))


def _rate_pairs(rate: Rate, rows: Dataset, *, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores (N,) of the correct and of the incorrect captions, with the image `shift` rows on in the category."""
    places: dict[str, list[int]] = {}
    for row, category in enumerate(rows["category"]):
        places.setdefault(category, []).append(row)
    of_image = {row: own[(k + shift) % len(own)] for own in places.values() for k, row in enumerate(own)}
    images = list(rows["image"])
    images = [images[of_image[row]] for row in range(len(rows))]
    # both captions of an image in one call, so that it is encoded once
    scores = rate(_samples([*rows["correct"], *rows["incorrect"]], [*images, *images]))
    return scores[: len(rows)], scores[len(rows) :]


def _samples(captions: Sequence[str], images: Sequence[object]) -> list[CaptionSample]:
    return [CaptionSample(text, image=image) for text, image in zip(captions, images, strict=True)]  # type: ignore[arg-type]
