"""The results of an arena: ratings by each voter, and the agreement of all other voters with people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from reward.errors import DataError
from reward.metaeval.arena.agreement import ArenaAgreement, measure_agreement, measure_rankings
from reward.metaeval.arena.battles import HUMAN
from reward.metaeval.arena.caparena_auto import AutoScore
from reward.metaeval.arena.ranking import Ranking
from reward.metaeval.arena.ratings import BRADLEY_TERRY, ELO, Ratings, bradley_terry_ratings, elo_ratings
from reward.metaeval.arena.table import Arena
from reward.metaeval.arena.voters import PEOPLE, Voter
from reward.metaeval.bootstrap import RESAMPLES, Interval

__all__ = ["ArenaResult", "rate_arena"]


@dataclass(frozen=True, eq=False)
class ArenaResult:
    """Ratings and agreement in an arena, as `rate_arena` gives them.

    Args:
        arena: the battles.
        voters: the first one's ratings are those of the arena.
        ratings: {voter: {"bradley-terry" or "elo": ratings}}; without voters whose battles do not link all models.
        agreement: {voter: agreement with people}, for all but the people; empty without people.
        notes: what could not be computed, and why.
        resamples, seed: of the bootstrap and of Elo.
        ranking: fixed from outside; None if there is none.
        correlations: {voter: {"elo", "bradley-terry" or "score": {"spearman" or "kendall": correlation with
            the fixed ranking}}}.
        auto: {voter: scores in CapArena-Auto, best first}; empty for other battles.
    """

    arena: Arena
    voters: Sequence[Voter]
    ratings: Mapping[str, Mapping[str, Ratings]]
    agreement: Mapping[str, ArenaAgreement]
    notes: Sequence[str]
    resamples: int
    seed: int
    ranking: Ranking | None = None
    correlations: Mapping[str, Mapping[str, Mapping[str, Interval]]] = field(default_factory=dict)
    auto: Mapping[str, Sequence[AutoScore]] = field(default_factory=dict)

    @property
    def order(self) -> list[str]:
        """Models by the Bradley-Terry ratings of the first voter, best first."""
        return list(self.ratings[self.voters[0].name][BRADLEY_TERRY].ratings)


def rate_arena(
    arena: Arena,
    voters: Sequence[Voter],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    ranking: Ranking | None = None,
    auto: Mapping[str, Sequence[AutoScore]] | None = None,
) -> ArenaResult:
    """Rates the models by the votes of each voter, and compares all voters with people and with a fixed ranking.

    Args:
        arena: N battles.
        voters: at least one; people first, if they voted.
        resamples, seed: of the bootstrap and of Elo.
        ranking: fixed from outside.
        auto: {voter: its scores in CapArena-Auto}, which are compared with the fixed ranking, too.

    Raises:
        DataError: the first voter's battles do not link all models, two voters have one name, or the fixed ranking has
            fewer than three of the models.

    Example:
        >>> arena = Arena.of([(str(n), "x", "y", "") for n in range(20)])
        >>> people = Voter("people", np.array([1.0] * 15 + [0.0] * 5))
        >>> rate_arena(arena, [people, Voter("length", np.ones(20))], resamples=50).order
        ['x', 'y']
    """
    names = [voter.name for voter in voters]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise DataError(f"two voters are named {', '.join(doubled)}")
    ratings: dict[str, dict[str, Ratings]] = {}
    notes: list[str] = []
    for number, voter in enumerate(voters):
        kept = ~np.isnan(voter.points)
        try:
            part, points = arena.rows(kept), voter.points[kept]
            ratings[voter.name] = {
                BRADLEY_TERRY: bradley_terry_ratings(part, points),
                ELO: elo_ratings(part, points, resamples=resamples, seed=seed),
            }
        except DataError as error:
            if number == 0:
                raise
            notes.append(f"no ratings by {voter.name}: {error}")
            continue
        left_out = [name for name in arena.systems if name not in part.systems and (name != HUMAN or number == 0)]
        if left_out:
            notes.append(f"no rating by {voter.name} of {', '.join(left_out)}: none of their battles is decided by it")
        notes += [f"rating by {voter.name} of {note}" for note in ratings[voter.name][BRADLEY_TERRY].notes]
    agreement = _agreement(arena, voters, notes, resamples, seed)
    correlations = {} if ranking is None else _correlations(arena, voters, ranking, auto or {}, notes, resamples, seed)
    return ArenaResult(arena, voters, ratings, agreement, notes, resamples, seed, ranking, correlations, auto or {})


def _correlations(
    arena: Arena,
    voters: Sequence[Voter],
    ranking: Ranking,
    auto: Mapping[str, Sequence[AutoScore]],
    notes: list[str],
    resamples: int,
    seed: int,
) -> dict[str, dict[str, dict[str, Interval]]]:
    """With the fixed ranking; a voter whose battles do not link all models gets a note."""
    models = [name for name in arena.systems if name != HUMAN]
    shared = ranking.common(models)
    missing = [name for name in models if name not in shared]
    if missing:
        notes.append(f"not in the ranking of {ranking.source}, so left out of the correlations: {', '.join(missing)}")
    correlations = {}
    for voter in voters:
        try:
            rows = measure_rankings(arena, voter.points, ranking.scores, resamples=resamples, seed=seed)
            if voter.name in auto:
                rows |= ranking.correlations({score.model: score.score for score in auto[voter.name]})
            correlations[voter.name] = rows
        except DataError as error:
            notes.append(f"no correlations of {voter.name}: {error}")
    return correlations


def _agreement(
    arena: Arena, voters: Sequence[Voter], notes: list[str], resamples: int, seed: int
) -> dict[str, ArenaAgreement]:
    """With people; a voter that shares no battle with them gets a note."""
    people = next((voter for voter in voters if voter.name == PEOPLE), None)
    if people is None:
        return {}
    judged = ~np.isnan(people.points) & ~arena.has(HUMAN)
    others = {}
    for voter in voters:
        if voter is people:
            continue
        if (judged & ~np.isnan(voter.points)).any():
            others[voter.name] = voter.points
        else:
            notes.append(
                f"no agreement of {voter.name}: no battle is decided both by it and by people, "
                f"of those without the source {HUMAN!r}"
            )
    return measure_agreement(arena, people.points, others, resamples=resamples, seed=seed) if others else {}
