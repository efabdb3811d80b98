"""Which two models should meet next, so that ratings become certain with few battles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np

from reward.arena.strengths import fit_strengths, information_matrix, win_probabilities, win_tables
from reward.arena.table import Arena
from reward.battles import Battle
from reward.errors import DataError

__all__ = ["interval_gains", "next_battles", "next_pairs"]

_PRIOR = 1.0  # see `fit_strengths`: without it, a model that has won everything so far has no strength to reckon with


def interval_gains(games: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """By how much one more battle of i and j narrows the interval of the difference of their strengths.

    With the variance v of the difference and the information w = p (1 - p) of a battle, p being the chance that i
    wins, the interval shrinks from sqrt(v) to sqrt(v / (1 + w v)).

    Args:
        games: battles of each pair so far, (M, M), symmetric.
        strengths: (M,), finite.

    Returns:
        (M, M), in units of the standard error; 0 on the diagonal.
    """
    chance = win_probabilities(strengths)
    covariance = np.linalg.inv(information_matrix(games, strengths, prior=_PRIOR))
    spread = np.diag(covariance)
    variance = np.maximum(spread[:, None] + spread - 2 * covariance, 0)
    gains: np.ndarray = np.sqrt(variance) - np.sqrt(variance / (1 + chance * (1 - chance) * variance))
    return gains


def next_pairs(
    arena: Arena, points: np.ndarray, count: int, *, systems: Sequence[str] | None = None, seed: int = 0
) -> list[tuple[str, str]]:
    """Draws the pairs of models that should meet next: near ones, and those of whom little is known.

    A pair is drawn with a probability proportional to the reduction of a confidence interval by one more battle, as in
    CapArena and Chatbot Arena: sqrt(S / n) - sqrt(S / (n + 1)) for a pair that met n times, where S is the variance of
    one battle. Here S / n is the variance of the difference of their Bradley-Terry strengths (`interval_gains`): that
    is the same if nobody else ever plays, and counts what battles with others tell. Each draw supposes that the
    battles drawn before have been fought.

    Args:
        arena, points: the battles so far; see `Arena`.
        count: how many pairs.
        systems: models to choose from; may name some without battles. None is those of the arena.
        seed: of the draws.

    Returns:
        Pairs in random order of their two names; one pair may come several times.

    Raises:
        DataError: fewer than two models, or a count below 1.

    Source: Cheng et al., "CapArena", 2025, section 3.2; Chiang et al., "Chatbot Arena", 2024, section 5.

    Example:
        >>> arena = Arena.of([(str(n), "x", "y", "") for n in range(40)])
        >>> "z" in next_pairs(arena, np.full(40, 0.5), 1, systems=["x", "y", "z"])[0]
        True
    """
    names = list(dict.fromkeys(arena.systems if systems is None else systems))
    _check(names, count)
    return list(islice(_draws(names, _wins_among(arena, points, names), seed, lambda one, two: True), count))


def next_battles(battles: Sequence[Battle], points: np.ndarray, count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Pairs drawn as by `next_pairs`, on images for which the file has both captions and where the two have not met.

    Of these images, the one with the fewest battles is taken. Only pairs with such an image are drawn. Where no pair
    has one any more, all are drawn from, and come without an image: somebody has to caption more.

    Args:
        battles: those so far.
        points: (N,), what they came to for the first models.
        count, seed: see `next_pairs`.

    Returns:
        Entries of a battles file, in CapArena's fields; without image and captions where there are none.

    Raises:
        DataError: see `next_pairs`.
    """
    arena = Arena.of_battles(battles)
    _check(arena.systems, count)
    captions: dict[str, dict[str, str]] = {}
    references: dict[str, str] = {}
    met: dict[str, set[frozenset[str]]] = {}
    for battle in battles:
        captions.setdefault(battle.source1, {}).setdefault(battle.img, battle.caption1)
        captions.setdefault(battle.source2, {}).setdefault(battle.img, battle.caption2)
        met.setdefault(battle.img, set()).add(frozenset((battle.source1, battle.source2)))
        if battle.ref is not None:
            references.setdefault(battle.img, battle.ref)

    def free(one: str, two: str) -> list[str]:
        pair = frozenset((one, two))
        return [image for image in captions[one] if image in captions[two] and pair not in met[image]]

    proposed: list[dict[str, Any]] = []
    wins = _wins_among(arena, points, arena.systems)
    for one, two in islice(_draws(arena.systems, wins, seed, lambda one, two: bool(free(one, two))), count):
        entry: dict[str, Any] = {"source1": one, "source2": two}
        images = free(one, two)
        if images:
            image = min(images, key=lambda name: len(met[name]))
            met[image].add(frozenset((one, two)))
            entry = {"img": image, **entry, "caption1": captions[one][image], "caption2": captions[two][image]}
            if image in references:
                entry["ref"] = references[image]
        proposed.append(entry)
    return proposed


def _check(names: Sequence[str], count: int) -> None:
    if len(names) < 2:
        raise DataError(f"two models or more are needed for a battle, got {len(names)}: {', '.join(names) or 'none'}")
    if count < 1:
        raise DataError(f"the number of battles to propose must be at least 1, got {count}")


def _draws(
    names: Sequence[str], wins: np.ndarray, seed: int, possible: Callable[[str, str], object]
) -> Iterator[tuple[str, str]]:
    """Pairs without end, of those that are possible at the time; of all where none is."""
    strengths = fit_strengths(wins[None], prior=_PRIOR)[0]
    games = wins + wins.T
    rng = np.random.default_rng(seed)
    pairs = list(combinations(range(len(names)), 2))
    upper = tuple(np.array(pairs).T)
    while True:
        gains = interval_gains(games, strengths)[upper]
        open_ = np.array([bool(possible(names[one], names[two])) for one, two in pairs])
        gains = np.where(open_ | ~open_.any(), gains, 0.0)
        one, two = pairs[rng.choice(len(pairs), p=gains / gains.sum())]
        games[one, two] += 1
        games[two, one] += 1
        yield (names[one], names[two]) if rng.random() < 0.5 else (names[two], names[one])


def _wins_among(arena: Arena, points: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """`win_tables` of the models named, (M, M)."""
    wins = np.zeros((len(names), len(names)))
    place = {name: number for number, name in enumerate(arena.systems)}
    there = [number for number, name in enumerate(names) if name in place]
    if there:
        chosen = [place[names[number]] for number in there]
        wins[np.ix_(there, there)] = win_tables(arena, points)[0][np.ix_(chosen, chosen)]
    return wins
