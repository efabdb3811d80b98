"""Ratings of models by Bradley-Terry and by Elo, on the scale of Elo, with 95 % ranges over resampled battles."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from reward.errors import DataError
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights

BRADLEY_TERRY, ELO = "bradley-terry", "elo"
_STEPS, _TOLERANCE = 200, 1e-9
K, SCALE, BASE, START = 4.0, 400.0, 10.0, 1000.0
_POINTS_PER_UNIT = SCALE / math.log(BASE)  # of the Elo scale, in one unit of the logistic scale


def rate_models(
    battles: pd.DataFrame, voter: str, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Ratings of all models by one voter.

    Bradley-Terry ratings are those of the maximum likelihood: a lead of 400 points is a chance of 10 to 1, the mean of
    the finite ratings 1000. Their ranges are those of as many bootstrap resamples of the battles. Elo ratings are
    medians over such resamples, in the order drawn. Their ranges are no confidence intervals of a strength: with K = 4,
    ratings of models with few battles are still near the start.

    Args:
        battles: see `battle_table`. A column `weight` counts in Bradley-Terry only.
        voter: the column of points; battles without its vote are left out.
        resamples, seed: of both bootstraps.

    Returns:
        {"bradley-terry" or "elo": a row a model, best first, with the columns rating, low, high, battles and win_rate}.
        A tie is half a win. A rating without a finite maximum of the likelihood is infinite or NaN, without a range.

    Raises:
        DataError: nothing is decided, or groups of models never met; the message names them.

    Source: Cheng et al., "CapArena", 2025, section 3.2.

    Example:
        >>> battles = pd.DataFrame({"source1": "x", "source2": "y", "people": [1.0] * 30 + [0.0] * 10})
        >>> rate_models(battles, "people")["bradley-terry"]["rating"].round().to_dict()  # log10(3) * 400 apart
        {'x': 1095.0, 'y': 905.0}
    """
    battles = battles[battles[voter].notna()]
    models, pairs = model_pairs(battles)
    groups = linked_groups(battles, voter)
    if len(groups) != 1:
        listed = " | ".join(", ".join(group) for group in groups) or "none, since it has decided no battle"
        raise DataError(
            f"no battle decided by {voter} links these {len(groups)} groups of models, so they cannot be rated "
            f"together: {listed}. Let models of different groups meet, or rate each group by itself"
        )
    points = battles[voter].to_numpy()
    games = np.bincount(pairs.ravel(), minlength=len(models))
    won = np.bincount(pairs[:, 0], points, len(models)) + np.bincount(pairs[:, 1], 1 - points, len(models))
    drawn = bootstrap_weights(len(points), resamples=resamples, seed=seed)
    fitted, resampled = (
        START + _POINTS_PER_UNIT * fit_strengths(pairs, points, rows, len(models))
        for rows in (battle_weights(battles)[None], battle_weights(battles) * drawn)
    )
    elo = resampled_elo(pairs, points, len(models), resamples=resamples, seed=seed)
    found = {BRADLEY_TERRY: (fitted[0], resampled), ELO: (np.median(elo, axis=0), elo)}
    ratings = {}
    for method, (values, replicates) in found.items():
        ranges = [Interval.of(column) for column in np.vstack([values, replicates]).T]
        table = pd.DataFrame(ranges, index=models).rename(columns={"value": "rating"})
        table.loc[~np.isfinite(values), ["low", "high"]] = np.nan
        order = np.lexsort([models, -values.round(6)])  # NaN last, equal ones in order of their names
        ratings[method] = table.assign(battles=games, win_rate=won / games).iloc[order]
    return ratings


def model_pairs(battles: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Names of the M models of battles, in order of appearance, and their numbers in each battle, (N, 2)."""
    codes, models = pd.factorize(battles[["source1", "source2"]].to_numpy().ravel())
    return list(models), codes.reshape(-1, 2)


def battle_weights(battles: pd.DataFrame) -> np.ndarray:
    """How much each battle counts in Bradley-Terry, (N,)."""
    return battles["weight"].to_numpy() if "weight" in battles else np.ones(len(battles))


def linked_groups(battles: pd.DataFrame, voter: str) -> list[list[str]]:
    """Groups of models that no battle with a vote of the voter links to each other, the largest group first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    models, pairs = model_pairs(battles[battles[voter].notna()])
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(models), len(models)))
    _, labels = connected_components(links, directed=False)
    groups: dict[int, list[str]] = {}
    for name, label in zip(models, labels, strict=True):
        groups.setdefault(int(label), []).append(name)
    return sorted(groups.values(), key=len, reverse=True)


def fit_strengths(pairs: np.ndarray, points: np.ndarray, weights: np.ndarray, models: int) -> np.ndarray:
    """Bradley-Terry strengths under which points are most likely: i beats j with probability 1 / (1 + exp(s_j - s_i)).

    The maximum exists if a chain of "took points from" leads from every model to every other one. Otherwise the
    strengths of the largest set of such models are fitted. Of the others, a model from which a chain leads to the set
    gets infinity, one to which a chain leads from the set minus infinity, and one that is neither NaN.

    Args:
        pairs: numbers (N, 2) of the models of each battle.
        points: (N,), what the first of them won.
        weights: how much each battle counts in each of R fits, (R, N).
        models: their number M.

    Returns:
        (R, M), the finite ones with mean 0 in each row.

    Source: Bradley and Terry, "Rank analysis of incomplete block designs", 1952; Ford, "Solution of a ranking problem
    from binary comparisons", 1957, for when there is a maximum.
    """
    first, second = pairs.T
    cells = np.concatenate([first * models + second, second * models + first])
    won = np.concatenate([points, 1 - points])
    tables = (np.bincount(cells, won * np.tile(row, 2), models**2).reshape(models, models) for row in weights)
    return np.stack([_fit(table) for table in tables])


def _fit(wins: np.ndarray) -> np.ndarray:
    """Strengths (M,) of one table (M, M) of the wins of each model against each other one."""
    from scipy.sparse.csgraph import shortest_path
    from scipy.special import expit

    above = np.isfinite(shortest_path(wins > 0, unweighted=True))  # where a chain leads from i to j
    mutual = above & above.T
    main = mutual[mutual.sum(axis=1).argmax()]
    if main.sum() > 1:
        head = main.argmax()
        strengths = np.where(above[:, head], np.inf, np.where(above[head], -np.inf, np.nan))
    else:
        won, lost = wins.any(axis=1), wins.any(axis=0)
        return np.where(won & ~lost, np.inf, np.where(lost & ~won, -np.inf, np.nan))
    wins = wins[np.ix_(main, main)]
    games, fitted = wins + wins.T, np.zeros(len(wins))
    # Newton's method. Over a step of at most 1 the curvature changes by a factor of at most e, so every step improves.
    for _ in range(_STEPS):
        chance = expit(fitted[:, None] - fitted)
        weight = games * chance * (1 - chance)
        curvature = np.diag(weight.sum(axis=1)) - weight + 1  # 1 fixes the mean, which the likelihood leaves free
        step = np.linalg.solve(curvature, (wins - games * chance).sum(axis=1))
        fitted += step / max(np.ptp(step), 1)
        if np.abs(step).max() < _TOLERANCE:
            break
    strengths[main] = fitted - fitted.mean()
    return strengths


def resampled_elo(
    pairs: np.ndarray, points: np.ndarray, models: int, *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Elo ratings after the battles of each bootstrap resample, in the order drawn: (R, M).

    A battle moves points between its two models: K (what the first one won - what its rating let expect), where a
    lead of SCALE points lets expect BASE times the other's chance. All start at START. Other arguments are as for
    `fit_strengths`.

    Source: Elo, "The rating of chessplayers", 1978; the numbers are CapArena's.
    """
    draws = np.random.default_rng(seed).integers(len(points), size=(len(points), resamples))
    ratings = np.full(resamples * models, START)  # flat, because this loop is long: one row after the other
    rows = np.arange(resamples) * models
    rate = math.log(BASE) / SCALE
    for battle in draws:
        first, second = rows + pairs[battle, 0], rows + pairs[battle, 1]
        ahead, behind = ratings[first], ratings[second]
        change = K * (points[battle] - 1 / (1 + np.exp(rate * (behind - ahead))))
        ratings[first] = ahead + change
        ratings[second] = behind - change
    return ratings.reshape(resamples, models)
