"""When an optimised reward and a second measure part: the reward holds or rises while what it stood for falls."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from reward.errors import DataError

__all__ = ["FEWEST", "Parting", "Z", "check_parting", "check_rise", "common_images"]

Z = 3.0  # standard errors; see check_parting
FEWEST = 10  # images; the standard error of fewer is too uncertain for the rule
_ROW = 2  # checks in a row
_ALONE = 1.5  # times z: one check alone is enough


@dataclass(frozen=True)
class Parting:
    """What the rule says after the latest check.

    Args:
        parted: whether the rule holds.
        fallen: whether the second measure has fallen, whatever the reward did; true whenever `parted` is.
        best: index of the check at which the second measure's mean was highest, t*.
        fall: mean fall of the second measure since t*, paired over images.
        fall_z: `fall` in standard errors; infinite if all images fall by the same.
        rise: mean change of the optimised reward since t*, paired over images.
        images: on how many images t* and the latest check were compared: those that have both measures at both.
    """

    parted: bool
    fallen: bool
    best: int
    fall: float
    fall_z: float
    rise: float
    images: int


def check_parting(optimised: ArrayLike, second: ArrayLike, *, z: float = Z) -> Parting:
    """Says whether the optimised reward and the second measure have parted at the latest of several checks.

    **The rule.** Let t* be the check at which the mean of the second measure was highest, the earliest of several.
    Each check is compared with the latest on the images that have both measures at both of them, and counts only if
    these are `FEWEST`, or half of the images of either; so no check is best because hard images had no score. A check
    is suspect if, paired over these images,

    - the second measure has fallen since t* by more than `z` standard errors of the mean difference, and
    - the optimised reward has not fallen since t* by more than one standard error.

    The two have parted if the latest two checks are suspect, or if the latest is and the fall is more than 1.5 `z`. If
    the second measure has fallen so far and the reward with it, the training is unstable: `fallen` says so.

    The best of many noisy checks looks better than it was, so an ordinary test at `z` = 2 would call many quiet runs
    parted. `z` = 3 was chosen by simulation: runs of 20 checks in which nothing falls are called parted or fallen in
    less than 5 % of cases, whether the noise of an image is independent from check to check or drifts
    (docs/RESEARCH_LOG.md).

    The intervals are over images: they say that other images would show the same fall, not that another seed of the
    training would.

    Args:
        optimised: rewards of N held-out images at T checks, (T, N), on any scale; NaN where there is none. With fewer
            than three checks, or fewer than `FEWEST` images that have both measures, the answer is never "parted".
        second: the same of the second measure; higher must be better.
        z: standard errors.

    Raises:
        DataError: other shapes, or no check.

    Example:
        >>> noise = np.random.default_rng(0).normal(0, 0.05, (2, 6, 50))
        >>> reward = np.linspace(0, 0.5, 6)[:, None] + noise[0]
        >>> truth = np.array([0.5, 0.6, 0.7, 0.7, 0.6, 0.5])[:, None] + noise[1]
        >>> check_parting(reward[:4], truth[:4]).parted, check_parting(reward, truth).parted
        (False, True)
    """
    rewards, truths = np.asarray(optimised, dtype=float), np.asarray(second, dtype=float)
    if rewards.shape != truths.shape or rewards.ndim != 2 or not len(rewards):
        raise DataError(f"both measures must have the shape (checks, images), got {rewards.shape} and {truths.shape}")
    truths = np.where(np.isnan(rewards), np.nan, truths)
    latest = [_compare(rewards, truths, now, z) for now in range(max(0, len(rewards) - _ROW), len(rewards))]
    enough = len(rewards) > _ROW
    last, clear = latest[-1], latest[-1].fall_z > _ALONE * z
    return replace(
        last,
        parted=enough and last.parted and (clear or all(each.parted for each in latest)),
        fallen=enough and last.fallen and (clear or all(each.fallen for each in latest)),
    )


def common_images(before: np.ndarray, now: np.ndarray) -> np.ndarray | None:
    """Which images have a value at both of two checks; None if those are few: below `FEWEST` and half of either's.

    Example:
        >>> common_images(np.array([0.5, 0.5, np.nan]), np.array([0.5, np.nan, np.nan]))
        array([ True, False, False])
        >>> common_images(np.array([0.5, np.nan, np.nan]), np.array([0.5, 0.5, 0.5]))
    """
    values = ~np.isnan(np.stack([before, now]))
    both: np.ndarray = values.all(axis=0)
    enough = min(FEWEST, values.sum(axis=1).max() / 2)
    return both if both.sum() >= enough > 0 else None


def _compare(rewards: np.ndarray, truths: np.ndarray, now: int, z: float) -> Parting:
    """What one check shows; it counts as parted here if it is suspect, alone."""
    falls = np.zeros(now + 1)
    for check in range(now):
        common = common_images(truths[check], truths[now])
        falls[check] = -np.inf if common is None else (truths[check] - truths[now])[common].mean()
    best = int(np.argmax(falls))
    seen = ~np.isnan(truths[best]) & ~np.isnan(truths[now])
    fall, fall_error = _paired(truths[best, seen] - truths[now, seen])
    rise, rise_error = _paired(rewards[now, seen] - rewards[best, seen])
    fall_z = 0.0 if fall == 0 else fall / fall_error if fall_error else float(np.copysign(np.inf, fall))
    fallen = bool(seen.sum() >= FEWEST and fall_z > z)
    return Parting(fallen and rise >= -rise_error, fallen, best, fall, fall_z, rise, int(seen.sum()))


def _paired(differences: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error."""
    if len(differences) < 2:
        return 0.0, 0.0
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences)))


def check_rise(values: ArrayLike, *, least: float) -> bool:
    """Whether a share, such as that of cut captions, has risen far beyond the start at the latest two checks.

    Args:
        values: (T, N), in [0, 1]; the first check is the start.
        least: smallest rise of the mean that counts; it must also be more than `Z` standard errors, paired over images.

    Example:
        >>> cut = np.zeros((4, 20))
        >>> cut[2:, :10] = 1
        >>> check_rise(cut[:3], least=0.2), check_rise(cut, least=0.2)
        (False, True)
    """
    shares = np.asarray(values, dtype=float)
    if len(shares) < _ROW + 1 or shares.shape[1] < FEWEST:
        return False
    rises = [_paired(row - shares[0]) for row in shares[-_ROW:]]
    return all(rise >= least and rise > Z * error for rise, error in rises)
