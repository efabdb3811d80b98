"""When an optimised reward and a second measure part: the reward holds or rises while what it stood for falls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from reward.metaeval import Interval, bootstrap_weights, mean_interval

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
        parted: whether they have parted.
    """

    best: int
    second: Change | None = None
    reward: Change | None = None
    parted: bool = False


def judge(rewards: Sequence[Values], seconds: Sequence[Values]) -> Parting:
    """Says whether the optimised reward and the second measure have parted at the latest of several checks.

    **The rule.** t* is the check from which the mean of the second measure has fallen most, on the images that have a
    value at both it and the latest check. The second measure has fallen if its mean is lower in every one of 1,000
    bootstrap resamples of these images. If the reward has not fallen so, and all this holds at the latest check and at
    the one before, the two have parted.

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
    common = [
        [{image: values[image] for image in known} for values, known in zip(each, both, strict=True)]
        for each in (rewards, seconds)
    ]
    latest = [_compared(*(each[:end] for each in common)) for end in range(1, len(seconds) + 1)[-_IN_A_ROW:]]
    return replace(latest[-1], parted=len(latest) == _IN_A_ROW and all(each.parted for each in latest))


def _compared(rewards: Sequence[Values], seconds: Sequence[Values]) -> Parting:
    """What one check shows alone."""
    changes = [change(before, seconds[-1]) for before in seconds[:-1]]
    falls = [np.inf if found is None else found.value.value for found in changes]
    if not falls or min(falls) >= 0:
        return Parting(len(seconds) - 1)
    best = int(np.argmin(falls))
    second, reward = changes[best], change(rewards[best], rewards[-1])
    has_fallen, with_it = second is not None and second.sure < 0, reward is not None and reward.sure < 0
    return Parting(best, second, reward, has_fallen and not with_it)
