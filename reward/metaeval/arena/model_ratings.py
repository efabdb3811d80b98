"""Ratings of models by one voter (Bradley-Terry, Elo, CapArena-Auto), and rankings of models from outside.

Bradley-Terry and Elo ratings are on the scale of Elo, with 95 % ranges over resampled battles.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reward.data.json_files import read_json
from reward.errors import DataError
from reward.metaeval.arena.battles import Battle
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights

BRADLEY_TERRY, ELO = "bradley-terry", "elo"
SCORE = "score"  # of CapArena-Auto or of a leaderboard, which ranks models as Elo and Bradley-Terry do
SPEARMAN, KENDALL = "spearman", "kendall"
PUBLISHED = "caparena"  # the name of the ranking that ships with the package
START = 1000.0  # the Elo rating of a model before its first battle
K = 4.0  # most points that a battle moves
SCALE = 400.0  # points by which a model leads whose chance is BASE times the other's
BASE = 10.0
_STEPS = 200  # of Newton's method, at most
_TOLERANCE = 1e-9  # in a strength, at which it ends
_POINTS_PER_UNIT = SCALE / math.log(BASE)  # of the Elo scale, in one unit of the logistic scale
_FEWEST = 3  # models of two rankings; the correlation of two is always 1 or -1


def rate_models(
    battles: pd.DataFrame, voter: str, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Ratings of all models by one voter.

    Bradley-Terry ratings are those of the maximum likelihood: a lead of 400 points is a chance of 10 to 1, the mean of
    the finite ratings 1000. Elo ratings are medians over bootstrap resamples, in the order drawn; their ranges are no
    confidence intervals of a strength: with K = 4, ratings of models with few battles are still near the start.

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

    # Of both methods the ratings come first, then those of each resample: (1 + R, M).
    drawn = np.vstack([np.ones(len(points)), bootstrap_weights(len(points), resamples=resamples, seed=seed)])
    strengths = fit_strengths(pairs, points, battle_weights(battles) * drawn, len(models))
    elo = resampled_elo(pairs, points, len(models), resamples=resamples, seed=seed)
    replicates = {
        BRADLEY_TERRY: START + _POINTS_PER_UNIT * strengths,
        ELO: np.vstack([np.median(elo, axis=0), elo]),
    }
    ratings = {}
    for method, values in replicates.items():
        intervals = [Interval.of(column) for column in values.T]
        table = pd.DataFrame(intervals, index=models).rename(columns={"value": "rating"})
        table.loc[~np.isfinite(values[0]), ["low", "high"]] = np.nan
        order = np.lexsort([models, -values[0].round(6)])  # NaN last, equal ones in order of their names
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
    # A battle links its two models, whoever won it.
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
    first, second = pairs[:, 0], pairs[:, 1]
    # Cell i * M + j of a flat table of wins is what model i won against model j: both sides of each battle.
    cells = np.concatenate([first * models + second, second * models + first])
    won = np.concatenate([points, 1 - points])
    strengths = []
    for row in weights:
        wins = np.bincount(cells, won * np.tile(row, 2), models**2)
        strengths.append(_fit(wins.reshape(models, models)))
    return np.stack(strengths)


def _fit(wins: np.ndarray) -> np.ndarray:
    """Strengths (M,) of one table (M, M) of the wins of each model against each other one."""
    from scipy.sparse.csgraph import shortest_path
    from scipy.special import expit

    strengths = np.full(len(wins), np.nan)
    above = np.isfinite(shortest_path(wins > 0, unweighted=True))  # where a chain leads from i to j
    mutual = above & above.T
    main = mutual[mutual.sum(axis=1).argmax()]
    if main.sum() == 1:  # no two models are linked both ways
        won, lost = wins.any(axis=1), wins.any(axis=0)
        strengths[won & ~lost] = np.inf
        strengths[lost & ~won] = -np.inf
        return strengths
    member = main.argmax()
    strengths[above[member]] = -np.inf
    strengths[above[:, member]] = np.inf

    # Newton's method. Over a step of at most 1 the curvature changes by a factor of at most e, so every step improves.
    wins = wins[np.ix_(main, main)]
    games = wins + wins.T
    fitted = np.zeros(len(wins))
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
    # All resamples play at once, one battle of each in a turn, because this loop is long. Their ratings lie one after
    # the other in a flat array: those of resample r begin at r * M.
    ratings = np.full(resamples * models, START)
    starts = np.arange(resamples) * models
    rate = math.log(BASE) / SCALE
    for battle in draws:
        first, second = starts + pairs[battle, 0], starts + pairs[battle, 1]
        ahead, behind = ratings[first], ratings[second]
        change = K * (points[battle] - 1 / (1 + np.exp(rate * (behind - ahead))))
        ratings[first] = ahead + change
        ratings[second] = behind - change
    return ratings.reshape(resamples, models)


def auto_scores(battles: Sequence[Battle], points: np.ndarray) -> list[dict[str, Any]]:
    """CapArena-Auto's leaderboard: scores of all models by one voter, best first; models without a score come last.

    A win counts +1, a loss -1, a tie 0. The score against a baseline is 100 times the mean over its battles (of the 200
    battles against each, half the sum), and the score of a model is the mean over the baselines. A battle without a
    verdict that can be read counts as a tie, as with the authors. A model that is a baseline gets 0 against itself.
    Words are counted between single spaces, as the authors do.

    Args:
        battles: N battles of CapArena-Auto, of one model or more. `ref_model` says which source is the baseline.
        points: (N,), what the first caption won; NaN without a verdict.

    Returns:
        For each model {"model", "score" in [-100, 100], "baselines", "mean_words"}, where the baselines are {name:
        {"wins", "ties", "losses", "unjudged", "itself", "score"}}. NaN: no battle against that baseline has a verdict.

    Raises:
        DataError: `ref_model` is neither of the two sources, or a model meets a baseline twice on one image.
    """
    # Each battle as the model sees it that is not the baseline.
    rows = []
    for number, (battle, won) in enumerate(zip(battles, points, strict=True), start=1):
        one, two, baseline, image = battle["source1"], battle["source2"], battle.get("ref_model"), battle["img"]
        if baseline == two:
            rows.append((one, baseline, image, won, battle["caption1"]))
        elif baseline == one:
            rows.append((two, baseline, image, 1 - won, battle["caption2"]))
        else:
            name = f"battle {number} on {image!r}"
            raise DataError(f"{name}: 'ref_model' must be one of {one!r} and {two!r}, got {baseline!r:.80}")
    table = pd.DataFrame(rows, columns=["model", "baseline", "img", "points", "caption"])
    doubled = table[table.duplicated(["model", "img"])]
    if len(doubled):
        name = f"{doubled['model'].iloc[0]!r} is on {doubled['img'].iloc[0]!r} twice"
        raise DataError(f"{name}: give the battles of each model, by one judge, once")

    scores = []
    for model, rows_of_model in table.groupby("model", sort=False):
        by_baseline = {}
        for baseline in table["baseline"].unique():
            against = rows_of_model.loc[rows_of_model["baseline"] == baseline, "points"]
            wins, ties, losses = int((against == 1).sum()), int((against == 0.5).sum()), int((against == 0).sum())
            counts = {"wins": wins, "ties": ties, "losses": losses, "unjudged": int(against.isna().sum())}
            # The unjudged are battles, too: in the mean they count 0, like a tie.
            score = math.nan
            if model == baseline:
                score = 0.0
            elif against.notna().any():
                score = 100 * (wins - losses) / len(against)
            by_baseline[baseline] = {**counts, "itself": model == baseline, "score": score}
        mean = float(np.mean([counts["score"] for counts in by_baseline.values()]))
        words = rows_of_model["caption"].str.count(" ") + 1
        scores.append({"model": model, "score": mean, "baselines": by_baseline, "mean_words": words.mean()})
    return sorted(scores, key=lambda score: (math.isnan(score["score"]), -score["score"]))


@dataclass(frozen=True)
class Ranking:
    """Models and how good they are, from outside the battles: by other people, or a leaderboard.

    Args:
        source: who made it.
        scores: {model: score}, larger is better.
    """

    source: str
    scores: Mapping[str, float]

    def common(self, models: Iterable[str]) -> list[str]:
        """The models that the ranking has, too.

        Raises:
            DataError: fewer than three.
        """
        models = list(models)
        shared = [name for name in models if name in self.scores]
        if len(shared) < _FEWEST:
            raise DataError(
                f"only {len(shared)} of the models are in the ranking of {self.source}, and a correlation needs "
                f"{_FEWEST}. Names must be the same in both; here: {', '.join(models)}; there: {', '.join(self.scores)}"
            )
        return shared

    def correlations(self, scores: Mapping[str, float]) -> dict[str, dict[str, Interval]]:
        """Spearman's rho and Kendall's tau-b with other scores of the models, without intervals; NaN is no score.

        Raises:
            DataError: fewer than three models have both.
        """
        shared = self.common(name for name, score in scores.items() if not math.isnan(score))
        fixed, others = pd.Series(self.scores, dtype=float), pd.Series(scores, dtype=float)
        return {SCORE: rank_correlations(fixed[shared].to_numpy()[None], others[shared].to_numpy()[None])}


def read_ranking(path: str | os.PathLike[str]) -> Ranking:
    """Reads a ranking: the word `caparena` for the one of CapArena's annotators, or a JSON file.

    The file holds models from best to worst, ["x", "y", ...], or their scores, {"x": 56.2, "y": 44, ...}, larger is
    better; or {"source": "who made it", "ranking": either of the two}.

    Raises:
        DataError: unreadable, or of another form; the message says what is wrong.

    Example:
        >>> list(read_ranking("caparena").scores)[:2]
        ['GPT-4o-0806', 'human']
    """
    if str(path) == PUBLISHED:
        path = Path(__file__).with_name("caparena_ranking.json")
    values = read_json(path)
    source: Any = os.path.basename(path)
    if isinstance(values, dict) and "ranking" in values:
        source, values = values.get("source", source), values["ranking"]
    if isinstance(values, list) and all(isinstance(name, str) for name in values):
        # The first is the best: its score is the largest.
        values = {name: float(-rank) for rank, name in enumerate(values)}
    if not isinstance(values, dict) or not isinstance(source, str) or not values:
        raise DataError(f'{path} must hold models from best to worst, ["x", "y"], or their scores, {{"x": 2, "y": 1}}')
    for name, score in values.items():
        # JSON of Python may hold NaN and Infinity, and true is a number to Python.
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise DataError(f"{path}: the score of {name!r} must be a finite number, got {score!r:.60}")
    return Ranking(source, values)


def rank_correlations(first: np.ndarray, second: np.ndarray) -> dict[str, Interval]:
    """Spearman's rho and Kendall's tau-b of two ratings of models, with the 95 % intervals of their replicates.

    Args:
        first, second: (1 + R, M), the ratings and R replicates; infinite ones have the outermost ranks, and models with
            NaN in either are left out. R may be 0, for no interval.

    Returns:
        {"spearman": correlation, "kendall": correlation}; NaN with fewer than two models, or one rating for all.
    """
    from scipy.stats import kendalltau, spearmanr

    correlations = {}
    for kind, correlation in ((SPEARMAN, spearmanr), (KENDALL, kendalltau)):
        values = np.full(len(first), np.nan)
        for row, (ratings, others) in enumerate(zip(first, second, strict=True)):
            # Of a resample that links not all models, some have no rating.
            rated = ~(np.isnan(ratings) | np.isnan(others))
            if min(len(np.unique(ratings[rated])), len(np.unique(others[rated]))) > 1:
                values[row] = correlation(ratings[rated], others[rated]).statistic
        correlations[kind] = Interval.of(values)
    return correlations
