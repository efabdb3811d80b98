"""Which of a policy's captions are worth a rating: those that the metric likes and may be wrong about."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from reward.audit.resemblance import traits
from reward.errors import ConfigError, DataError
from reward.preferences.selection import similarity
from reward.samples import is_wordless

__all__ = ["RULES", "Chosen", "Written", "choose_captions", "novelty"]

RULES = ("disagreement", "novelty", "random")
_NEAR = 0.9  # captions of an image that are at least this similar count as one


class Written(NamedTuple):
    """A caption of a policy: what names its image, its text, the metric's reward, and a second metric's."""

    image: str
    caption: str
    reward: float | None
    second: float | None = None


class Chosen(NamedTuple):
    """The place of a chosen caption among those written, and why it was chosen."""

    place: int
    reason: str


def novelty(captions: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """How much the style of each caption differs from known ones, (N,): root mean square of its standardised traits.

    Args:
        captions: N texts.
        known: captions that were rated already, at least 2.

    Example:
        >>> known = ["A red star is above a box.", "Two blue rings are on grass."]
        >>> plain, odd = novelty(["A green box is below a star.", "star, star, star, star, box"], known)
        >>> bool(plain < odd)
        True
    """
    if len(known) < 2:
        raise DataError(f"novelty is the distance from captions already rated: needs at least 2, got {len(known)}")
    plain = np.stack([traits(text) for text in known])
    own = np.stack([traits(text) for text in captions])
    return np.sqrt((((own - plain.mean(axis=0)) / np.maximum(plain.std(axis=0), 0.05)) ** 2).mean(axis=1))


def choose_captions(
    written: Sequence[Written],
    number: int,
    *,
    rule: str = "disagreement",
    known: Sequence[str] = (),
    rated: Mapping[str, Sequence[str]] | None = None,
    per_image: int = 2,
    seed: int = 0,
) -> tuple[list[Chosen], Counter[str]]:
    """Chooses captions to rate.

    `"disagreement"` and `"novelty"` take the captions with the highest sum of two ranks: of the reward, and of how much
    higher the metric ranks the caption than the second metric does, or of `novelty`. `"random"` is the control: as many
    of the same captions, under the same limits.

    Args:
        written: captions of a policy.
        number: how many to choose; fewer if the limits leave fewer.
        rule: one of `RULES`.
        known: captions already rated, for `"novelty"`.
        rated: {image: its captions that are rated already}, which are not chosen again, nor what is nearly the same.
        per_image: most captions an image.
        seed: of `"random"`.

    Returns:
        The chosen captions, the most wanted first, and {why: number of captions left out}.

    Raises:
        ConfigError: a value is out of range, or `"disagreement"` without a second metric.
        DataError: no caption can be chosen; the message counts why.

    Example:
        >>> pool = [Written("a.png", "A star.", 0.2, 0.2), Written("a.png", "Star star.", 0.9, 0.1)]
        >>> choose_captions(pool, 1)[0][0].place
        1
    """
    if rule not in RULES:
        raise ConfigError(f"the rule must be one of {', '.join(RULES)}, got {rule!r}")
    if number < 1 or per_image < 1:
        raise ConfigError(f"number and per_image must be at least 1, got {number} and {per_image}")
    left_out: Counter[str] = Counter()
    usable: list[int] = []
    for place, each in enumerate(written):
        values = (each.reward, each.second) if rule == "disagreement" else (each.reward,)
        if is_wordless(each.caption):
            left_out["without a word"] += 1
        elif rule == "disagreement" and each.second is None and each.reward is not None:
            left_out["without a second metric's score"] += 1
        elif any(value is None or not np.isfinite(value) for value in values):
            left_out["without a score"] += 1
        else:
            usable.append(place)
    order, reasons = _order([written[place] for place in usable], rule, known, seed) if usable else ([], [])
    chosen: list[Chosen] = []
    taken: dict[str, list[str]] = {image: list(texts) for image, texts in (rated or {}).items()}
    counts: Counter[str] = Counter()
    for index in order:
        each = written[usable[index]]
        others = taken.setdefault(each.image, [])
        if any(similarity(each.caption, other) >= _NEAR for other in others):
            left_out["nearly the same as another"] += 1
        elif counts[each.image] == per_image:
            left_out["beyond the most of an image"] += 1
        elif len(chosen) == number:
            left_out["ranked lower"] += 1
        else:
            others.append(each.caption)
            counts[each.image] += 1
            chosen.append(Chosen(usable[index], reasons[index]))
    if not chosen:
        why = "; ".join(f"{count} {reason}" for reason, count in left_out.most_common()) or "there are none"
        raise DataError(f"no caption of {len(written)} can be chosen: {why}. Sample more captions, or from more images")
    return chosen, left_out


def _order(pool: Sequence[Written], rule: str, known: Sequence[str], seed: int) -> tuple[list[int], list[str]]:
    """Places of the pool, the most wanted first, and the reason for each."""
    if rule == "random":
        shuffled = random.Random(seed).sample(range(len(pool)), len(pool))
        return shuffled, ["at random"] * len(pool)
    rewards = [each.reward for each in pool]
    liked = rankdata(rewards) / len(pool)
    if rule == "disagreement":
        measure = liked - rankdata([each.second for each in pool]) / len(pool)
        words = [f"ranked {by:+.0%} against the second metric" for by in measure]
    else:
        measure = novelty([each.caption for each in pool], known)
        words = [f"{by:.1f} deviations from the captions rated before" for by in measure]
    order = np.argsort(-(liked + rankdata(measure) / len(pool)), kind="stable")
    reasons = [f"reward {reward:.3f}, {word}" for reward, word in zip(rewards, words, strict=True)]
    return [int(place) for place in order], reasons
