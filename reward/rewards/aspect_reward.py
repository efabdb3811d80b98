"""AspectReward: one aspect of a metric's reward as a reward function of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reward.aspect_weights import normalise_weights
from reward.rewards.completions import Row

if TYPE_CHECKING:
    from typing_extensions import Self

    from reward.rewards.metric_reward import MetricReward
    from reward.samples import CaptionSample
    from reward.score_table import ScoreTable


@dataclass
class Pass:
    """What a call found, with the lists that it was given, and the aspects for which it was taken.

    A trainer gives the same lists to all rewards of a step.
    """

    call: tuple[Any, ...]
    rows: list[Row]
    table: ScoreTable
    taken: set[str]

    def serves(self, call: tuple[Any, ...], aspect: str) -> bool:
        """Whether an aspect may take it: once, since lists that it is given again may hold other rows by then."""
        is_same = len(call) == len(self.call) and all(map(operator.is_, call, self.call))
        serves = is_same and aspect not in self.taken
        self.taken.add(aspect)
        return serves


class AspectReward:
    """One aspect of a MetricReward as a reward function of its own; see `MetricReward.aspects`."""

    __name__: str  # trainers read it from the instance

    def __init__(self, whole: MetricReward, aspect: str) -> None:
        self.whole = whole
        self.aspect = aspect
        self.__name__ = f"{whole.__name__}_{aspect}"

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Rewards of the completions by this aspect; the trainer logs their mean itself.

        The shares `<name>/unscored` and `<name>/truncated` are logged under the name of the whole reward.
        """
        rows, table = self.whole._rate_call(prompts, completions, columns, self.aspect)
        if log_metric is not None:
            self.whole._log_shares(table, log_metric)
        return self._pick(rows, table)

    def load(self) -> Self:
        """Loads the model of the whole reward now, see `MetricReward.load`."""
        self.whole.load()
        return self

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Scores of this aspect for valid samples, None where there is none."""
        return self._pick(*self.whole._rate_samples(samples, self.aspect))

    def reason(self, sample: CaptionSample) -> str | None:
        """Why a valid sample has no score; None if it has one."""
        return self.whole.reason(sample)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest score of the aspect."""
        return self.whole.spec.range

    def _pick(self, rows: list[Row], table: ScoreTable) -> list[float | None]:
        return self.whole._combine(rows, table, normalise_weights({self.aspect: 1.0}, table.aspects))
