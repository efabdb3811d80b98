"""Rules of decoding by a reward: how many candidates to draw, what one more is worth, which ones to drop."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reward.decoding.selection import rank
from reward.errors import ConfigError

__all__ = ["expected_gain", "poisson_count", "survivors"]


def poisson_count(mean: float, rng: np.random.Generator) -> int:
    """How many candidates best-of-Poisson draws: 1 + Poisson(mean - 1), so that `mean` is what it draws on average.

    Its choice follows nearly the distribution that is best for a given distance from the model (arXiv 2506.19248).

    Raises:
        ConfigError: the mean is below 1.

    Example:
        >>> poisson_count(1, np.random.default_rng(0))
        1
    """
    if not mean >= 1:
        raise ConfigError(f"best-of-Poisson draws at least one candidate: the mean must be at least 1, got {mean}")
    return 1 + int(rng.poisson(mean - 1))


def expected_gain(rewards: Sequence[float | None]) -> float:
    """By how much one more sample is expected to raise the best reward, if rewards are normally distributed.

    With mean m and standard deviation s (divided by N - 1) of the rewards and their maximum x, the gain is
    E[(v - x)+] = (m - x) F(z) + s f(z), z = (m - x) / s, with the normal distribution function F and density f. It is
    multiplied by the share of samples that have a reward. Infinite with fewer than two rewards.

    Example:
        >>> round(expected_gain([0.2, 0.4, 0.6]), 4)
        0.0167
    """
    known = np.array([reward for reward in rewards if reward is not None and not math.isnan(reward)])
    if len(known) < 2:
        return math.inf
    mean, deviation, best = known.mean(), known.std(ddof=1), known.max()
    if deviation == 0:
        return 0.0
    z = (mean - best) / deviation
    below = 0.5 * math.erfc(-z / math.sqrt(2))
    gain = (mean - best) * below + deviation * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return float(max(gain, 0.0) * len(known) / len(rewards))


def survivors(rewards: Sequence[float | None], alpha: float, least: int = 1) -> list[int]:
    """Which candidates a rejection keeps: the best round((1 - alpha) N), halves up, and at least `least`; in order.

    Args:
        rewards: N rewards of captions so far, or None.
        alpha: share that is rejected, from 0 to below 1.
        least: number of candidates that are kept in any case.

    Raises:
        ConfigError: alpha is out of range.

    Example:
        >>> survivors([0.1, 0.7, None, 0.3], alpha=0.5)
        [1, 3]
    """
    if not 0 <= alpha < 1:
        raise ConfigError(f"alpha, the share that is rejected, must be from 0 to below 1, got {alpha}")
    return sorted(rank(rewards)[: max(least, math.floor((1 - alpha) * len(rewards) + 0.5))])
