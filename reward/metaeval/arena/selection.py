"""Which two models should meet next, so that few battles suffice for certain ratings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.arena.battles import Battle
from reward.metaeval.arena.strengths import fit_strengths, information_matrix, win_probabilities, win_tables
from reward.metaeval.arena.table import Arena

__all__ = ["interval_gains", "next_battles"]

_PRIOR = 1.0  # see `fit_strengths`: without it, a model that has won everything so far has no finite strength


def interval_gains(games: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """How much one more battle of i and j narrows the confidence interval of the difference of their strengths.

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


def next_battles(battles: Sequence[Battle], points: np.ndarray, count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Draws the battles that should be next: of models of similar strength, and of models with few battles.

    A pair is drawn with a probability proportional to the reduction of a confidence interval by one more battle, as in
    CapArena and Chatbot Arena: sqrt(S / n) - sqrt(S / (n + 1)) for a pair that met n times, where S is the variance of
    one battle. Here S / n is the variance of the difference of their Bradley-Terry strengths (`interval_gains`). With
    two models this is the same; with more, battles against other models count too. Each draw assumes that the battles
    drawn before have taken place.

    Only pairs are drawn that have not met on an image with captions of both; of these images, the one with the fewest
    battles is taken. When no pair has one any more, all pairs are drawn from and come without an image: more images
    have to be captioned.

    Args:
        battles: those so far.
        points: (N,), see `Arena`.
        count: how many.
        seed: of the draws.

    Returns:
        Entries of a battles file, in CapArena's fields, the two models in random order; without image and captions
        where there are none.

    Raises:
        DataError: no battle, or a count below 1.

    Source: Cheng et al., "CapArena", 2025, section 3.2; Chiang et al., "Chatbot Arena", 2024, section 5.
    """
    arena = Arena.of_battles(battles)
    if count < 1:
        raise DataError(f"the number of battles to propose must be at least 1, got {count}")
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

    wins = win_tables(arena, points)
    strengths, games = fit_strengths(wins, prior=_PRIOR)[0], wins[0] + wins[0].T
    rng = np.random.default_rng(seed)
    pairs = list(combinations(range(len(arena.systems)), 2))
    proposed: list[dict[str, Any]] = []
    while len(proposed) < count:
        gains = interval_gains(games, strengths)[tuple(np.array(pairs).T)]
        open_ = np.array([bool(free(arena.systems[one], arena.systems[two])) for one, two in pairs])
        gains = np.where(open_ | ~open_.any(), gains, 0.0)
        pair = pairs[rng.choice(len(pairs), p=gains / gains.sum())]
        games[pair] += 1
        games[pair[::-1]] += 1
        one, two = (arena.systems[place] for place in (pair if rng.random() < 0.5 else pair[::-1]))
        entry: dict[str, Any] = {"source1": one, "source2": two}
        if images := free(one, two):
            image = min(images, key=lambda name: len(met[name]))
            met[image].add(frozenset((one, two)))
            entry = {"img": image, **entry, "caption1": captions[one][image], "caption2": captions[two][image]}
            if image in references:
                entry["ref"] = references[image]
        proposed.append(entry)
    return proposed
