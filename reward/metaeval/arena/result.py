"""The result of an arena: ratings by each voter, and their agreement with people and with a ranking from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from reward.errors import DataError
from reward.metaeval.arena.battles import HUMAN, Battle
from reward.metaeval.arena.model_ratings import (
    BRADLEY_TERRY,
    ELO,
    Ranking,
    auto_scores,
    battle_weights,
    fit_strengths,
    linked_groups,
    model_pairs,
    rank_correlations,
    rate_models,
    resampled_elo,
)
from reward.metaeval.arena.voters import PEOPLE, Voter
from reward.metaeval.benchmarks.items import OVERALL
from reward.metaeval.bootstrap import RESAMPLES, Interval, bootstrap_weights, resampled_mean


@dataclass(frozen=True)
class ArenaAgreement:
    """Agreement on the battles that both people and a voter have decided, as `agreement_with_people` gives it.

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


@dataclass(frozen=True, eq=False)
class ArenaResult:
    """Ratings and agreement in an arena, as `rate_arena` gives them.

    Args:
        battles: see `battle_table`.
        voters: the first one's ratings are those of the arena.
        ratings: {voter: {"bradley-terry" or "elo": ratings}}, see `rate_models`; without voters whose battles do not
            link all models.
        agreement: {voter: agreement with people}, for all but the people; empty without people.
        notes: what could not be computed, and why.
        resamples, seed: of the bootstrap and of Elo.
        ranking: fixed from outside; None if there is none.
        correlations: {voter: {"elo", "bradley-terry" or "score": {"spearman" or "kendall": correlation with
            the fixed ranking}}}; the command puts leaderboards beside the voters.
        auto: {voter: scores in CapArena-Auto, see `auto_scores`}; empty for other battles.
    """

    battles: pd.DataFrame
    voters: Sequence[Voter]
    ratings: Mapping[str, Mapping[str, pd.DataFrame]]
    agreement: Mapping[str, ArenaAgreement]
    notes: Sequence[str]
    resamples: int
    seed: int
    ranking: Ranking | None = None
    correlations: dict[str, dict[str, dict[str, Interval]]] = field(default_factory=dict)
    auto: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def order(self) -> list[str]:
        """Models by the Bradley-Terry ratings of the first voter, best first."""
        return list(self.ratings[self.voters[0].name][BRADLEY_TERRY].index)


def rate_arena(
    battles: Sequence[Battle],
    voters: Sequence[Voter],
    *,
    pair_weights: bool = False,
    ranking: Ranking | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ArenaResult:
    """Rates the models by the votes of each voter, and compares all voters with people and with a fixed ranking.

    Args:
        battles: N battles; those of CapArena-Auto (with `ref_model`) give its leaderboard, too.
        voters: at least one; people first, if they voted.
        pair_weights: see `battle_table`.
        ranking: fixed from outside.
        resamples, seed: of the bootstrap and of Elo.

    Raises:
        DataError: the first voter's battles do not link all models.

    Example:
        >>> import numpy as np
        >>> entry = {"source1": "x", "source2": "y", "caption1": "A dog.", "caption2": "A cat."}
        >>> battles = [{**entry, "img": str(number)} for number in range(20)]
        >>> people = Voter("people", np.array([1.0] * 15 + [0.0] * 5))
        >>> result = rate_arena(battles, [people, Voter("first", np.ones(20))], resamples=50)
        >>> result.order, result.agreement["first"].levels["overall"].value, result.agreement["first"].bias["y"].value
        (['x', 'y'], 0.75, -0.25)
    """
    table = battle_table(battles, voters, pair_weights=pair_weights)
    ratings: dict[str, Mapping[str, pd.DataFrame]] = {}
    notes: list[str] = []
    for voter in voters:
        try:
            ratings[voter.name] = rate_models(table, voter.name, resamples=resamples, seed=seed)
        except DataError as error:
            if voter is voters[0]:  # its ratings are those of the arena
                raise
            notes.append(f"no ratings by {voter.name}: {error}")
        else:
            notes += _notes_on_ratings(table, voter.name, ratings[voter.name][BRADLEY_TERRY]["rating"])

    agreement: dict[str, ArenaAgreement] = {}
    if voters[0].name == PEOPLE:
        names = [voter.name for voter in voters[1:]]
        agreement = agreement_with_people(table, names, resamples=resamples, seed=seed)
    auto = {}
    if any("ref_model" in battle for battle in battles):
        auto = {voter.name: auto_scores(battles, voter.points) for voter in voters}

    correlations: dict[str, dict[str, dict[str, Interval]]] = {}
    if ranking is not None:
        for voter in voters:
            try:
                methods = _ranking_correlations(table, voter.name, ranking, resamples, seed)
                if auto:
                    methods |= ranking.correlations({score["model"]: score["score"] for score in auto[voter.name]})
                correlations[voter.name] = methods
            except DataError as error:  # one voter's battles may link fewer models than another's
                notes.append(f"no correlations of {voter.name}: {error}")
    return ArenaResult(table, voters, ratings, agreement, notes, resamples, seed, ranking, correlations, auto)


def battle_table(battles: Sequence[Battle], voters: Sequence[Voter], *, pair_weights: bool = False) -> pd.DataFrame:
    """The battles with a column of points for each voter: 1 where the first model won, 0.5 for a tie, 0, or NaN.

    Args:
        battles: N battles; their columns are img, source1, source2 and cluster, which may be empty.
        voters: their votes.
        pair_weights: adds a column `weight`, CapArena's 1 / P scaled to a mean of 1, P being the share of the pair of
            models in all battles, so that all pairs that met count the same. In the paper P is the chance with which
            the pair was drawn, which its data do not hold.

    Source: Cheng et al., "CapArena", 2025, section 3.2.
    """
    names = ("img", "source1", "source2", "cluster")
    rows = []
    for battle in battles:
        rows.append([str(battle.get(name) or "") for name in names])
    table = pd.DataFrame(rows, columns=names)
    if pair_weights:
        models = np.sort(table[["source1", "source2"]].to_numpy(), axis=1)  # a pair is the same in both orders
        pairs = table.groupby([models[:, 0], models[:, 1]])["img"]
        table["weight"] = len(table) / (pairs.ngroups * pairs.transform("size"))
    for voter in voters:
        table[voter.name] = voter.points
    return table


def agreement_with_people(
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
        common = (judged & battles[voter].notna()).to_numpy()
        if not common.any():
            continue
        # People and voter are compared on the same battles, and all voters on the same resamples of images.
        both = battles[common]
        weights = drawn[:, common]
        levels, counts = _levels(both, voter, weights)
        ranking = {}
        if len(linked_groups(both, PEOPLE)) == 1:
            by_people = _rankings(both, PEOPLE, weights, resamples, seed)
            by_voter = _rankings(both, voter, weights, resamples, seed)
            ranking = {method: rank_correlations(by_people[method], by_voter[method]) for method in by_voter}
        bias = _bias(both, voter, weights)
        agreement[voter] = ArenaAgreement(
            levels=levels,
            battles=counts,
            without_verdict=int(judged.sum() - common.sum()),
            ties=float((both[voter] == 0.5).mean()),
            human_ties=float((both[PEOPLE] == 0.5).mean()),
            ranking=ranking,
            bias=bias,
            mean_bias=float(np.mean([abs(interval.value) for interval in bias.values()])),
        )
    return agreement


def _levels(battles: pd.DataFrame, voter: str, drawn: np.ndarray) -> tuple[dict[str, Interval], dict[str, int]]:
    """{level or "overall": share of the same verdicts as people's}, and the numbers of battles."""
    same = (battles[PEOPLE] == battles[voter]).to_numpy(np.float64)
    levels = set(battles["cluster"]) - {"", OVERALL}
    shares, counts = {}, {}
    for level in [*sorted(levels, key=lambda level: (len(level), level)), OVERALL]:  # level 2 before level 10
        mask = ((battles["cluster"] == level) | (level == OVERALL)).to_numpy()
        shares[level] = Interval.of(resampled_mean(same[mask], drawn[:, mask]))
        counts[level] = int(mask.sum())
    return shares, counts


def _bias(battles: pd.DataFrame, voter: str, drawn: np.ndarray) -> dict[str, Interval]:
    """{model: what it won more by the voter than by people, a battle}."""
    models, pairs = model_pairs(battles)
    surplus = (battles[voter] - battles[PEOPLE]).to_numpy()  # of the first models; the second ones won as much less
    biases = {}
    for number in np.argsort(models):
        rows, side = np.nonzero(pairs == number)  # side 0 is the first model of a battle
        biases[models[number]] = Interval.of(resampled_mean(surplus[rows] * (1 - 2 * side), drawn[:, rows]))
    return biases


def _ranking_correlations(
    battles: pd.DataFrame, voter: str, ranking: Ranking, resamples: int, seed: int
) -> dict[str, dict[str, Interval]]:
    """Correlations of the rankings by one voter, by Elo and by Bradley-Terry, with one that was fixed from outside.

    Battles of the source `human` are left out, and models that only one of the two rankings has. The result is as
    `ArenaAgreement.ranking`.
    """
    decided = battles[battles[voter].notna() & _without_human(battles)]
    if len(linked_groups(decided, voter)) != 1:
        raise DataError(f"no battles decided by it, without the source {HUMAN!r}, link all models")
    scores = pd.Series(ranking.scores, dtype=float).reindex(model_pairs(decided)[0]).to_numpy()
    correlations = {}
    for method, ratings in _rankings(decided, voter, _drawn(decided, resamples, seed), resamples, seed).items():
        correlations[method] = rank_correlations(np.broadcast_to(scores, ratings.shape), ratings)
    return correlations


def _rankings(battles: pd.DataFrame, voter: str, drawn: np.ndarray, resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Ratings by all battles and, by Bradley-Terry, by each resample: {method: (1, M) or (1 + R, M)}."""
    models, pairs = model_pairs(battles)
    points = battles[voter].to_numpy()
    # Elo's resamples are of battles and in an order, so it cannot follow those of the images that are drawn.
    elo = np.median(resampled_elo(pairs, points, len(models), resamples=resamples, seed=seed), axis=0, keepdims=True)
    return {ELO: elo, BRADLEY_TERRY: fit_strengths(pairs, points, drawn * battle_weights(battles), len(models))}


def _drawn(battles: pd.DataFrame, resamples: int, seed: int) -> np.ndarray:
    """How often each resample of whole images holds each battle, after a row of ones: (1 + R, N)."""
    images = battles["img"].tolist()
    drawn = bootstrap_weights(len(battles), resamples=resamples, seed=seed, clusters=images)
    return np.vstack([np.ones(len(battles)), drawn])


def _without_human(battles: pd.DataFrame) -> pd.Series[bool]:
    return ~battles[["source1", "source2"]].eq(HUMAN).any(axis=1)


def _notes_on_ratings(table: pd.DataFrame, voter: str, ratings: pd.Series[float]) -> list[str]:
    """What a voter's Bradley-Terry ratings do not tell."""
    notes = []
    left_out = [name for name in model_pairs(table)[0] if name not in ratings and name != HUMAN]
    if left_out:
        notes.append(f"no rating by {voter} of {', '.join(left_out)}: none of their battles is decided by it")
    unbounded = list(ratings.index[~np.isfinite(ratings)])
    if unbounded:
        why = "no finite maximum of the likelihood, since no chain of points links them to the others both ways"
        notes.append(f"rating by {voter} of {', '.join(unbounded)}: {why}")
    return notes
