"""When an optimised reward and a second measure part: the reward holds or rises while what it stood for falls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from reward.metaeval import Interval, bootstrap_weights, mean_interval

FEWEST = 10  # images; the bootstrap of fewer is too certain of itself
# Differences up to this share of the largest value, or of 1, come from rounding: scores are float32.
_ROUNDING = 1e-6

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


def fewest_images(checks: Sequence[Collection[str]]) -> float:
    """How many images two checks must share to be compared: `FEWEST`, or half of those of the fullest check if less."""
    return min(FEWEST, max(map(len, checks)) / 2)


def is_scarce(images: Collection[str], checks: Sequence[Collection[str]]) -> bool:
    """Whether these images are too few for a check, beside those that had a value at all checks, this one included."""
    return not images or len(images) < fewest_images(checks)


def change(before: Values, now: Values, fewest: float) -> Change | None:
    """The change from one check to another; None if fewer than `fewest` images have a value at both.

    What an image changed by rounding alone counts as no change.
    """
    images = [image for image in before if image in now]
    if not images or len(images) < fewest:
        return None
    old = np.array([before[image] for image in images])
    new = np.array([now[image] for image in images])
    differences = new - old
    largest = max(1.0, np.abs(old).max(), np.abs(new).max())
    differences[np.abs(differences) <= _ROUNDING * largest] = 0.0

    # The same resamples for all changes of as many images, so that a verdict does not depend on chance.
    weights = _weights(len(images))
    means = weights @ differences / len(images)
    sure = 0
    if len(images) >= FEWEST:
        sure = int(means.min() > 0) - int(means.max() < 0)
    return Change(mean_interval(differences, weights), sure, len(images))


@dataclass(frozen=True)
class Parting:
    """What the rule says after the latest check.

    Args:
        best: index of the check with which the latest is compared, t*; the latest itself where nothing has fallen.
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
    parted. By this rule it is less than 3 % of runs of 20 checks (docs/RESULTS.md). The resamples are of images: they
    do not say that another seed of the training would show the same.

    A check that shares too few images with all others, see `is_scarce`, is never t*, and nothing parts at it.

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
    shared_rewards = []
    shared_seconds = []
    for reward, second in zip(rewards, seconds, strict=True):
        images = reward.keys() & second.keys()
        shared_rewards.append({image: reward[image] for image in images})
        shared_seconds.append({image: second[image] for image in images})
    latest = _compare(shared_rewards, shared_seconds)
    if not latest.parted:
        return latest
    before = _compare(shared_rewards[:-1], shared_seconds[:-1])  # one check alone may be noise
    return replace(latest, parted=before.parted)


def _compare(rewards: Sequence[Values], seconds: Sequence[Values]) -> Parting:
    """What the last of these checks shows by itself."""
    latest = len(seconds) - 1
    fewest = fewest_images(seconds)
    changes = {}
    for check, second in enumerate(seconds[:-1]):
        change_since = change(second, seconds[-1], fewest)
        if change_since is not None:
            changes[check] = change_since
    if not changes:
        # The latest check is the scarce one, where others can be compared: the best stays that of the checks before.
        if not all(is_scarce(second, seconds) for second in seconds[:-1]):
            return Parting(_compare(rewards[:-1], seconds[:-1]).best)
        return Parting(latest)

    best = min(changes, key=lambda check: changes[check].value.value)
    if changes[best].value.value >= 0:
        return Parting(latest)
    reward = change(rewards[best], rewards[-1], fewest)
    has_fallen = changes[best].sure < 0
    reward_has_fallen = reward is not None and reward.sure < 0
    return Parting(best, changes[best], reward, has_fallen and not reward_has_fallen)
