"""How good the best of n captions is, for every n, estimated from a pool of scored samples an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from reward.errors import ConfigError, DataError
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights, percentile_interval

__all__ = ["Curve", "best_of_n_curve", "expected_best", "kl_bound", "order_weights"]


@lru_cache(maxsize=4)
def order_weights(pool: int, largest: int) -> np.ndarray:
    """Chance that the i-th smallest of a pool is the largest of n drawn from it without replacement.

    That is C(i-1, n-1) / C(pool, n). Each row is made from the one before by factors of at most 2, so that no number
    overflows, however large the pool.

    Args:
        pool: number M of samples.
        largest: largest n, at most M.

    Returns:
        Floats (largest, M) in [0, 1]: row n - 1, column i - 1; each row sums to 1.

    Example:
        >>> order_weights(3, 3).round(3).tolist()
        [[0.333, 0.333, 0.333], [0.0, 0.333, 0.667], [0.0, 0.0, 1.0]]
    """
    places = np.arange(1, pool + 1)
    table = np.empty((largest, pool))
    table[0] = 1 / pool
    for n in range(2, largest + 1):
        table[n - 1] = table[n - 2] * np.maximum(places - n + 1, 0) / (pool - n + 1) * (n / (n - 1))
    table.flags.writeable = False  # it is shared by all images of that many samples
    return table


def expected_best(
    rewards: Sequence[float], values: Sequence[float] | None = None, *, largest: int | None = None
) -> np.ndarray:
    """Unbiased estimates of what the best of n captions is worth, for n = 1, 2, ..., from a pool for one image.

    The estimate is the mean over all choices of n samples from the pool, by their order statistics: no choice is
    drawn. Of equal rewards, each wins equally often.

    Args:
        rewards: M finite numbers, by which the best is chosen.
        values: M finite numbers, which say what the winner is worth, such as the scores of another metric; None for the
            rewards themselves.
        largest: n goes up to this; None for M.

    Returns:
        Floats (largest,).

    Raises:
        ConfigError: `largest` is below 1 or above M.
        DataError: no samples, values of another length, or a number that is not finite.

    Example:
        >>> expected_best([0.2, 0.9, 0.4]).round(3).tolist()  # mean, mean of the better of two, maximum
        [0.5, 0.733, 0.9]
        >>> expected_best([0.2, 0.9, 0.4], [1.0, 0.0, 1.0]).round(3).tolist()
        [0.667, 0.333, 0.0]
    """
    reward = np.asarray(rewards, dtype=np.float64)
    value = reward if values is None else np.asarray(values, dtype=np.float64)
    if reward.ndim != 1 or not len(reward) or reward.shape != value.shape:
        raise DataError(f"need M rewards and as many values, M at least 1, got {reward.shape} and {value.shape}")
    lost = int((~np.isfinite(reward) | ~np.isfinite(value)).sum())
    if lost:
        raise DataError(f"{lost} of {len(reward)} samples lack a finite reward or value: leave them out")
    largest = len(reward) if largest is None else largest
    if not 1 <= largest <= len(reward):
        raise ConfigError(f"largest must be at least 1 and at most the {len(reward)} samples, got {largest}")
    _, tied, counts = np.unique(reward, return_inverse=True, return_counts=True)
    means = np.bincount(tied, value) / counts
    best: np.ndarray = order_weights(len(reward), largest) @ np.repeat(means, counts)
    return best


def kl_bound(n: int) -> float:
    """Most that the best of n can differ from plain sampling, as a KL divergence in nats: log n - (n-1)/n.

    It is exact if no two captions have equal rewards. Captions are discrete, so that two samples may be equal, and
    the divergence is then smaller.

    Args:
        n: number of samples, at least 1.

    Example:
        >>> [round(kl_bound(n), 3) for n in (1, 4, 16)]
        [0.0, 0.636, 1.835]
    """
    if n < 1:
        raise ConfigError(f"n must be at least 1, got {n}")
    return math.log(n) - (n - 1) / n


@dataclass(frozen=True, eq=False)
class Curve:
    """Expected value of the best of n, for n = 1, 2, ..., over images.

    Args:
        mean: the estimates (N,).
        low, high: ends of their 95 % intervals (N,), bootstrap over images.
        highest: the n of the highest estimate.
        fall: how far the value has fallen at n = N from the peak; see `best_of_n_curve`.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    highest: int
    fall: Interval

    @property
    def peak(self) -> int | None:
        """The n from which on more samples lower the value; None if no fall can be told from noise."""
        return self.highest if self.fall.low > 0 and self.highest < len(self.mean) else None

    def at(self, n: int) -> Interval:
        """The estimate for one n, with its interval."""
        return Interval(float(self.mean[n - 1]), float(self.low[n - 1]), float(self.high[n - 1]))


def best_of_n_curve(curves: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> Curve:
    """Mean of the images' curves with intervals, and whether the mean falls at the end.

    The highest point of a noisy curve is biased upwards, which makes the fall from it look too large. The images are
    therefore split into two halves, and the fall in one half is measured from the n with the highest mean in the other.
    If nothing falls, a peak is still found in about 3 of 100 data sets, as expected from 95 % intervals.

    Args:
        curves: of each image, `expected_best` up to the same n: (I, N).
        resamples: of the bootstrap over images.
        seed: of the bootstrap, and of the halves.

    Raises:
        DataError: fewer than two images, or n goes up to 1 only.

    Example:
        >>> pools = np.random.default_rng(0).random((50, 16))
        >>> rewards = best_of_n_curve(np.stack([expected_best(pool) for pool in pools]))
        >>> rewards.peak, rewards.mean[[0, -1]].round(1).tolist()
        (None, [0.5, 0.9])
        >>> hacked = [expected_best(pool, np.where(pool < 0.9, pool, -2)) for pool in pools]
        >>> best_of_n_curve(np.stack(hacked)).peak is None
        False
    """
    curves = np.asarray(curves, dtype=np.float64)
    if curves.ndim != 2 or len(curves) < 2 or curves.shape[1] < 2:
        raise DataError(f"need the curves of at least two images, up to n = 2 at least, got {curves.shape}")
    weights = bootstrap_weights(len(curves), resamples=resamples, seed=seed)
    replicates = weights @ curves / len(curves)
    low, high = np.quantile(replicates, [0.025, 0.975], axis=0)
    mean = curves.mean(axis=0)
    half = np.random.default_rng(seed).permutation(len(curves)) % 2 == 0
    falls = np.empty(len(curves))
    for part in (half, ~half):
        highest = int(curves[~part].mean(axis=0).argmax())
        falls[part] = curves[part, highest] - curves[part, -1]
    fall = percentile_interval(float(falls.mean()), weights @ falls / len(curves))
    return Curve(mean, low, high, int(mean.argmax()) + 1, fall)
