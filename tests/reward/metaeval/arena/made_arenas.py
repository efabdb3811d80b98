"""Arenas of models of known strength."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from reward.metaeval.arena.battles import Battle


def draw_arena(
    strengths: Sequence[float] | np.ndarray, battles: int, *, images: int, ties: float = 0.0, seed: int = 0
) -> tuple[list[Battle], np.ndarray]:
    """Battles of "model 1", "model 2", ... that follow the Bradley-Terry model, and points (N,) of the first models.

    Every model has one caption an image, of its strength plus a Gumbel deviate: the difference of two is logistic. Ties
    take as many wins as losses of a pair.
    """
    truth = np.asarray(strengths, dtype=np.float64)
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(len(truth)), 2)))
    image, pair = np.divmod(rng.choice(images * len(pairs), size=battles, replace=False), len(pairs))
    sides = pairs[pair]
    turned = rng.random(battles) < 0.5
    sides[turned] = sides[turned, ::-1]
    quality = truth + rng.gumbel(size=(images, len(truth)))
    won = quality[image, sides[:, 0]] > quality[image, sides[:, 1]]
    chance = 1 / (1 + np.exp(truth[sides[:, 1]] - truth[sides[:, 0]]))
    own = np.where(won, chance, 1 - chance)  # of the result that came
    tied = rng.random(battles) < ties * np.minimum(1, (1 - own) / own)
    points = np.where(tied, 0.5, won.astype(np.float64))
    rows = [(f"{i}.jpg", f"model {a + 1}", f"model {b + 1}") for i, (a, b) in zip(image, sides, strict=True)]
    return [dict(zip(("img", "source1", "source2"), row, strict=True)) for row in rows], points


def table_of(pairs: str, **votes: Sequence[float]) -> pd.DataFrame:
    """Battles such as "xy zx" with points of voters, on images of their own."""
    rows = [(str(number), one, two, "") for number, (one, two) in enumerate(pairs.split())]
    return pd.DataFrame(rows, columns=["img", "source1", "source2", "cluster"]).assign(**votes)
