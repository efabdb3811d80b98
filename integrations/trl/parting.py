"""When an optimised reward and a second measure part: the reward holds or rises while what it stood for falls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from reward.metaeval import Interval, bootstrap_weights, mean_interval
from reward.sentences import split_sentences
from reward.words import words_of

FEWEST = 10  # images; the bootstrap of fewer is too certain of itself
_IN_A_ROW = 2  # checks

_weights = lru_cache(maxsize=8)(bootstrap_weights)
Values = Mapping[str, float]  # {image: value}; images without one are left out


@dataclass(frozen=True)
class Change:
    """What became of a mean over images from one check to another, on the images that have a value at both.

    Args:
        value: the mean change, with its 95 % interval.
        sure: 1 if the mean rose in every one of 1,000 resamples of the images, -1 if it fell in every one, else 0.
        images: how many.
    """

    value: Interval
    sure: int
    images: int


def change(before: Values, now: Values) -> Change | None:
    """The change from one check to another; None if too few images, below `FEWEST` and half of either's, have both.

    Example:
        >>> before = {str(image): 0.5 for image in range(20)}
        >>> found = change(before, {str(image): 0.6 for image in range(1, 30)})
        >>> round(found.value.value, 3), found.sure, found.images
        (0.1, 1, 19)
        >>> change(before, {"0": 0.6, "other": 0.9}) is None
        True
    """
    common = [image for image in before if image in now]
    if not common or len(common) < min(FEWEST, max(len(before), len(now)) / 2):
        return None
    differences = np.array([now[image] - before[image] for image in common])
    weights = _weights(len(common))
    means = weights @ differences / len(common)
    sure = 0 if len(common) < FEWEST else int(means.min() > 0) - int(means.max() < 0)
    return Change(mean_interval(differences, weights), sure, len(common))


@dataclass(frozen=True)
class Parting:
    """What the rule says after the latest check.

    Args:
        best: index of the check with which the latest is compared, t*.
        second, reward: what became of the two since t*; None if nothing can be compared.
        parted, fallen: whether they have parted, or have fallen together.
    """

    best: int
    second: Change | None
    reward: Change | None
    parted: bool
    fallen: bool


def judge(rewards: Sequence[Values], seconds: Sequence[Values]) -> Parting:
    """Says whether the optimised reward and the second measure have parted at the latest of several checks.

    **The rule.** t* is the check from which the mean of the second measure has fallen most, on the images that have a
    value at both it and the latest check. The second measure has fallen if its mean is lower in every one of 1,000
    bootstrap resamples of these images, at the latest check and at the one before. If the reward has not fallen so,
    the two have parted; if it has, the training is unstable, and they have fallen together.

    The best of many noisy checks looks better than it was, so an interval of 95 % would call a third of quiet runs
    parted. By this rule it is less than 3 % of runs of 20 checks (docs/RESULTS.md). The resamples are of images:
    they say that other images would show the same, not that another seed of the training would.

    Args:
        rewards: of each check, on any scale. Only images that have both are compared.
        seconds: the second measure of each check; higher must be better.

    Example:
        >>> images = [str(number) for number in range(50)]
        >>> reward = [dict.fromkeys(images, mean) for mean in (0.1, 0.2, 0.3, 0.4, 0.5)]
        >>> truth = [dict.fromkeys(images, mean) for mean in (0.5, 0.7, 0.7, 0.4, 0.3)]
        >>> [judge(reward[:end], truth[:end]).parted for end in (3, 4, 5)], judge(reward, truth).best
        ([False, False, True], 1)
    """
    both = [reward.keys() & second.keys() for reward, second in zip(rewards, seconds, strict=True)]
    rewards, seconds = (
        [
            {image: value for image, value in values.items() if image in known}
            for values, known in zip(all_, both, strict=True)
        ]
        for all_ in (rewards, seconds)
    )
    latest = [_compared(rewards[:end], seconds[:end]) for end in range(1, len(seconds) + 1)[-_IN_A_ROW:]]
    has_fallen = len(latest) == _IN_A_ROW and all(each.parted or each.fallen for each in latest)
    parted = has_fallen and all(each.parted for each in latest)
    return replace(latest[-1], parted=parted, fallen=has_fallen and not parted)


def _compared(rewards: Sequence[Values], seconds: Sequence[Values]) -> Parting:
    """What one check shows alone."""
    changes = [change(before, seconds[-1]) for before in seconds[:-1]]
    falls = [np.inf if found is None else found.value.value for found in changes]
    if not falls or min(falls) >= 0:
        return Parting(len(seconds) - 1, None, None, parted=False, fallen=False)
    best = int(np.argmin(falls))
    second, reward = changes[best], change(rewards[best], rewards[-1])
    has_fallen, with_it = second is not None and second.sure < 0, reward is not None and reward.sure < 0
    return Parting(best, second, reward, has_fallen and not with_it, has_fallen and with_it)


def share_a_sentence(captions: Sequence[str]) -> list[bool]:
    """Says for each caption whether it has the sentence that most of the captions have; case and punctuation aside.

    A policy that has lost its variety writes one sentence about every image, true or not.

    Example:
        >>> share_a_sentence(["It is night. A star.", "It is night. Two boxes.", "A red ring."])
        [True, True, False]
    """
    sentences = [{" ".join(words_of(each)) for each, _ in split_sentences(caption)} - {""} for caption in captions]
    counts = Counter(each for found in sentences for each in sorted(found))
    commonest = counts.most_common(1)[0][0] if counts else None
    return [commonest in found for found in sentences]
