"""Whether one metric agrees with people better than another: paired bootstrap and paired permutation test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reward.metaeval.benchmarks.forms import Benchmark
from reward.metaeval.columns import Scores, checked_scores, checked_statistic, make_table, with_mean
from reward.metaeval.intervals import RESAMPLES, Interval, percentile_interval
from reward.metaeval.resampling import draw_clusters

__all__ = ["Difference", "compare", "holm"]


@dataclass(frozen=True)
class Difference:
    """What `compare` found; columns are those of `Evaluation.estimates`.

    Args:
        statistic: which one.
        first, second: {column: the metric's value}, on the items that both have scored.
        differences: {column: first minus second, with the 95 % interval of the paired bootstrap}.
        p_values: {column: two-sided p of the paired permutation test}.
        headline: the column to rank metrics by.
        scored: items that both have scored.
        items: items of the benchmark.
    """

    statistic: str
    first: dict[str, float]
    second: dict[str, float]
    differences: dict[str, Interval]
    p_values: dict[str, float]
    headline: str
    scored: int
    items: int


def compare(
    benchmark: Benchmark,
    first_scores: Scores,
    second_scores: Scores,
    *,
    statistic: str | None = None,
    resamples: int = RESAMPLES,
    permutations: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Difference between two metrics on a benchmark, on the items that both have scored.

    The bootstrap draws whole images, the same for both metrics. The permutation test exchanges what the two metrics
    say of an image, for each image with probability 1/2, and asks how often the difference is then as large as it is.
    Scores are first put on one scale: ranks, or z-scores for Pearson's correlation; where each item is right or wrong,
    that is what is exchanged.

    Args:
        benchmark, first_scores, second_scores, statistic: as for `evaluate`.
        resamples: of the bootstrap.
        permutations: R of the test, whose p is (1 + number as large) / (1 + R).
        seed: of both.

    Raises:
        ValueError: as for `evaluate`, or no item has scores of both.

    Source: Deutsch, Dror, Roth, "A Statistical Analysis of Summarization Evaluation Metrics Using Resampling Methods",
        2021, for the permutation of standardised scores (PERM-BOTH).

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=40)
        >>> human = {name: np.array([[sum(item.ratings[name])] for item in scenes.items]) for name in scenes.aspects}
        >>> chance = np.random.default_rng(0).normal(size=(40, 1))
        >>> compare(scenes, human, chance, resamples=99, permutations=99).p_values["mean"]
        0.01
    """
    statistic = checked_statistic(benchmark, statistic)
    given = [
        checked_scores(benchmark, first_scores, "the first metric's scores"),
        checked_scores(benchmark, second_scores, "the second metric's scores"),
    ]
    for name in given[0]:
        lost = np.isnan(given[0][name]).any(axis=1) | np.isnan(given[1][name]).any(axis=1)
        for scores in given:
            scores[name] = _scaled(np.where(lost[:, None], np.nan, scores[name]), statistic)
    first, second = (make_table(benchmark, scores, statistic) for scores in given)
    clusters = len(first.strata)
    weights = np.concatenate([np.ones((1, clusters)), draw_clusters(first.strata, resamples=resamples, seed=seed)])
    values = [table.resampled(weights) for table in (first, second)]
    differences = {name: values[0][name] - values[1][name] for name in values[0]}
    swapped = np.random.default_rng((seed, 1)).integers(0, 2, (permutations, clusters)).astype(np.float64)
    kept = 1 - swapped
    pooled = {name: column.joined(second.columns[name], clusters) for name, column in first.columns.items()}
    permuted = with_mean(
        {
            name: column.resampled(np.hstack([kept, swapped])) - column.resampled(np.hstack([swapped, kept]))
            for name, column in pooled.items()
        },
        first.averaged,
    )
    return Difference(
        statistic=statistic,
        first={name: float(found[0]) for name, found in values[0].items()},
        second={name: float(found[0]) for name, found in values[1].items()},
        differences={name: percentile_interval(found[0], found[1:]) for name, found in differences.items()},
        p_values={name: _p_value(found[0], permuted[name]) for name, found in differences.items()},
        headline=first.headline,
        scored=first.scored,
        items=len(benchmark.items),
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values of several comparisons, corrected by Holm's method so that all hold together.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected, largest = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = min(1.0, max(largest, (len(p_values) - place) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def _p_value(difference: float, permuted: np.ndarray) -> float:
    as_large = np.abs(permuted) >= abs(difference) - 1e-12  # rounding makes no difference smaller
    return float((1 + as_large.sum()) / (1 + len(permuted)))


def _scaled(scores: np.ndarray, statistic: str) -> np.ndarray:
    """Scores on the scale on which two metrics are exchanged."""
    from scipy.stats import rankdata

    if statistic == "pearson":
        return (scores - np.nanmean(scores)) / (np.nanstd(scores) or 1)
    if statistic in ("tau-b", "tau-c", "spearman", "auc", "ap"):
        return rankdata(scores, axis=None, nan_policy="omit").reshape(scores.shape)
    return scores
