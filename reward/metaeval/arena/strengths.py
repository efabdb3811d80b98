"""Bradley-Terry strengths by maximum likelihood, for one table of wins or many at once."""

from __future__ import annotations

import numpy as np

from reward.metaeval.arena.table import Arena

__all__ = ["fit_strengths", "information_matrix", "win_probabilities", "win_tables"]

_STEPS, _TOLERANCE = 200, 1e-9


def win_tables(arena: Arena, points: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Wins of each model against each other model; a tie is half a win for both.

    Args:
        arena: N battles of M models.
        points: (N,), see `Arena`; NaN is left out.
        weights: how often each of R resamples holds each battle, (R, N); None is one table of all battles.

    Returns:
        (R, M, M): entry i, j has the wins of i against j; a battle counts as much as its weight in the arena says.

    Example:
        >>> arena = Arena.of([("1", "x", "y", ""), ("2", "y", "x", "")])
        >>> win_tables(arena, np.array([1, 0.5]))[0].tolist()
        [[0.0, 1.5], [0.5, 0.0]]
    """
    from scipy.sparse import csr_array

    count = len(arena.systems)
    decided = ~np.isnan(points)
    (first, second), won = arena.pairs[decided].T, points[decided]
    rows = np.arange(len(won))
    cells = np.concatenate([first * count + second, second * count + first])
    table = csr_array(
        (np.concatenate([won, 1 - won]), (np.concatenate([rows, rows]), cells)), shape=(len(won), count * count)
    )
    drawn = np.ones((1, len(won))) if weights is None else np.asarray(weights, dtype=np.float64)[:, decided]
    if arena.weights is not None:
        drawn = drawn * arena.weights[decided]
    return (drawn @ table).reshape(len(drawn), count, count)


def fit_strengths(wins: np.ndarray, *, prior: float = 0.0) -> np.ndarray:
    """Strengths under which the wins are most likely: i beats j with probability 1 / (1 + exp(s_j - s_i)).

    The maximum exists if a chain of "took points from" leads from every model to every other one. Otherwise the
    strengths of the largest set of such models are fitted. Of the others, a model from which a chain leads to the set
    gets infinity, one to which a chain leads from the set minus infinity, and one that is neither NaN. Where no two
    models are linked both ways, those that never lost get infinity, those that never won minus infinity, others NaN.

    Args:
        wins: (R, M, M) of `win_tables`.
        prior: games of each model with an average one, half of them won, to add. Above 0, all strengths are finite
            and closer to each other.

    Returns:
        (R, M), the finite ones with mean 0 in each row.

    Source: Bradley and Terry, "Rank analysis of incomplete block designs", 1952; Ford, "Solution of a ranking problem
    from binary comparisons", 1957, for when there is a maximum.

    Example:
        >>> fit_strengths(np.array([[[0.0, 3.0], [1.0, 0.0]]])).round(4).tolist()  # half of log 3
        [[0.5493, -0.5493]]
    """
    wins = np.asarray(wins, dtype=np.float64)
    if prior > 0:
        every = np.ones(wins.shape[:2], dtype=bool)
        return _centred(_newton(wins, every, prior), every)
    fitted, placed = _main_sets(wins, _reached(wins))
    return np.where(fitted, _centred(_newton(wins, fitted, 0.0), fitted), placed)


def win_probabilities(strengths: np.ndarray) -> np.ndarray:
    """Chance (..., M, M) that i beats j, from finite strengths (..., M)."""
    from scipy.special import expit

    return expit(strengths[..., :, None] - strengths[..., None, :])


def information_matrix(games: np.ndarray, strengths: np.ndarray, *, prior: float = 0.0) -> np.ndarray:
    """Observed information of finite strengths: the negative second derivative of the log likelihood.

    Args:
        games: battles of each pair, (..., M, M), symmetric.
        strengths: (..., M).
        prior: see `fit_strengths`.

    Returns:
        (..., M, M). Without a prior each row sums to 0, since the level of the strengths is free.
    """
    chance = win_probabilities(strengths)
    weight = games * chance * (1 - chance)
    own = weight.sum(axis=-1)
    if prior > 0:
        average = _against_average(strengths)
        own = own + prior * average * (1 - average)
    result: np.ndarray = np.eye(strengths.shape[-1]) * own[..., None] - weight
    return result


def _against_average(strengths: np.ndarray) -> np.ndarray:
    """Chance to beat a model of strength 0."""
    from scipy.special import expit

    return expit(strengths)


def _reached(wins: np.ndarray) -> np.ndarray:
    """Whether a chain of "took points from" leads from i to j: (R, M, M), true on the diagonal."""
    linked = (wins > 0) | np.eye(wins.shape[-1], dtype=bool)
    for _ in range(max(1, wins.shape[-1].bit_length())):
        linked = (linked.astype(np.float32) @ linked.astype(np.float32)) > 0
    return linked


def _main_sets(wins: np.ndarray, above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which strengths are finite, (R, M), and the values of all others: infinity, minus infinity or NaN, (R, M)."""
    mutual = above & above.swapaxes(1, 2)
    games = wins.sum(axis=2) + wins.sum(axis=1)
    size = mutual.sum(axis=2) + games / (games.sum(axis=1, keepdims=True) + 1)  # the fraction decides between equals
    head = size.argmax(axis=1)
    every = np.arange(len(wins))
    fitted = mutual[every, head] & (mutual[every, head].sum(axis=1, keepdims=True) > 1)
    has_main = fitted.any(axis=1, keepdims=True)
    won, lost = wins.sum(axis=2) > 0, wins.sum(axis=1) > 0
    upper = np.where(has_main, above[every, :, head], won & ~lost)
    lower = np.where(has_main, above[every, head], lost & ~won)
    return fitted, np.where(upper, np.inf, np.where(lower, -np.inf, np.nan))


def _newton(wins: np.ndarray, fitted: np.ndarray, prior: float) -> np.ndarray:
    """Newton's method on all tables at once; no difference of two strengths changes by more than 1 in a step.

    Over such a step the curvature of the log likelihood changes by a factor of at most e, so every step improves it.
    """
    inside = fitted[:, :, None] & fitted[:, None, :]
    wins = np.where(inside, wins, 0.0)
    games = wins + wins.swapaxes(1, 2)
    strengths = np.zeros(wins.shape[:2])
    if not strengths.size:
        return strengths
    # The likelihood does not depend on the mean of the strengths: this term fixes it, and leaves the others out.
    fixed = inside + np.eye(wins.shape[-1]) * ~fitted[:, :, None]
    for _ in range(_STEPS):
        slope = (wins - games * win_probabilities(strengths)).sum(axis=2)
        curvature = information_matrix(games, strengths, prior=prior)
        if prior > 0:
            slope = slope + prior * (0.5 - _against_average(strengths))
        else:
            curvature = curvature + fixed
        step = np.linalg.solve(curvature, slope[..., None])[..., 0]
        step = step / np.maximum(step.max(axis=1) - step.min(axis=1), 1)[:, None]
        strengths = strengths + step
        if np.abs(step).max(initial=0) < _TOLERANCE:
            break
    return strengths


def _centred(strengths: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Strengths whose mean over the fitted models is 0 in each row."""
    count = np.maximum(fitted.sum(axis=1), 1)
    return strengths - (strengths * fitted).sum(axis=1, keepdims=True) / count[:, None]
