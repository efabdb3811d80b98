"""How well verdicts of a metric or a judge agree with people: battle by battle, in the ranking, and model by model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reward.errors import DataError
from reward.metaeval.arena.battles import HUMAN
from reward.metaeval.arena.ratings import BRADLEY_TERRY, ELO, resampled_elo
from reward.metaeval.arena.strengths import fit_strengths, win_tables
from reward.metaeval.arena.table import Arena, check_linked, linked_groups
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights, resampled_mean, whole_first
from reward.metaeval.classification import tie_threshold, verdicts

__all__ = ["ArenaAgreement", "measure_agreement", "measure_rankings", "rank_correlations", "score_points"]

SPEARMAN, KENDALL = "spearman", "kendall"


@dataclass(frozen=True)
class ArenaAgreement:
    """Agreement on the battles that both people and the metric have decided, as `measure_agreement` gives it.

    Args:
        levels: {level or "overall": share of the battles in which the verdict is the people's, ties counted}.
        battles: {level or "overall": number of battles}.
        without_verdict: battles that people decided and the metric did not; they count nowhere.
        human_ties, ties: share of ties of the people and of the metric.
        ranking: {"elo" or "bradley-terry": {"spearman" or "kendall": correlation of the two rankings of the models}};
            of Elo the medians are compared, without an interval (NaN). Empty where the battles do not link all models.
        bias: {model: win rate by the metric minus win rate by people, ties half}; positive where the metric
            overestimates it.
    """

    levels: Mapping[str, Interval]
    battles: Mapping[str, int]
    without_verdict: int
    human_ties: float
    ties: float
    ranking: Mapping[str, Mapping[str, Interval]]
    bias: Mapping[str, Interval]

    @property
    def mean_bias(self) -> float:
        """Mean size of the bias over the models."""
        return float(np.mean([abs(interval.value) for interval in self.bias.values()]))


def score_points(arena: Arena, human: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, float]:
    """Turns scores of the two captions into points, with as many ties as people gave.

    Args:
        arena: N battles.
        human: points (N,) by people; NaN where there are none.
        scores: (N, 2), larger is better; NaN where there is none.

    Returns:
        Points (N,), NaN without two finite scores and in battles of the source `human`; and the threshold: battles
        whose scores differ by no more are ties. Where people have decided nothing, only equal scores are.

    Example:
        >>> arena = Arena.of([("1", "x", "y", ""), ("2", "x", "y", ""), ("3", "x", "y", "")])
        >>> score_points(arena, np.array([1, 0.5, 0]), np.array([[0.9, 0.2], [0.4, 0.3], [0.1, 0.8]]))[0].tolist()
        [1.0, 0.5, 0.0]
    """
    scored = np.isfinite(scores).all(axis=1) & ~arena.has(HUMAN)
    points = np.full(len(arena), np.nan)
    if not scored.any():
        return points, 0.0
    differences = scores[scored, 0] - scores[scored, 1]
    decided = ~np.isnan(human[scored])
    threshold = 0.0
    if decided.any():
        threshold = tie_threshold(differences[decided], int((human[scored][decided] == 0.5).sum()))
    points[scored] = (verdicts(differences, threshold) + 1) / 2
    return points, threshold


def measure_agreement(
    arena: Arena,
    human: np.ndarray,
    voters: Mapping[str, np.ndarray],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, ArenaAgreement]:
    """Agreement of verdicts with people, with 95 % intervals of a bootstrap over images.

    Battles of the source `human` are left out, as in CapArena. The rankings of the models come from the same battles,
    once with the verdicts of the people and once with those of the metric. A tie threshold is not chosen anew in each
    resample.

    Args:
        arena: N battles.
        human: points (N,) by people.
        voters: {metric or judge: its points (N,)}; see `score_points`.
        resamples, seed: of the bootstrap, which is the same for all, and of Elo.

    Raises:
        DataError: no battle that people and the metric have decided.

    Source: Cheng et al., "CapArena", 2025, sections 4.2 and 4.3.

    Example:
        >>> arena = Arena.of([(str(n), "x", "y", "level 1") for n in range(20)])
        >>> human = np.array([1.0] * 15 + [0.0] * 5)
        >>> agreement = measure_agreement(arena, human, {"first": np.ones(20)}, resamples=100)["first"]
        >>> agreement.levels["overall"].value, agreement.bias["y"].value
        (0.75, -0.25)
    """
    judged = ~np.isnan(human) & ~arena.has(HUMAN)
    drawn = whole_first(bootstrap_weights(len(arena), resamples=resamples, seed=seed, clusters=arena.images))
    rankings: dict[bytes, dict[str, np.ndarray]] = {}  # of people, by battles: most voters have decided the same
    agreement = {}
    for name, points in voters.items():
        both = judged & ~np.isnan(points)
        if not both.any():
            raise DataError(f"there is no battle that both people and {name} have decided")
        part, people, said, weights = arena.rows(both), human[both], points[both], drawn[:, both]
        ranking = {}
        if len(linked_groups(part, people)) == 1:
            key = both.tobytes()
            if key not in rankings:
                rankings[key] = _rankings(part, people, weights, resamples, seed)
            own = _rankings(part, said, weights, resamples, seed)
            ranking = {
                method: {kind: Interval.of(row) for kind, row in rank_correlations(values, own[method]).items()}
                for method, values in rankings[key].items()
            }
        levels = np.array(part.levels)
        masks = {level: levels == level for level in part.level_names()} | {OVERALL: np.ones(len(part), dtype=bool)}
        same = (people == said).astype(np.float64)
        agreement[name] = ArenaAgreement(
            levels={level: Interval.of(resampled_mean(same[mask], weights[:, mask])) for level, mask in masks.items()},
            battles={level: int(mask.sum()) for level, mask in masks.items()},
            without_verdict=int(judged.sum() - both.sum()),
            human_ties=float((people == 0.5).mean()),
            ties=float((said == 0.5).mean()),
            ranking=ranking,
            bias=_bias(part, said - people, weights),
        )
    return agreement


def measure_rankings(
    arena: Arena, points: np.ndarray, fixed: Mapping[str, float], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, dict[str, Interval]]:
    """Correlations of the rankings by one voter, by Elo and by Bradley-Terry, with one that was fixed from outside.

    Battles of the source `human` are left out, and models that only one of the two rankings has. Arguments and result
    are as for `measure_agreement` and `ArenaAgreement.ranking`; `fixed` is {model: score}, larger is better.

    Raises:
        DataError: nothing is decided, or groups of models never met.
    """
    kept = ~np.isnan(points) & ~arena.has(HUMAN)
    if not kept.any():
        raise DataError(f"no battle without the source {HUMAN!r} is decided")
    part, points = arena.rows(kept), points[kept]
    check_linked(part, points)
    drawn = whole_first(bootstrap_weights(len(part), resamples=resamples, seed=seed, clusters=part.images))
    row = np.array([fixed.get(name, np.nan) for name in part.systems])
    correlations = {}
    for method, own in _rankings(part, points, drawn, resamples, seed).items():
        rows = rank_correlations(np.broadcast_to(row, own.shape), own)
        correlations[method] = {kind: Interval.of(values) for kind, values in rows.items()}
    return correlations


def rank_correlations(first: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
    """Spearman's rho and Kendall's tau-b of rows of ratings.

    Args:
        first, second: (R, M); infinite ratings have the outermost ranks, and models with NaN in either are left out.

    Returns:
        {"spearman": (R,), "kendall": (R,)}; NaN where a row has fewer than two models, or one rating for all.

    Example:
        >>> correlations = rank_correlations(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 2.0]]))
        >>> correlations["spearman"].round(3).tolist(), correlations["kendall"].round(3).tolist()
        ([0.5], [0.333])
    """
    from scipy.stats import kendalltau, spearmanr

    found: dict[str, list[float]] = {SPEARMAN: [], KENDALL: []}
    for rows in zip(first, second, strict=True):
        one, other = np.stack(rows)[:, ~np.isnan(rows).any(axis=0)]
        ordered = min(len(np.unique(one)), len(np.unique(other))) > 1
        for name, correlation in ((SPEARMAN, spearmanr), (KENDALL, kendalltau)):
            found[name].append(correlation(one, other).statistic if ordered else np.nan)
    return {name: np.array(values) for name, values in found.items()}


def _rankings(part: Arena, points: np.ndarray, weights: np.ndarray, resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Ratings of all battles and, by Bradley-Terry, of each resample: {method: (1, M) or (1 + R, M)}."""
    elo = np.median(resampled_elo(part, points, resamples=resamples, seed=seed), axis=0, keepdims=True)
    return {ELO: elo, BRADLEY_TERRY: fit_strengths(win_tables(part, points, weights))}


def _bias(part: Arena, surplus: np.ndarray, weights: np.ndarray) -> dict[str, Interval]:
    """Of what the first models won more by the metric than by people; the second ones won as much less."""
    biases = {}
    for place, name in enumerate(part.systems):
        rows, side = np.nonzero(part.pairs == place)
        biases[name] = Interval.of(resampled_mean(surplus[rows] * (1 - 2 * side), weights[:, rows]))
    return dict(sorted(biases.items()))
