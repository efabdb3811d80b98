"""Whether a metric agrees better with people than another metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reward.metaeval.benchmarks.items import Benchmark
from reward.metaeval.bootstrap import RESAMPLES, Interval, p_value
from reward.metaeval.evaluation import Evaluation, Scores, check_scores, evaluate


@dataclass(frozen=True)
class Difference:
    """Difference between two metrics, as `compare` returns it; the columns are those of `Evaluation.estimates`.

    Args:
        differences: {column: first minus second, with the 95 % interval of the paired bootstrap}.
        p_values: {column: two-sided p, see `reward.metaeval.bootstrap.p_value`}; NaN without an interval.
        headline: the column to rank metrics by.
        scored: number of items that count and that both have scored.
    """

    differences: dict[str, Interval]
    p_values: dict[str, float]
    headline: str
    scored: int

    @classmethod
    def of(cls, first: Evaluation, second: Evaluation) -> Difference:
        """Of two evaluations of the same items with the same seed."""
        differences, p_values = {}, {}
        for name, values in first.replicates.items():
            gaps = values - second.replicates[name]
            differences[name], p_values[name] = Interval.of(gaps), p_value(gaps)
        return cls(differences, p_values, first.headline, first.scored)


def compare(
    benchmark: Benchmark, first_scores: Scores, second_scores: Scores, *, resamples: int = RESAMPLES, seed: int = 0
) -> Difference:
    """Difference between two metrics on a benchmark, on the items that both have scored.

    The paired bootstrap draws whole images, the same for both metrics.

    Args:
        benchmark: as for `evaluate`.
        first_scores, second_scores: of two metrics, as for `evaluate`.
        resamples, seed: of the bootstrap.

    Raises:
        ValueError: as for `evaluate`, or too few items have scores of both.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=40)
        >>> human = {name: np.array([sum(each[name]) for each in scenes.rows["ratings"]]) for name in scenes.aspects}
        >>> chance = np.random.default_rng(0).normal(size=(40, 1))
        >>> compare(scenes, human, chance, resamples=99).p_values["mean"]
        0.02
    """
    first, second = check_scores(benchmark, first_scores), check_scores(benchmark, second_scores)
    for name, scores in first.items():
        others = second[name]
        is_lost = np.isnan(scores).reshape(len(scores), -1).any(axis=1)
        is_lost |= np.isnan(others).reshape(len(others), -1).any(axis=1)
        scores[is_lost] = np.nan
        others[is_lost] = np.nan
    return Difference.of(
        evaluate(benchmark, first, resamples=resamples, seed=seed),
        evaluate(benchmark, second, resamples=resamples, seed=seed),
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Corrects the p-values of several comparisons by Holm's method, which bounds the chance of any false discovery.

    Args:
        p_values: {comparison: p in [0, 1]}.

    Returns:
        {comparison: corrected p}, in the same order.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = min(1.0, max(largest, (len(p_values) - rank) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}
