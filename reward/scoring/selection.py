"""Which rows of a scored data set are written: the best, those above a reward, and each caption of an image once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reward.errors import ConfigError


@dataclass(frozen=True)
class Selection:
    """What decides which rows an output has, once all of them are scored; their order stays.

    A row counts by its reward or, with a list of candidates, by that of the best. A row without one is left out. The
    three conditions hold in this order: the lowest reward, the first of equal rows, the best of what is left.

    Args:
        top: how many rows, or a share of those that are left, as in `"30%"`, rounded, at least one; of equal rewards
            those that come first in the input.
        min_reward: the lowest reward.
        dedupe: whether of the rows with one image and the same captions only the first is written.

    Raises:
        ConfigError: `top` is no number of rows and no share.

    Example:
        >>> Selection(top="50%").rows([0.1, None, 0.9, 0.5, 0.3], []).tolist()
        [False, False, True, True, False]
        >>> Selection(min_reward=0.3, dedupe=True).rows([0.1, 0.4, 0.4], ["a", "b", "b"]).tolist()
        [False, True, False]
    """

    top: str | int | None = None
    min_reward: float | None = None
    dedupe: bool = False

    def __post_init__(self) -> None:
        if self.top is not None:
            self._count(1)
        if self.min_reward is not None and not np.isfinite(self.min_reward):
            raise ConfigError(f"min_reward (--min-reward) must be a number, got {self.min_reward!r}")

    @property
    def is_empty(self) -> bool:
        """Whether all rows are written."""
        return self == Selection()

    def to_json(self) -> dict[str, Any]:
        """Plain values for the description of a run."""
        return asdict(self)

    def rows(self, rewards: Sequence[float | None], identities: Iterable[str]) -> np.ndarray:
        """Whether each row is written (N,).

        Args:
            rewards: of the N rows.
            identities: what a row shares with those that are equal to it; read only to find these.
        """
        numbers = np.array(rewards, dtype=float)
        is_selected = np.isfinite(numbers)
        if self.min_reward is not None:
            is_selected &= numbers >= self.min_reward
        if self.dedupe:
            seen: set[str] = set()
            for row, identity in enumerate(identities):
                is_selected[row] &= identity not in seen
                if is_selected[row]:
                    seen.add(identity)
        if self.top is not None:
            # A stable sort leaves equal rewards in the order of the input.
            numbers[~is_selected] = -np.inf
            best = np.argsort(-numbers, kind="stable")[: self._count(int(is_selected.sum()))]
            is_selected &= np.isin(np.arange(len(numbers)), best)
        return is_selected

    def _count(self, rows: int) -> int:
        """How many of some rows `top` means."""
        text = str(self.top).strip()
        number = text.removesuffix("%").strip()
        try:
            if text.endswith("%") and 0 < float(number) <= 100:
                return max(1, round(rows * float(number) / 100))
            if int(number) > 0 and not text.endswith("%"):
                return int(number)
        except ValueError:
            pass
        raise ConfigError(f"top (--top) is a number of rows or a share, as in 1000 or 30%, got {self.top!r}")
