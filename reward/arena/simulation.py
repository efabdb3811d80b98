"""Made arenas: models of known strengths meet on images, so that ratings can be compared with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from reward.arena.table import Arena

__all__ = ["draw_arena"]


def draw_arena(
    strengths: Sequence[float] | np.ndarray,
    battles: int,
    *,
    images: int,
    ties: float = 0.0,
    worth: np.ndarray | None = None,
    frequencies: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> tuple[Arena, np.ndarray]:
    """Battles that follow the Bradley-Terry model, in which those on one image are not independent.

    On each image every model writes one caption, whose worth is the model's strength plus a Gumbel deviate; the
    worthier caption wins. The difference of two such deviates is logistic, so i beats j with probability
    1 / (1 + exp(s_j - s_i)), and battles on an image share captions. Then as many wins as losses of a pair become ties,
    which leaves the share of points as it is.

    Args:
        strengths: of the M models, on the logistic scale.
        battles: number N, each another pair of models or another image.
        images: number I of images, which are named "0.jpg", "1.jpg", ...
        ties: chance in [0, 1] that the result of two equal captions becomes a tie; lower the further they are apart.
        worth: (I, M), what single captions are worth more than their models' others; None is 0 throughout.
        frequencies: (M, M), symmetric: how often pairs meet, relative to each other; None is all alike.
        names: of the models; None is "model 1", "model 2", ...
        seed: of the draws.

    Returns:
        The battles, and the points (N,) of the first models.

    Raises:
        ValueError: more battles than there are pairs on images.

    Example:
        >>> arena, points = draw_arena([1.0, 0.0, -1.0], 60, images=30)
        >>> len(arena), arena.systems[0][:5], bool(points.mean() > 0.3)
        (60, 'model', True)
    """
    truth = np.asarray(strengths, dtype=np.float64)
    rng = np.random.default_rng(seed)
    pairs = np.array(list(combinations(range(len(truth)), 2)))
    if not 1 <= battles <= images * len(pairs):
        raise ValueError(
            f"{images} images and {len(pairs)} pairs allow 1 to {images * len(pairs)} battles, got {battles}"
        )
    chances = None
    if frequencies is not None:
        chances = np.tile(np.asarray(frequencies, dtype=np.float64)[tuple(pairs.T)], images)
        chances = chances / chances.sum()
    image, pair = np.divmod(rng.choice(images * len(pairs), size=battles, replace=False, p=chances), len(pairs))
    sides = pairs[pair]
    turned = rng.random(battles) < 0.5
    sides[turned] = sides[turned, ::-1]
    expected = truth + (np.zeros((images, len(truth))) if worth is None else worth)
    quality = expected + rng.gumbel(size=expected.shape)
    rows = (image[:, None], sides)
    won = quality[rows][:, 0] > quality[rows][:, 1]
    chance = 1 / (1 + np.exp(expected[rows][:, 1] - expected[rows][:, 0]))
    own = np.where(won, chance, 1 - chance)  # of the result that came
    tied = rng.random(battles) < ties * np.minimum(1, (1 - own) / own)
    points = np.where(tied, 0.5, won.astype(np.float64))
    called = names or [f"model {number + 1}" for number in range(len(truth))]
    arena = Arena.of((f"{i}.jpg", called[a], called[b], "") for i, (a, b) in zip(image, sides, strict=True))
    return arena, points
