"""Which two models should meet next, so that few battles suffice for certain ratings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from reward.errors import DataError
from reward.metaeval.arena.battles import Battle


def interval_gains(won: np.ndarray, games: np.ndarray) -> np.ndarray:
    """How much one more battle of each pair narrows the interval of its win rate: sqrt(S / n) - sqrt(S / (n + 1)).

    S is the variance of one battle, p (1 - p). So the gain is larger the fewer battles n a pair had, and the closer its
    win rate p is to one half. A tie is added to each pair, so that one that never met has both.

    Source: Cheng et al., "CapArena", 2025, section 3.2; Chiang et al., "Chatbot Arena", 2024, section 5.

    Example:
        >>> interval_gains(np.array([0.0, 5.0, 9.0]), np.array([0.0, 10.0, 10.0])).round(3).tolist()
        [0.146, 0.006, 0.004]
    """
    games = games + 1
    chance = (won + 0.5) / games
    spread = np.sqrt(chance * (1 - chance))
    gains: np.ndarray = spread / np.sqrt(games) - spread / np.sqrt(games + 1)
    return gains


def next_battles(battles: Sequence[Battle], points: np.ndarray, count: int, *, seed: int = 0) -> list[Battle]:
    """Draws the battles that should be next: of models of similar strength, and of models with few battles.

    A pair is drawn with a probability proportional to `interval_gains`; each draw assumes that the battles drawn before
    have taken place. Only pairs are drawn that have not met on an image with captions of both; of these images, the one
    with the fewest battles is taken. When no pair has one any more, all pairs are drawn from and come without an image:
    more images have to be captioned.

    Args:
        battles: those so far.
        points: (N,), what the first models won; NaN where nobody has decided.
        count: how many, at least 1.
        seed: of the draws.

    Returns:
        Entries of a battles file, in CapArena's fields, the two models in random order; without image and captions
        where there are none.
    """
    if count < 1:
        raise DataError(f"the number of battles to propose must be at least 1, got {count}")
    captions: dict[str, dict[str, str]] = {}
    references: dict[str, str] = {}
    met: dict[str, set[frozenset[str]]] = {}
    for battle in battles:
        for place in ("1", "2"):
            captions.setdefault(battle["source" + place], {}).setdefault(battle["img"], battle["caption" + place])
        met.setdefault(battle["img"], set()).add(frozenset((battle["source1"], battle["source2"])))
        if "ref" in battle:
            references.setdefault(battle["img"], battle["ref"])
    pairs = list(combinations(captions, 2))
    free = [
        [image for image in captions[one] if image in captions[two] and frozenset((one, two)) not in met[image]]
        for one, two in pairs
    ]
    numbers = {frozenset(pair): number for number, pair in enumerate(pairs)}
    won, games = np.zeros(len(pairs)), np.zeros(len(pairs))
    for battle, points_of_first in zip(battles, points, strict=True):
        if not np.isnan(points_of_first):
            number = numbers[frozenset((battle["source1"], battle["source2"]))]
            won[number] += points_of_first if battle["source1"] == pairs[number][0] else 1 - points_of_first
            games[number] += 1
    rng = np.random.default_rng(seed)
    proposed: list[Battle] = []
    while len(proposed) < count:
        is_open = np.array([bool(images) for images in free])
        gains = np.where(is_open | ~is_open.any(), interval_gains(won, games), 0.0)
        number = rng.choice(len(pairs), p=gains / gains.sum())
        won[number] += (won[number] + 0.5) / (games[number] + 1)  # what is expected
        games[number] += 1
        one, two = pairs[number] if rng.random() < 0.5 else pairs[number][::-1]
        entry: Battle = {"source1": one, "source2": two}
        if free[number]:
            image = min(free[number], key=lambda name: len(met[name]))
            free[number].remove(image)
            met[image].add(frozenset((one, two)))
            entry = {"img": image, **entry, "caption1": captions[one][image], "caption2": captions[two][image]}
            if image in references:
                entry["ref"] = references[image]
        proposed.append(entry)
    return proposed
