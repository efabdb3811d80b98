"""What the judge is taught: the simulated raters' numbers, as the answers that FLEUR and HarmonicEval ask for."""

from __future__ import annotations

import random

from reward.scenes import ASPECTS, Oracle, Ratings, rate

__all__ = ["ASPECT_OF", "grade", "rate_style", "style_of"]

# Criteria that the simulated raters rate, and what they call them: relevance follows the share of a caption's facts
# that are true, descriptiveness the share of the scene's facts that are told. Clarity and conciseness have no such
# counterpart: `style_of` reads them off the text.
ASPECT_OF = {"correctness": "rel", "completeness": "desc", "fluency": "flu"}

_ORACLE = Oracle()


def grade(ratings: Ratings, rater: int, rng: random.Random) -> str:
    """What one rater would answer FLEUR: the mean of the rater's aspects, in two decimals.

    Three ratings from 1 to 5 have 13 possible means; each stands for a thirteenth of the scale, and the answer is
    drawn from that part. So it is always of the form 0.dd, and no decimals are missing from the answers.

    Example:
        >>> made = Ratings({}, {"desc": (5, 1), "rel": (5, 1), "flu": (5, 1)})
        >>> grade(made, 0, random.Random(0)) > "0.92", grade(made, 1, random.Random(0)) < "0.08"
        (True, True)
    """
    points = sum(ratings.raters[aspect][rater] - 1 for aspect in ASPECTS)
    steps = 4 * len(ASPECTS) + 1
    return f"0.{int(100 * (points + rng.random()) / steps):02}"


def style_of(caption: str) -> dict[str, float]:
    """Clarity and conciseness of a caption, from 1 to 5, before the noise of raters; found by reading it.

    Clarity loses 1.5 points for each sentence that cannot be read or breaks off, and 1 for each that leaves open how
    many things it speaks of. Conciseness loses a point for each tenth of the words that stands in sentences without
    anything new, and half a point for each repetition.

    Example:
        >>> style_of("There is a red star. There is a red star.")
        {'clarity': 5.0, 'conciseness': 1.0}
    """
    faults = _ORACLE.read(caption).faults
    unclear = 1.5 * (faults.get("unreadable", 0) + faults.get("truncation", 0)) + faults.get("agreement", 0)
    known: set[object] = set()
    needless = total = 0
    for sentence in filter(None, (part.strip() for part in caption.split("."))):
        words, claims = len(sentence.split()), _ORACLE.read(sentence + ".").claims
        total += words
        needless += words if claims <= known else 0
        known |= claims
    wordy = 10 * needless / max(total, 1) + 0.5 * faults.get("repetition", 0)
    return {"clarity": max(1.0, 5 - unclear), "conciseness": max(1.0, 5 - wordy)}


def rate_style(caption: str, rng: random.Random) -> Ratings:
    """Clarity and conciseness as three raters with noise would rate them."""
    return rate(style_of(caption), rng)
