"""Simulated raters: five-point ratings per aspect from what is known to be wrong with a caption, with rater noise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from reward.scenes.edits import DAMAGES
from reward.scenes.oracle import Verdict

__all__ = ["ASPECTS", "NOISE", "RATERS", "Ratings", "rate", "true_ratings"]

ASPECTS = ("desc", "rel", "flu")
RATERS = 3
# Standard deviation of a rater around the truth, in points of five. With it a single simulated rater agrees with the
# mean of the other two at tau-c .61, .54 and .52 (500 scenes); for people on LongCap-Arena the paper gives tau-b .31 to
# .54. A first draft had .7 (tau-c about .69, .60 and .64); it was raised before any model was trained.
NOISE = 0.9


@dataclass(frozen=True)
class Ratings:
    """Ratings of one caption.

    Args:
        true: {aspect: rating before noise, in [1, 5]}.
        raters: {aspect: whole ratings 1..5, one a rater}.
    """

    true: dict[str, float]
    raters: dict[str, tuple[int, ...]]

    def score(self, aspect: str) -> float:
        """Mean rating of an aspect mapped to [0, 1]."""
        ratings = self.raters[aspect]
        return (sum(ratings) / len(ratings) - 1) / 4


def true_ratings(verdict: Verdict, damages: Sequence[str]) -> dict[str, float]:
    """What a rater without noise would say.

    Descriptiveness follows recall; relevance follows precision, reaching its worst at .4; fluency loses points by the
    kind of each damage (`reward.scenes.edits.DAMAGES`), each further one weighing a little less.

    Args:
        verdict: the caption's claims held against the truth.
        damages: kinds of damage done to the caption.

    Returns:
        {aspect: rating in [1, 5]}.
    """
    lost = sum(
        DAMAGES[kind] * 0.85**position for position, kind in enumerate(sorted(damages, key=lambda k: -DAMAGES[k]))
    )
    return {
        "desc": 1 + 4 * min(1.0, verdict.recall / 0.96),
        "rel": 1 + 4 * max(0.0, (verdict.precision - 0.4) / 0.6),
        "flu": max(1.0, 5 - lost),
    }


def rate(true: dict[str, float], rng: random.Random) -> Ratings:
    """Ratings of three raters: truth plus normal noise of `NOISE` points, rounded to 1..5."""
    raters = {
        aspect: tuple(min(5, max(1, round(value + rng.gauss(0, NOISE)))) for _ in range(RATERS))
        for aspect, value in true.items()
    }
    return Ratings(dict(true), raters)
