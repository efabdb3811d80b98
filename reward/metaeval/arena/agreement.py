"""How well the votes of a metric or a judge agree with people's: battle by battle, in the ranking, model by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reward.errors import DataError
from reward.metaeval.arena.battles import HUMAN
from reward.metaeval.arena.ratings import (
    BRADLEY_TERRY,
    ELO,
    battle_weights,
    fit_strengths,
    linked_groups,
    model_pairs,
    resampled_elo,
)
from reward.metaeval.arena.voters import PEOPLE
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights, resampled_mean

SPEARMAN, KENDALL = "spearman", "kendall"


@dataclass(frozen=True)
class ArenaAgreement:
    """Agreement on the battles that both people and a voter have decided, as `measure_agreement` gives it.

    Args:
        levels: {level or "overall": share of the battles in which the verdict is the people's, ties counted}.
        battles: {level or "overall": number of battles}.
        without_verdict: battles that people decided and the voter did not; they count nowhere.
        ties, human_ties: share of ties of the voter and of the people.
        ranking: {"elo" or "bradley-terry": {"spearman" or "kendall": correlation of the two rankings of the models}};
            of Elo without an interval (NaN). Empty where the battles do not link all models.
        bias: {model: win rate by the voter minus win rate by people, ties half}.
        mean_bias: mean size of the bias over the models.
    """

    levels: Mapping[str, Interval]
    battles: Mapping[str, int]
    without_verdict: int
    ties: float
    human_ties: float
    ranking: Mapping[str, Mapping[str, Interval]]
    bias: Mapping[str, Interval]
    mean_bias: float


def measure_agreement(
    battles: pd.DataFrame, voters: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, ArenaAgreement]:
    """Agreement of voters with people, with 95 % intervals of a bootstrap over images.

    Battles of the source `human` are left out, as in CapArena. The rankings of the models come from the same battles,
    once with the verdicts of the people and once with those of the voter. A tie threshold is not chosen anew in each
    resample.

    Args:
        battles: see `battle_table`; with a column "people" and one of each voter.
        voters: the columns to compare with people; those that decided no battle that people did are left out.
        resamples, seed: of the bootstrap, which is the same for all, and of Elo.

    Source: Cheng et al., "CapArena", 2025, sections 4.2 and 4.3.
    """
    judged = battles[PEOPLE].notna() & _without_human(battles)
    drawn = _drawn(battles, resamples, seed)
    agreement = {}
    for voter in voters:
        kept = (judged & battles[voter].notna()).to_numpy()
        if not kept.any():
            continue
        both, weights = battles[kept], drawn[:, kept]
        ranking = {}
        if len(linked_groups(both, PEOPLE)) == 1:
            people, own = (_rankings(both, name, weights, resamples, seed) for name in (PEOPLE, voter))
            ranking = {method: rank_correlations(people[method], own[method]) for method in own}
        names = sorted(set(both["cluster"]) - {""}, key=lambda name: (len(name), name))  # level 2 before level 10
        masks = {name: (both["cluster"] == name).to_numpy() for name in names}
        masks[OVERALL] = np.ones(len(both), dtype=bool)
        same = (both[PEOPLE] == both[voter]).to_numpy(np.float64)
        bias = _bias(both, voter, weights)
        agreement[voter] = ArenaAgreement(
            levels={name: Interval.of(resampled_mean(same[mask], weights[:, mask])) for name, mask in masks.items()},
            battles={name: int(mask.sum()) for name, mask in masks.items()},
            without_verdict=int(judged.sum() - kept.sum()),
            ties=float((both[voter] == 0.5).mean()),
            human_ties=float((both[PEOPLE] == 0.5).mean()),
            ranking=ranking,
            bias=bias,
            mean_bias=float(np.mean([abs(each.value) for each in bias.values()])),
        )
    return agreement


def measure_rankings(
    battles: pd.DataFrame, voter: str, fixed: Mapping[str, float], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, dict[str, Interval]]:
    """Correlations of the rankings by one voter, by Elo and by Bradley-Terry, with one that was fixed from outside.

    Battles of the source `human` are left out, and models that only one of the two rankings has. `fixed` is {model:
    score}, larger is better; the result is as `ArenaAgreement.ranking`.
    """
    kept = (battles[voter].notna() & _without_human(battles)).to_numpy()
    part = battles[kept]
    if len(linked_groups(part, voter)) != 1:
        raise DataError(f"no battles decided by it, without the source {HUMAN!r}, link all models")
    drawn = _drawn(part, resamples, seed)
    scores = np.array([fixed.get(name, np.nan) for name in model_pairs(part)[0]])
    own = _rankings(part, voter, drawn, resamples, seed)
    return {method: rank_correlations(np.broadcast_to(scores, rows.shape), rows) for method, rows in own.items()}


def rank_correlations(first: np.ndarray, second: np.ndarray) -> dict[str, Interval]:
    """Spearman's rho and Kendall's tau-b of two ratings of models, with the 95 % intervals of their replicates.

    Args:
        first, second: (1 + R, M), the ratings and R replicates; infinite ones have the outermost ranks, and models with
            NaN in either are left out. R may be 0, for no interval.

    Returns:
        {"spearman": correlation, "kendall": correlation}; NaN with fewer than two models, or one rating for all.

    Example:
        >>> correlations = rank_correlations(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 2.0]]))
        >>> {kind: round(interval.value, 3) for kind, interval in correlations.items()}
        {'spearman': 0.5, 'kendall': 0.333}
    """
    from scipy.stats import kendalltau, spearmanr

    found: dict[str, list[float]] = {SPEARMAN: [], KENDALL: []}
    for rows in zip(first, second, strict=True):
        one, other = np.stack(rows)[:, ~np.isnan(rows).any(axis=0)]
        ordered = min(len(np.unique(one)), len(np.unique(other))) > 1
        for name, correlation in ((SPEARMAN, spearmanr), (KENDALL, kendalltau)):
            found[name].append(correlation(one, other).statistic if ordered else np.nan)
    return {name: Interval.of(np.array(values)) for name, values in found.items()}


def _without_human(battles: pd.DataFrame) -> pd.Series[bool]:
    return ~battles[["source1", "source2"]].eq(HUMAN).any(axis=1)


def _drawn(battles: pd.DataFrame, resamples: int, seed: int) -> np.ndarray:
    """How often each resample of whole images holds each battle, after a row of ones: (1 + R, N)."""
    images = battles["img"].tolist()
    drawn = bootstrap_weights(len(battles), resamples=resamples, seed=seed, clusters=images)
    return np.vstack([np.ones(len(battles)), drawn])


def _rankings(battles: pd.DataFrame, voter: str, drawn: np.ndarray, resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Ratings by all battles and, by Bradley-Terry, by each resample: {method: (1, M) or (1 + R, M)}."""
    models, pairs = model_pairs(battles)
    points = battles[voter].to_numpy()
    elo = np.median(resampled_elo(pairs, points, len(models), resamples=resamples, seed=seed), axis=0, keepdims=True)
    return {ELO: elo, BRADLEY_TERRY: fit_strengths(pairs, points, drawn * battle_weights(battles), len(models))}


def _bias(battles: pd.DataFrame, voter: str, drawn: np.ndarray) -> dict[str, Interval]:
    """Of what the first models won more by the voter than by people; the second ones won as much less."""
    models, pairs = model_pairs(battles)
    surplus = (battles[voter] - battles[PEOPLE]).to_numpy()
    biases = {}
    for place, name in enumerate(models):
        rows, side = np.nonzero(pairs == place)
        biases[name] = Interval.of(resampled_mean(surplus[rows] * (1 - 2 * side), drawn[:, rows]))
    return dict(sorted(biases.items()))
