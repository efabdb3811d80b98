"""ClippedReward and SigmoidReward: one reward on another scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reward.errors import ConfigError, InvalidSampleError
from reward.functions.combination import Call, Combination, range_of
from reward.functions.gating import logistic
from reward.functions.wrappers import rates_captions
from reward.samples import CaptionSample

__all__ = ["ClippedReward", "SigmoidReward"]


class ClippedReward(Combination):
    """A reward cut at a lowest and a highest value: beyond, there is nothing more to gain or to lose.

    `<name>/clipped` is the share of captions that were cut.

    Args:
        reward: see `Combination`.
        low, high: the ends; None leaves that side open.
        name: default: `clipped` and the name of the part.

    Raises:
        ConfigError: no end, low >= high, or ends between which no reward lies.

    Example:
        >>> def words(completions, **kwargs):
        ...     return [float(len(text.split())) for text in completions]
        >>> ClippedReward(words, high=3)(["p"] * 2, ["A star.", "A red star on grass."])
        [2.0, 3.0]
    """

    def __init__(
        self,
        reward: Callable[..., Any],
        low: float | None = None,
        high: float | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__([reward], "clipped", name)
        self.low, self.high = -math.inf if low is None else low, math.inf if high is None else high
        if (low is None and high is None) or not self.low < self.high:
            raise ConfigError(f"clipping needs low, high, or both with low < high, got low={low}, high={high}")
        least, most = range_of(reward)
        if self.low >= most or self.high <= least:
            raise ConfigError(
                f"{self.part_names[0]!r} lies in [{least:g}, {most:g}], so that all rewards would be the same between "
                f"low={low} and high={high}"
            )

    @property
    def range(self) -> tuple[float, float]:
        """The ends, and where one is open that of the part."""
        low, high = range_of(self.parts[0])
        return float(max(low, self.low)), float(min(high, self.high))

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        clipped = table[:, 0].clip(self.low, self.high)
        if len(rows):
            call.log("clipped", float((clipped != table[:, 0]).mean()))
        return clipped


class SigmoidReward(Combination):
    """How far a caption beats the row's reference captions, in (0, 1): the mean of sigmoid(k * (reward - reference's)).

    Source: PAR, "Reward Shaping to Mitigate Reward Hacking in RLHF" (2025). A caption as good as the reference gets .5.
    Far above the reference, where policies exploit the metric, a higher reward adds almost nothing. A trainer that
    divides by the standard deviation of each group undoes this: set `scale_rewards="batch"` or `"none"`.

    At every call, the same reward scores each reference as a caption of the row's image, with the other references as
    its references. With a slow reward, score the references once and name the column of their scores. They must be
    captions that a good policy would write; samples of the policy before training serve as well.

    Besides what every combination logs: `<name>/above`, the share of captions above the mean of their references.

    Args:
        reward: see `Combination`; without `scores_column` it must also rate captions by themselves, see
            `rates_captions`.
        k: steepness, above 0. It must fit the scale of the reward: with k=10, a lead of .1 gives .73.
        scores_column: column of the references' scores, a number or a list of them for each row.
        image_column, references_column: where they are, as in `MetricReward`; None takes what a MetricReward was given.
        name: default: `sigmoid` and the name of the part.

    Raises:
        ConfigError: at construction, a bad k or a reward that cannot rate references; in a call, no such column.
        InvalidSampleError: in the first call, if no row has a reference that can be scored.

    Example:
        >>> from reward import MetricReward
        >>> reward = SigmoidReward(MetricReward("length"), k=1.0)
        >>> reward(["p"], ["A red star."], references=[["A star now."]])
        [0.5]
    """

    def __init__(
        self,
        reward: Callable[..., Any],
        *,
        k: float = 10.0,
        scores_column: str | None = None,
        image_column: str | None = None,
        references_column: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__([reward], "sigmoid", name)
        if not 0 < k < math.inf:
            raise ConfigError(f"k must be a number above 0, got {k!r}")
        if scores_column is None:
            rates_captions(reward)  # refuses what cannot rate references
        self.k, self.scores_column = k, scores_column
        whole = getattr(reward, "whole", reward)  # an aspect's columns are those of its metric
        self.columns = {
            "image_column": image_column or getattr(whole, "image_column", None),
            "references_column": references_column or getattr(whole, "references_column", None),
        }
        self._is_first_call = True

    @property
    def range(self) -> tuple[float, float]:
        """0 and 1, which are not reached."""
        return 0.0, 1.0

    def combine(self, table: np.ndarray, rows: np.ndarray, call: Call) -> np.ndarray:
        """See `Combination`."""
        known = self._scores_given(rows, call) if self.scores_column else self._scores_of_references(rows, call)
        missing = [not scores for scores in known]
        if self._is_first_call and len(rows):
            if all(missing):
                where = f"column {self.scores_column!r}" if self.scores_column else "the references of the rows"
                raise InvalidSampleError(
                    f"{self.__name__}: no row of the first call has a reference's score from {where}. Give "
                    "references_column= or scores_column=, and references that the reward can score"
                )
            self._is_first_call = False
        shaped, above = np.full(len(rows), math.nan), []
        for place, (value, scores) in enumerate(zip(table[:, 0], known, strict=True)):
            if scores:
                shaped[place] = logistic(self.k * (value - np.array(scores))).mean()
                above.append(value > np.mean(scores))
        if above:
            call.log("above", float(np.mean(above)))
        return shaped

    def _scores_of_references(self, rows: np.ndarray, call: Call) -> list[list[float]]:
        read = call.read(**self.columns)
        samples, owners = [], []
        for place, row in enumerate(rows):
            references = list(read[row].references or ())
            for number, reference in enumerate(references):
                others = references[:number] + references[number + 1 :]
                samples.append(CaptionSample(reference, read[row].image, others))
                owners.append(place)
        known: list[list[float]] = [[] for _ in rows]
        for place, score in zip(owners, rates_captions(self.parts[0]).rewards(samples), strict=True):
            if score is not None:
                known[place].append(score)
        return known

    def _scores_given(self, rows: np.ndarray, call: Call) -> list[list[float]]:
        if call.columns is None or self.scores_column not in call.columns:
            raise ConfigError(
                f"{self.__name__}: there is no column {self.scores_column!r} with the scores of references; the "
                f"columns are: {', '.join(call.columns or {}) or 'none'}. Without scores_column= they are scored anew"
            )
        cells: Sequence[Any] = call.columns[self.scores_column]
        if len(cells) != len(call.prompts):
            raise InvalidSampleError(
                f"column {self.scores_column!r} has {len(cells)} values for {len(call.prompts)} completions"
            )
        given = [cells[row] for row in rows]
        lists = [cell if isinstance(cell, (list, tuple)) else [cell] for cell in given]
        return [[float(score) for score in each if score is not None and math.isfinite(score)] for each in lists]
