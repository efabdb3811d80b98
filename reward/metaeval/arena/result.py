"""The results of an arena: ratings by each voter, their agreement with people, and with a ranking from outside."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from reward.errors import DataError
from reward.metaeval.arena.agreement import ArenaAgreement, measure_agreement, measure_rankings
from reward.metaeval.arena.auto import auto_scores
from reward.metaeval.arena.battles import HUMAN, Battle
from reward.metaeval.arena.ranking import Ranking
from reward.metaeval.arena.ratings import BRADLEY_TERRY, model_pairs, rate_models
from reward.metaeval.arena.voters import PEOPLE, Voter
from reward.metaeval.bootstrap import RESAMPLES, Interval


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
            the fixed ranking}}}.
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
    correlations: Mapping[str, Mapping[str, Mapping[str, Interval]]] = field(default_factory=dict)
    auto: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def order(self) -> list[str]:
        """Models by the Bradley-Terry ratings of the first voter, best first."""
        return list(self.ratings[self.voters[0].name][BRADLEY_TERRY].index)


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
    table = pd.DataFrame([[str(battle.get(name) or "") for name in names] for battle in battles], columns=names)
    if pair_weights:
        pairs = [frozenset((battle["source1"], battle["source2"])) for battle in battles]
        met = Counter(pairs)
        table["weight"] = [len(pairs) / (len(met) * met[pair]) for pair in pairs]
    return table.assign(**{voter.name: voter.points for voter in voters})


def rate_arena(
    battles: Sequence[Battle],
    voters: Sequence[Voter],
    *,
    pair_weights: bool = False,
    ranking: Ranking | None = None,
    boards: Mapping[str, Mapping[str, Mapping[str, Interval]]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> ArenaResult:
    """Rates the models by the votes of each voter, and compares all voters with people and with a fixed ranking.

    Args:
        battles: N battles; those of CapArena-Auto (with `ref_model`) give its leaderboard, too.
        voters: at least one; people first, if they voted.
        pair_weights: see `battle_table`.
        ranking: fixed from outside.
        boards: {leaderboard: its correlations with the fixed ranking}, which are passed on.
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
    how: dict[str, Any] = {"resamples": resamples, "seed": seed}
    ratings: dict[str, Mapping[str, pd.DataFrame]] = {}
    notes: list[str] = []
    for voter in voters:
        try:
            ratings[voter.name] = rate_models(table, voter.name, **how)
        except DataError as error:
            if voter is voters[0]:
                raise
            notes.append(f"no ratings by {voter.name}: {error}")
        else:
            notes += _without_ratings(table, voter.name, ratings[voter.name][BRADLEY_TERRY]["rating"])
    others = [voter.name for voter in voters[1:]] if voters[0].name == PEOPLE else []
    agreement = measure_agreement(table, others, **how) if others else {}
    is_auto = any("ref_model" in battle for battle in battles)
    auto = {voter.name: auto_scores(battles, voter.points) for voter in voters} if is_auto else {}
    correlations: dict[str, Mapping[str, Mapping[str, Interval]]] = {}
    for voter in voters if ranking is not None else ():
        assert ranking is not None
        try:
            rows = measure_rankings(table, voter.name, ranking.scores, **how)
            if is_auto:
                rows |= ranking.correlations({score["model"]: score["score"] for score in auto[voter.name]})
            correlations[voter.name] = rows
        except DataError as error:
            notes.append(f"no correlations of {voter.name}: {error}")
    correlations.update(boards or {})
    return ArenaResult(table, voters, ratings, agreement, notes, resamples, seed, ranking, correlations, auto)


def _without_ratings(table: pd.DataFrame, voter: str, ratings: pd.Series[float]) -> Iterator[str]:
    """What a voter's Bradley-Terry ratings do not tell."""
    if left_out := [name for name in model_pairs(table)[0] if name not in ratings and name != HUMAN]:
        yield f"no rating by {voter} of {', '.join(left_out)}: none of their battles is decided by it"
    if unbounded := list(ratings.index[ratings.isna() | ratings.abs().eq(math.inf)]):
        why = "no finite maximum of the likelihood, since no chain of points links them to the others both ways"
        yield f"rating by {voter} of {', '.join(unbounded)}: {why}"
