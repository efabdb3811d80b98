"""Ratings of models with 95 % intervals, by Bradley-Terry and by Elo, both on the scale of Elo."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reward.metaeval.arena.strengths import fit_strengths, information_matrix, win_probabilities, win_tables
from reward.metaeval.arena.table import Arena, check_linked
from reward.metaeval.bootstrap import LEVEL, RESAMPLES, Interval, percentile_interval

__all__ = [
    "BRADLEY_TERRY",
    "ELO",
    "POINTS_PER_UNIT",
    "START",
    "Ratings",
    "bradley_terry_ratings",
    "elo_ratings",
    "resampled_elo",
    "strength_covariance",
]

BRADLEY_TERRY, ELO = "bradley-terry", "elo"
K, SCALE, BASE, START = 4.0, 400.0, 10.0, 1000.0
POINTS_PER_UNIT = SCALE / math.log(BASE)  # of the Elo scale, in one unit of the logistic scale


@dataclass(frozen=True)
class Ratings:
    """How strong models are, best first.

    Args:
        method: "bradley-terry" or "elo".
        ratings: {model: rating}. A rating without a finite maximum of the likelihood is infinite and has no interval
            (NaN); a model that the battles do not place has NaN.
        battles: {model: decided battles it was in}.
        win_rates: {model: share of its battles that it won; a tie counts half}.
    """

    method: str
    ratings: Mapping[str, Interval]
    battles: Mapping[str, int]
    win_rates: Mapping[str, float]

    @property
    def values(self) -> dict[str, float]:
        """{model: rating} without intervals."""
        return {name: interval.value for name, interval in self.ratings.items()}

    @property
    def notes(self) -> list[str]:
        """A sentence on each kind of rating that is not finite."""
        kinds = (
            (math.inf, "infinite, since no lower model took points from them, even along a chain of others"),
            (-math.inf, "minus infinite, since they took no points from a higher model, even along a chain of others"),
        )
        lines = []
        for rating, why in kinds:
            names = [name for name, value in self.values.items() if value == rating]
            if names:
                lines.append(f"{', '.join(names)}: {why}")
        unplaced = [name for name, value in self.values.items() if math.isnan(value)]
        if unplaced:
            lines.append(f"{', '.join(unplaced)}: not comparable with the models that have finite ratings")
        return lines

    def to_json(self) -> dict[str, Any]:
        """JSON values; infinite ones are the texts "inf" and "-inf", and NaN is null."""
        return {
            name: {
                "rating": _plain(interval.value),
                "low": _plain(interval.low),
                "high": _plain(interval.high),
                "battles": self.battles[name],
                "win_rate": self.win_rates[name],
            }
            for name, interval in self.ratings.items()
        }


def bradley_terry_ratings(arena: Arena, points: np.ndarray) -> Ratings:
    """Ratings by the maximum likelihood of the Bradley-Terry model, with Wald intervals that allow for shared images.

    A lead of 400 points is a chance of 10 to 1, the mean of the finite ratings 1000. The intervals come from the
    sandwich covariance with the images as clusters (`strength_covariance`), and from Student's t with one degree of
    freedom less than there are images: a tie that counts half varies less than the model supposes, and battles on one
    image share captions; the curvature of the likelihood alone ignores both. If all battles are on one image, there are
    no intervals (NaN). Weights of the arena count in the ratings and the intervals, but neither in the numbers of
    battles nor in the win rates.

    Args:
        arena: N battles of M models.
        points: (N,), see `Arena`; NaN is left out.

    Raises:
        DataError: nothing is decided, or groups of models never met; the message names them.

    Example:
        >>> arena = Arena.of([(str(n), "x", "y", "") for n in range(40)])
        >>> ratings = bradley_terry_ratings(arena, np.array([1.0] * 30 + [0.0] * 10))
        >>> {name: round(value) for name, value in ratings.values.items()}  # log10(3) * 400 apart
        {'x': 1095, 'y': 905}
    """
    from scipy.stats import t

    check_linked(arena, points)
    strengths = fit_strengths(win_tables(arena, points))[0]
    variances = np.diag(strength_covariance(arena, points, strengths))
    images = len({image for image, won in zip(arena.images, points, strict=True) if not math.isnan(won)})
    errors = np.sqrt(variances) if images > 1 else np.full(len(variances), np.nan)
    reach = t.ppf((1 + LEVEL) / 2, max(images - 1, 1)) * errors
    scaled = [START + POINTS_PER_UNIT * values for values in (strengths, strengths - reach, strengths + reach)]
    intervals = [Interval(*map(float, row)) for row in zip(*scaled, strict=True)]
    return _ratings(BRADLEY_TERRY, arena, points, intervals)


def strength_covariance(arena: Arena, points: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """Sandwich covariance (M, M) of fitted strengths, of which the finite ones have mean 0.

    The inverse of the observed information is put around the spread of the score, summed within each image and
    multiplied by G / (G - 1) for G images.

    Args:
        arena, points: as for `bradley_terry_ratings`.
        strengths: (M,) of `fit_strengths`.

    Returns:
        NaN in the rows and columns of models without a finite strength.
    """
    fitted = np.flatnonzero(np.isfinite(strengths))
    covariance = np.full((len(strengths), len(strengths)), np.nan)
    if not len(fitted):
        return covariance
    finite = np.isfinite(strengths)[arena.pairs].all(axis=1) & ~np.isnan(points)
    pairs, images = arena.pairs[finite], np.array(arena.images)[finite]
    place = np.full(len(strengths), -1)
    place[fitted] = np.arange(len(fitted))
    first, second = place[pairs].T
    expected = win_probabilities(strengths[fitted])[first, second]
    games = np.zeros((len(fitted), len(fitted)))
    weights = np.ones(len(pairs)) if arena.weights is None else arena.weights[finite]
    np.add.at(games, (first, second), weights)
    information = information_matrix(games + games.T, strengths[fitted])
    centre = np.eye(len(fitted)) - 1 / len(fitted)
    inverse = centre @ np.linalg.pinv(information, hermitian=True) @ centre
    _, image = np.unique(images, return_inverse=True)
    count = int(image.max()) + 1
    score = np.zeros((count, len(fitted)))
    surplus = weights * (points[finite] - expected)
    np.add.at(score, (image, first), surplus)
    np.add.at(score, (image, second), -surplus)
    covariance[np.ix_(fitted, fitted)] = inverse @ (score.T @ score) @ inverse * (count / max(count - 1, 1))
    return covariance


def resampled_elo(arena: Arena, points: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """Elo ratings after the battles of each bootstrap resample, which come one after the other in the order drawn.

    A battle moves points between its two models: K (what the first one won - what its rating let expect), where a
    lead of SCALE points lets expect BASE times the other's chance. All start at START. The end depends on the order,
    hence the resamples.

    Args:
        arena: N battles of M models.
        points: (N,), see `Arena`; NaN is left out.
        resamples: number R; N battles are drawn for each, with replacement, as in CapArena.
        seed: of the draws.

    Returns:
        (R, M).

    Source: Elo, "The rating of chessplayers", 1978; the numbers are CapArena's.

    Example:
        >>> arena = Arena.of([("1.jpg", "x", "y", "")])
        >>> resampled_elo(arena, np.array([1.0]), resamples=1).tolist()
        [[1002.0, 998.0]]
    """
    decided = ~np.isnan(points)
    pairs, won = arena.pairs[decided], points[decided]
    draws = np.random.default_rng(seed).integers(len(won), size=(len(won), resamples))
    count = len(arena.systems)
    ratings = np.full(resamples * count, START)  # flat, because this loop is long: one row after the other
    rows = np.arange(resamples) * count
    rate = math.log(BASE) / SCALE
    for battle in draws:
        first, second = rows + pairs[battle, 0], rows + pairs[battle, 1]
        ahead, behind = ratings[first], ratings[second]
        change = K * (won[battle] - 1 / (1 + np.exp(rate * (behind - ahead))))
        ratings[first] = ahead + change
        ratings[second] = behind - change
    return ratings.reshape(resamples, count)


def elo_ratings(arena: Arena, points: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> Ratings:
    """Elo ratings as CapArena reports them: medians over bootstrap resamples, with percentile intervals.

    The intervals say how far the ratings depend on the draw and the order of the battles. They are not confidence
    intervals of a strength: with K = 4, ratings of models with few battles are still near the start.

    Args:
        arena, points: as for `bradley_terry_ratings`.
        resamples, seed: see `resampled_elo`.

    Raises:
        DataError: nothing is decided, or groups of models never met; the message names them.
    """
    check_linked(arena, points)
    drawn = resampled_elo(arena, points, resamples=resamples, seed=seed)
    intervals = [percentile_interval(float(np.median(column)), column) for column in drawn.T]
    return _ratings(ELO, arena, points, intervals)


def _ratings(method: str, arena: Arena, points: np.ndarray, intervals: list[Interval]) -> Ratings:
    wins = win_tables(replace(arena, weights=None), points)[0]
    games = wins.sum(axis=1) + wins.sum(axis=0)
    # best first; models that are not placed last, equal ones in order of their names
    keys = [
        (-interval.value if not math.isnan(interval.value) else math.inf, name)
        for interval, name in zip(intervals, arena.systems, strict=True)
    ]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    names = [arena.systems[place] for place in order]
    return Ratings(
        method,
        {name: intervals[place] for name, place in zip(names, order, strict=True)},
        {name: round(games[place]) for name, place in zip(names, order, strict=True)},
        {name: float(wins[place].sum() / games[place]) for name, place in zip(names, order, strict=True)},
    )


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
