"""ScoreTable: the scores of some captions, in the order in which they were given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.aspect_weights import list_names, normalise_weights
from reward.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

_ROWS_OF_REPR = 10  # at most


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable:
    """Scores of N samples on A aspects, in the order of the samples; larger is better.

    `table.mean()` is its mean reward, `table["relevance"]` a column, `table[0]` a row, `table.to_pandas()` a DataFrame.

    Args:
        scores: float array (N, A); NaN where a sample could not be scored.
        aspects: A names, in the order of the columns.
        errors: {row: message} for every row that holds NaN, and for one that lacks a text it was to have.
        truncated: bool array (N,): True where some text of the sample was cut to fit the model.
        aliases: {short name: aspect}, accepted by `column` and `combine`. A metric's tables have those of its `spec`.
        texts: {name: a text or None of each sample}, such as a judge's explanations.
        default_weights: {aspect: weight} of the column `reward`; None weighs all aspects alike.
        index: labels of the rows of a DataFrame that was scored, for `to_pandas`; None numbers them.

    Example:
        >>> table = ScoreTable(np.array([[0.2, 0.8]]), ("descriptiveness", "relevance"), aliases={"rel": "relevance"})
        >>> float(table.combine({"rel": 1.0})[0]), float(table["rel"][0]), table.mean()
        (0.8, 0.8, 0.5)
        >>> table
        ScoreTable of 1 sample, all scored
              descriptiveness  relevance  reward
        0                 0.2        0.8     0.5
        mean              0.2        0.8     0.5
    """

    scores: np.ndarray
    aspects: tuple[str, ...]
    errors: dict[int, str] = field(default_factory=dict)
    truncated: np.ndarray = None  # type: ignore[assignment]  # __post_init__ makes it an array
    aliases: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict, kw_only=True)
    default_weights: Mapping[str, float] | None = field(default=None, kw_only=True)
    index: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != len(self.aspects):
            raise ValueError(f"scores must have shape (N, {len(self.aspects)}), got {scores.shape}")
        object.__setattr__(self, "scores", scores)
        truncated = np.zeros(len(scores), dtype=bool)
        if self.truncated is not None:
            truncated = np.asarray(self.truncated, dtype=bool)
        if truncated.shape != (len(scores),):
            raise ValueError(f"truncated must have shape ({len(scores)},), got {truncated.shape}")
        object.__setattr__(self, "truncated", truncated)

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, see `__getitem__`."""
        return (self[row] for row in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a ScoreTable has no {name!r}: its numbers are in .scores, table[aspect], .to_pandas()")

    def __getitem__(self, key: str | int | slice) -> Any:
        """A column (N,) by its name, `"reward"` included; or a row by its number, or rows.

        A row is {aspect: score, "reward": score, "truncated": bool, "error": message or None}, with its texts.
        """
        if key == "reward" and "reward" not in self.aspects:
            return self.reward
        if isinstance(key, str):
            return self.column(key)
        if isinstance(key, slice):
            return [self[row] for row in range(len(self))[key]]
        row = range(len(self))[key]
        weights = normalise_weights(self.default_weights, self.aspects, self.aliases)
        return {
            "reward": float(weighted_mean(self.scores[[row]], weights)[0]),
            **dict(zip(self.aspects, self.scores[row].tolist(), strict=True)),
            **{name: column[row] for name, column in self.texts.items()},
            "truncated": bool(self.truncated[row]),
            "error": self.errors.get(row),
        }

    def __repr__(self) -> str:
        unscored = int(np.isnan(self.reward).sum())
        scored = f"{unscored} of them without a score" if unscored else "all scored"
        samples = "sample" if len(self) == 1 else "samples"
        lines = [f"ScoreTable of {len(self)} {samples}, {scored}", *self._aligned()]
        if self.truncated.any():
            lines.append(f"{self.truncated.sum()} had text cut to fit the model")
        lines += [f"row {row}: {self.errors[row]:.200}" for row in sorted(self.errors)[:3]]
        if len(self.errors) > 3:
            lines.append(f"and {len(self.errors) - 3} more errors, see .errors")
        return "\n".join(lines)

    def _aligned(self) -> list[str]:
        """The names of the columns, the first rows and the means, as lines of equal width."""
        names = list(self.aspects)
        if len(names) > 1:  # the reward would repeat the only one
            names.append("reward")
        rows = [["", *names]]
        for row in range(min(len(self), _ROWS_OF_REPR)):
            rows.append([str(row), *[_number(self[name][row]) for name in names]])
        if len(self) > _ROWS_OF_REPR:
            rows.append(["...", *[""] * len(names)])
        rows.append(["mean", *[_number(self.mean(name)) for name in names]])
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = []
        for label, *numbers in rows:
            cells = [label.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
            lines.append("  ".join(cells).rstrip())
        return lines

    @property
    def reward(self) -> np.ndarray:
        """The mean of the aspects by the metric's own weights, shape (N,)."""
        return self.combine(self.default_weights)

    def mean(self, aspect: str = "reward") -> float:
        """Mean of the rewards, or of an aspect, over the samples that have one; NaN if none has."""
        column = self[aspect]
        scores = column[np.isfinite(column)]
        return float(scores.mean()) if len(scores) else float("nan")

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame of the rows, with the index of the DataFrame that was scored, if it was one."""
        import pandas as pd

        columns = {
            "reward": self.reward,
            **{aspect: self.column(aspect) for aspect in self.aspects},
            **self.texts,
            "truncated": self.truncated,
            "error": [self.errors.get(row) for row in range(len(self))],
        }
        return pd.DataFrame(columns, index=self.index)

    def column(self, aspect: str) -> np.ndarray:
        """Scores of one aspect, by its name or its short name, shape (N,); raises ConfigError if there is none."""
        name = self.aliases.get(aspect, aspect)
        if name not in self.aspects:
            raise ConfigError(f"no aspect is named {aspect!r}; known: {list_names(self.aspects, self.aliases)}")
        return self.scores[:, self.aspects.index(name)]

    def combine(self, weights: Mapping[str, float] | None = None) -> np.ndarray:
        """Mean over the aspects by `normalise_weights(weights)`, shape (N,); NaN where a weighted aspect is NaN."""
        return weighted_mean(self.scores, normalise_weights(weights, self.aspects, self.aliases))


def weighted_mean(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean (N,) of the columns of scores (N, A) by weights that sum to 1; NaN where a weighted column is NaN."""
    used = weights != 0  # a column without weight must not spread its NaN
    return scores[:, used] @ weights[used]


def weighted_range(weights: Sequence[float] | np.ndarray, ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Lowest and highest weighted sum of numbers that lie in the given ranges.

    Example:
        >>> weighted_range([2, -1, 0], [(0, 1), (0, 10), (0, float("inf"))])
        (-10.0, 2.0)
    """
    lowest = highest = 0.0
    for weight, (low, high) in zip(weights, ranges, strict=True):
        if weight != 0:  # 0 times infinity is no number
            lowest += min(weight * low, weight * high)
            highest += max(weight * low, weight * high)
    return float(lowest), float(highest)


def rewards_of_rows(
    scores: np.ndarray,
    weights: np.ndarray,
    bounds: tuple[float, float],
    *,
    is_wordless: Sequence[bool] | np.ndarray,
    is_complete: Sequence[bool] | np.ndarray,
    whole_call: bool = True,
) -> np.ndarray:
    """What each row gets as its reward: the one rule for trainers, services and files.

    A row that lacks what its metric needs gets none. A caption without a word gets the lowest reward that the metric
    can give, or of the call where there is no bound; with none instead, a policy could avoid a low reward by writing
    nothing. All others get the weighted mean of their scores.

    Args:
        scores: (N, A); NaN where there is none.
        weights: (A,), of the aspects in the reward.
        bounds: lowest and highest score of an aspect, infinite without a bound.
        is_wordless: N flags, whether the caption has no letter and no number, see `reward.data.samples.is_wordless`.
        is_complete: N flags, whether the row has the picture, the references and the columns that the metric needs.
        whole_call: whether these are all rows of the call. Without, the rows that get the lowest of the call have
            -inf, until all of it is there, see `fill_lowest`.

    Returns:
        Rewards (N,), NaN for a row without one.

    Example:
        >>> scores = np.array([[0.5], [0.1], [np.nan]])
        >>> is_wordless, is_complete = [False, True, True], [True, True, False]
        >>> rewards_of_rows(scores, np.ones(1), (0, 1), is_wordless=is_wordless, is_complete=is_complete)
        array([0.5, 0. , nan])
    """
    rewards = weighted_mean(scores, weights)
    wordless = np.array(is_wordless, dtype=bool)
    complete = np.array(is_complete, dtype=bool)
    rewards[~np.isfinite(rewards) | ~complete] = np.nan
    if not (wordless & complete).any():
        return rewards
    # Without a bound this is -inf, in whose place `fill_lowest` puts the lowest of the call. The scores that the metric
    # itself gave to these captions do not count there.
    rewards[wordless & complete], _ = weighted_range(weights, [bounds] * len(weights))
    return fill_lowest(rewards) if whole_call else rewards


def fill_lowest(rewards: np.ndarray) -> np.ndarray:
    """Rewards (N,) of a whole call, with the lowest of them in place of -inf; NaN where no row has one.

    Example:
        >>> fill_lowest(np.array([0.5, -np.inf, np.nan]))
        array([0.5, 0.5, nan])
    """
    finite = rewards[np.isfinite(rewards)]
    lowest = finite.min() if len(finite) else np.nan
    return np.where(np.isneginf(rewards), lowest, rewards)


def _number(score: float) -> str:
    return "-" if np.isnan(score) else f"{score:.4g}"
