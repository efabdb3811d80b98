"""LengthReward and RepetitionReward: rewards of the words alone, for use beside a metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from reward.data.held_data import TakesData
from reward.data.samples import CaptionSample
from reward.data.score_table import ScoreTable
from reward.data.words import count_words, words_of
from reward.errors import ConfigError
from reward.metrics.base import MetricSpec
from reward.rewards.metric_reward import MetricReward


class LengthReward(MetricReward):
    """1 for captions whose length lies in a band, falling in a straight line to 0 over a margin on either side.

    Lengths are words, as the metric `length` counts them. With `relative=True` they are divided by the mean length of
    the row's references: `LengthReward(0.5, 2, relative=True)` is the rule of BalCapRL (2026). A caption without a
    word gets 0.

    Args:
        low, high: the band, ends included; None leaves that side open.
        margin: width of the slopes; 0 makes cliffs, on which a policy cannot find its way back.
        relative: whether lengths are relative to the references. A row without references then gets None.
        name: in the logs, `length_band` by default.
        options: further arguments of `MetricReward`: references_column, strip_thinking, on_error.

    Example:
        >>> reward = LengthReward(2, 4, margin=2)
        >>> reward(["Describe."] * 3, ["A star.", "A red star on grass.", "Star. " * 9])
        [1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        low: float | None = None,
        high: float | None = None,
        *,
        margin: float = 0.0,
        relative: bool = False,
        name: str = "length_band",
        **options: Any,
    ) -> None:
        if low is None and high is None:
            raise ConfigError("a LengthReward needs low, high or both: without, every length is as good")
        shortest = 0.0 if low is None else low
        longest = math.inf if high is None else high
        if not 0 <= shortest <= longest or longest == 0 or not 0 <= margin < math.inf:
            raise ConfigError(
                f"a LengthReward needs 0 <= low <= high, high > 0 and margin >= 0, got low={low}, high={high}, "
                f"margin={margin}"
            )
        rate = partial(_in_band, low=shortest, high=longest, margin=margin, relative=relative)
        super().__init__(_TextScorer("length_band", rate, needs_references=relative), name=name, **options)


def _in_band(text: str, references: Sequence[str], *, low: float, high: float, margin: float, relative: bool) -> float:
    length = float(count_words(text))
    if relative:
        length /= float(np.mean([count_words(reference) for reference in references]))
    distance = max(low - length, length - high)  # to the band
    if distance <= 0:
        return 1.0
    if margin == 0:
        return 0.0
    return max(0.0, 1 - distance / margin)


class RepetitionReward(MetricReward):
    """The share of distinct n-grams in a caption: 1 if none is repeated, less if words are repeated.

    Over a whole caption this share falls with length, even for good text. It is therefore the mean over windows of
    `window` words, which does not detect repetition at a greater distance. A caption without a word gets 0.

    Args:
        n: words of an n-gram, see `reward.data.words.words_of`; case and punctuation do not count. A caption with fewer
            words gets 1.
        window: words of a window, at least n. A shorter caption is one window.
        name: in the logs, `repetition` by default.
        options: further arguments of `MetricReward`: strip_thinking, on_error.

    Example:
        >>> RepetitionReward(n=2)(["Describe."] * 2, ["A red star on grass.", "The star, the star, the star."])
        [1.0, 0.4]
    """

    def __init__(self, n: int = 2, *, window: int = 40, name: str = "repetition", **options: Any) -> None:
        if n < 1 or window < n:
            raise ConfigError(f"a RepetitionReward needs 1 <= n <= window, got n={n}, window={window}")
        rate = partial(_variety, n=n, window=window)
        super().__init__(_TextScorer("repetition", rate, needs_references=False), name=name, **options)


def _variety(text: str, references: Sequence[str], *, n: int, window: int) -> float:
    words = words_of(text)
    if min(len(words), window) < n:
        return 1.0
    # An n-gram counts in every window that holds it whole; a shorter caption is one window.
    grams = [tuple(words[start : start + n]) for start in range(len(words) - n + 1)]
    count = min(window, len(words)) - n + 1  # n-grams of a window
    shares = []
    for start in range(len(grams) - count + 1):
        different = set(grams[start : start + count])
        shares.append(len(different) / count)
    return float(np.mean(shares))


class _TextScorer(TakesData):
    """The scorer behind such a reward; it has settings of its own, so it is no metric by name."""

    def __init__(self, name: str, rate: Callable[[str, Sequence[str]], float], needs_references: bool) -> None:
        self.rate = rate
        self.spec = MetricSpec(
            name, f"{__name__}:_TextScorer", (name,), needs_image=False, needs_references=needs_references
        )

    def score_samples(
        self, samples: list[CaptionSample], batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        scores = [[self.rate(sample.candidate, sample.references)] for sample in samples]
        return ScoreTable(np.array(scores, dtype=np.float64).reshape(-1, 1), self.spec.aspects)
