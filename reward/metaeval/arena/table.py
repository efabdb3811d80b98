"""Arena: the battles of models as arrays, and which models they link."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reward.errors import DataError
from reward.metaeval.arena.battles import Battle, human_outcome

__all__ = ["Arena", "check_linked", "human_points", "linked_groups"]


@dataclass(frozen=True, eq=False)
class Arena:
    """N battles of M models. Their results are kept apart, because people, judges and metrics vote on the same battles.

    The points (N,) of a voter are those of the first model of each battle: 1 for a win, 0.5 for a tie, 0 for a loss,
    and NaN without a vote.

    Args:
        systems: names of the M models, in order of appearance.
        pairs: places (N, 2) in `systems` of the two models of each battle.
        images: N names; battles on the same image are not independent.
        levels: N names of how different the two models are in strength, such as "level 1"; may be empty.
        weights: (N,), how much each battle counts in Bradley-Terry, see `weighted`; None is 1 for all.

    Example:
        >>> arena = Arena.of([("1.jpg", "x", "y", ""), ("2.jpg", "z", "x", "")])
        >>> arena.systems, arena.pairs.tolist()
        (('x', 'y', 'z'), [[0, 1], [2, 0]])
    """

    systems: tuple[str, ...]
    pairs: np.ndarray
    images: tuple[str, ...]
    levels: tuple[str, ...]
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, battles: Iterable[tuple[str, str, str, str]]) -> Arena:
        """From (image, first model, second model, level) of each battle.

        Raises:
            DataError: no battle, or one of a model against itself.
        """
        rows = list(battles)
        if not rows:
            raise DataError("there are no battles")
        places: dict[str, int] = {}
        for image, first, second, _ in rows:
            if first == second:
                raise DataError(f"the battle on {image!r} is one of {first!r} against itself")
            places.setdefault(first, len(places))
            places.setdefault(second, len(places))
        pairs = np.array([[places[first], places[second]] for _, first, second, _ in rows])
        return cls(tuple(places), pairs, tuple(row[0] for row in rows), tuple(row[3] for row in rows))

    @classmethod
    def of_battles(cls, battles: Sequence[Battle]) -> Arena:
        """From the battles of a file; the level is its field `cluster`."""
        return cls.of(
            (battle.img, battle.source1, battle.source2, str(battle.record.get("cluster") or "")) for battle in battles
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def rows(self, keep: np.ndarray) -> Arena:
        """The battles of a mask (N,), with the models that are left in them.

        Raises:
            DataError: none is left.
        """
        kept = np.flatnonzero(keep)
        part = Arena.of(
            (self.images[row], self.systems[self.pairs[row, 0]], self.systems[self.pairs[row, 1]], self.levels[row])
            for row in kept
        )
        return part if self.weights is None else replace(part, weights=self.weights[kept])

    def weighted(self) -> Arena:
        """The same battles, each with CapArena's weight 1 / P, scaled to a mean of 1; P is the share of its pair.

        So all pairs that met count the same. In the paper P is the chance with which the pair was drawn, which its
        data do not hold. The weights change the strengths only where Bradley-Terry does not hold exactly.

        Source: Cheng et al., "CapArena", 2025, section 3.2; Chiang et al., "Chatbot Arena", 2024.

        Example:
            >>> arena = Arena.of([("1", "x", "y", ""), ("2", "y", "x", ""), ("1", "x", "z", "")]).weighted()
            >>> arena.weights.tolist()
            [0.75, 0.75, 1.5]
        """
        pairs = [tuple(sorted(pair)) for pair in self.pairs.tolist()]
        met = Counter(pairs)
        return replace(self, weights=np.array([len(pairs) / (len(met) * met[pair]) for pair in pairs]))

    def has(self, system: str) -> np.ndarray:
        """Whether a model is in each battle, (N,)."""
        if system not in self.systems:
            return np.zeros(len(self), dtype=bool)
        return (self.pairs == self.systems.index(system)).any(axis=1)

    def level_names(self) -> list[str]:
        """The levels that occur, except the empty one, in the order of the numbers in their names."""

        def key(name: str) -> list[tuple[int, str]]:
            return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]

        return sorted(set(self.levels) - {""}, key=key)


def human_points(battles: Sequence[Battle]) -> np.ndarray:
    """Points (N,) by people: field `winner`, a source or `equal`; NaN without it.

    Raises:
        DataError: a winner is neither of the two models.
    """
    results = [human_outcome(battle.record) for battle in battles]
    return np.array([np.nan if result is None else (result + 1) / 2 for result in results], dtype=np.float64)


def linked_groups(arena: Arena, points: np.ndarray) -> list[list[str]]:
    """Groups of models that no decided battle links to each other, the largest group first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, second = arena.pairs[~np.isnan(points)].T
    count = len(arena.systems)
    links = coo_array((np.ones(len(first)), (first, second)), shape=(count, count))
    _, labels = connected_components(links, directed=False)
    groups: dict[int, list[str]] = {}
    for name, label in zip(arena.systems, labels, strict=True):
        groups.setdefault(int(label), []).append(name)
    return sorted(groups.values(), key=len, reverse=True)


def check_linked(arena: Arena, points: np.ndarray) -> None:
    """Refuses battles that do not link all models: models of different groups cannot be compared.

    Raises:
        DataError: nothing is decided, or there are several groups; the message names them.
    """
    if np.isnan(points).all():
        raise DataError(f"none of the {len(points)} battles is decided")
    groups = linked_groups(arena, points)
    if len(groups) > 1:
        listed = " | ".join(", ".join(group) for group in groups)
        raise DataError(
            f"no decided battle links these {len(groups)} groups of models, so they cannot be rated together: {listed}."
            " Let models of different groups meet, or rate each group by itself"
        )
