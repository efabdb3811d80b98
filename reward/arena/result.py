"""Everything that an arena tells: ratings by each decider, and agreement of all others with people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reward.arena.agreement import ArenaAgreement, measure_agreement
from reward.arena.deciders import PEOPLE, Decider
from reward.arena.ratings import BRADLEY_TERRY, ELO, Ratings, bradley_terry_ratings, elo_ratings
from reward.arena.table import Arena
from reward.battles import HUMAN
from reward.errors import DataError
from reward.metaeval.bootstrap import RESAMPLES

__all__ = ["ArenaResult", "rate_arena"]


@dataclass(frozen=True, eq=False)
class ArenaResult:
    """Ratings and agreement in an arena, as `rate_arena` gives them.

    Args:
        arena: the battles.
        deciders: the first one's ratings are those of the arena.
        ratings: {decider: {"bradley-terry" or "elo": ratings}}; without those whose verdicts link not all models.
        agreement: {decider: agreement with people}, for all but the people; empty without people.
        notes: what could not be computed, and why.
        prior: see `fit_strengths`.
        resamples, seed: of the bootstrap and of Elo.
    """

    arena: Arena
    deciders: Sequence[Decider]
    ratings: Mapping[str, Mapping[str, Ratings]]
    agreement: Mapping[str, ArenaAgreement]
    notes: Sequence[str]
    prior: float
    resamples: int
    seed: int

    @property
    def order(self) -> list[str]:
        """Models by the Bradley-Terry ratings of the first decider, best first."""
        return list(self.ratings[self.deciders[0].name][BRADLEY_TERRY].ratings)


def rate_arena(
    arena: Arena, deciders: Sequence[Decider], *, prior: float = 0.0, resamples: int = RESAMPLES, seed: int = 0
) -> ArenaResult:
    """Rates the models by the verdicts of each decider, and compares all deciders with people.

    Args:
        arena: N battles.
        deciders: at least one; people first, if they have decided any battle.
        prior: see `fit_strengths`.
        resamples, seed: of the bootstrap and of Elo.

    Raises:
        DataError: the first decider's battles do not link all models, or two deciders have one name.

    Example:
        >>> arena = Arena.of([(str(n), "x", "y", "") for n in range(20)])
        >>> people = Decider("people", np.array([1.0] * 15 + [0.0] * 5))
        >>> rate_arena(arena, [people, Decider("length", np.ones(20))], resamples=50).order
        ['x', 'y']
    """
    names = [decider.name for decider in deciders]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise DataError(f"two deciders are named {', '.join(doubled)}")
    ratings: dict[str, dict[str, Ratings]] = {}
    notes: list[str] = []
    for number, decider in enumerate(deciders):
        kept = ~np.isnan(decider.points)
        try:
            part, points = arena.rows(kept), decider.points[kept]
            ratings[decider.name] = {
                BRADLEY_TERRY: bradley_terry_ratings(part, points, prior=prior),
                ELO: elo_ratings(part, points, resamples=resamples, seed=seed),
            }
        except DataError as error:
            if number == 0:
                raise
            notes.append(f"no ratings by {decider.name}: {error}")
            continue
        left_out = [name for name in arena.systems if name not in part.systems and (name != HUMAN or number == 0)]
        if left_out:
            notes.append(
                f"no rating by {decider.name} of {', '.join(left_out)}: none of their battles is decided by it"
            )
        notes += [f"rating by {decider.name} of {note}" for note in ratings[decider.name][BRADLEY_TERRY].notes]
    return ArenaResult(
        arena, deciders, ratings, _agreement(arena, deciders, notes, resamples, seed), notes, prior, resamples, seed
    )


def _agreement(
    arena: Arena, deciders: Sequence[Decider], notes: list[str], resamples: int, seed: int
) -> dict[str, ArenaAgreement]:
    """With people; a decider that shares no battle with them gets a note."""
    people = next((decider for decider in deciders if decider.name == PEOPLE), None)
    if people is None:
        return {}
    judged = ~np.isnan(people.points) & ~arena.has(HUMAN)
    others = {}
    for decider in deciders:
        if decider is people:
            continue
        if (judged & ~np.isnan(decider.points)).any():
            others[decider.name] = decider.points
        else:
            notes.append(
                f"no agreement of {decider.name}: no battle is decided both by it and by people, "
                f"of those without the source {HUMAN!r}"
            )
    return measure_agreement(arena, people.points, others, resamples=resamples, seed=seed) if others else {}
