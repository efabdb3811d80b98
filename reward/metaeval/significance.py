"""Whether one metric agrees with people better than another: paired bootstrap and paired permutation test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reward.metaeval.benchmarks.forms import Benchmark
from reward.metaeval.columns import Scores, Table, check_scores, check_statistic, make_table, with_mean
from reward.metaeval.intervals import RESAMPLES, Interval
from reward.metaeval.resampling import draw_clusters

__all__ = ["Difference", "compare", "holm"]

_ROUNDING = 1e-12  # makes no difference smaller than another


@dataclass(frozen=True)
class Difference:
    """What `compare` found; columns are those of `Evaluation.estimates`.

    Args:
        statistic: which one.
        first, second: {column: the metric's value}, on the items that both have scored.
        differences: {column: first minus second, with the 95 % interval of the paired bootstrap}.
        p_values: {column: two-sided p of the paired permutation test}.
        headline: the column to rank metrics by.
        scored: items that count and that both have scored.
        items: items of the benchmark.
        images: different ones of the items that count; the bootstrap draws them, and the test exchanges them.
    """

    statistic: str
    first: dict[str, float]
    second: dict[str, float]
    differences: dict[str, Interval]
    p_values: dict[str, float]
    headline: str
    scored: int
    items: int
    images: int


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

    The paired bootstrap draws whole images, the same for both metrics. The paired permutation test exchanges what the
    two metrics say of an image, for each image with probability 1/2, and counts how often the difference is then at
    least as large as it is. For that, scores are first put on one scale: ranks, or z-scores for Pearson's correlation;
    where an item is right or wrong (accuracy, agreement, Winoground), that is what is exchanged.

    Args:
        benchmark, statistic: as for `evaluate`.
        first_scores, second_scores: of two metrics, as for `evaluate`.
        resamples: of the bootstrap.
        permutations: R of the test, whose p is (1 + number at least as large) / (1 + R).
        seed: of both.

    Raises:
        ValueError: as for `evaluate`, or too few items have scores of both.

    Source: Deutsch, Dror, Roth, "A Statistical Analysis of Summarization Evaluation Metrics Using Resampling Methods",
        2021, for permutations of standardised scores.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=40)
        >>> human = {name: np.array([[sum(item.ratings[name])] for item in scenes.items]) for name in scenes.aspects}
        >>> chance = np.random.default_rng(0).normal(size=(40, 1))
        >>> compare(scenes, human, chance, resamples=99, permutations=99).p_values["mean"]
        0.01
    """
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    statistic = check_statistic(benchmark, statistic)
    given = [
        check_scores(benchmark, first_scores, "the first metric's scores"),
        check_scores(benchmark, second_scores, "the second metric's scores"),
    ]
    for name in given[0]:
        lost = np.logical_or(*(np.isnan(scores[name]).any(axis=1, keepdims=True) for scores in given))
        for scores in given:
            scores[name] = _on_one_scale(np.where(lost, np.nan, scores[name]), statistic)
    first, second = (make_table(benchmark, scores, statistic) for scores in given)
    draws = draw_clusters(first.strata, resamples=resamples, seed=seed)
    weights = np.concatenate([np.ones_like(draws[:1]), draws])  # first each image once: the difference itself
    values = [table.resampled(weights) for table in (first, second)]
    differences = {name: values[0][name] - values[1][name] for name in values[0]}
    permuted = _permuted_differences(first, second, permutations, seed)
    return Difference(
        statistic=statistic,
        first={name: float(found[0]) for name, found in values[0].items()},
        second={name: float(found[0]) for name, found in values[1].items()},
        differences=first.intervals(differences),
        p_values={name: _p_value(found[0], permuted[name]) for name, found in differences.items()},
        headline=first.headline,
        scored=first.scored,
        items=len(benchmark.items),
        images=len(first.strata),
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values of several comparisons, corrected by Holm's method: the chance of any false discovery stays below them.

    Args:
        p_values: {comparison: p in [0, 1]}.

    Returns:
        {comparison: corrected p}, in the same order.

    Raises:
        ValueError: a value that is no probability.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    for name, p in p_values.items():
        if not 0 <= p <= 1:
            raise ValueError(f"the p-value of {name!r} must be in [0, 1], got {p}")
    corrected, largest = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = min(1.0, max(largest, (len(p_values) - place) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def _permuted_differences(first: Table, second: Table, permutations: int, seed: int) -> dict[str, np.ndarray]:
    """{column: difference under each permutation (R,)}.

    The rows of both metrics are put side by side, those of the second in clusters of their own. A permutation then
    gives weight 1 to one of the two clusters of each image, and the other metric is what is left: no row is moved.
    """
    clusters = len(first.strata)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))  # apart from the bootstrap's
    swapped = rng.integers(0, 2, (permutations, clusters), dtype=np.int8)
    one, other = np.hstack([1 - swapped, swapped]), np.hstack([swapped, 1 - swapped])
    found = {}
    for name, column in first.columns.items():
        both = column.joined(second.columns[name], clusters)
        found[name] = both.resampled(one) - both.resampled(other)
    return with_mean(found, first.averaged)


def _p_value(difference: float, permuted: np.ndarray) -> float:
    as_large = np.abs(permuted) >= abs(difference) - _ROUNDING
    return float((1 + as_large.sum()) / (1 + len(permuted)))


def _on_one_scale(scores: np.ndarray, statistic: str) -> np.ndarray:
    """Scores as the metrics' scores are exchanged; the statistic of one metric stays what it is."""
    from scipy.stats import rankdata

    if statistic == "pearson":
        return (scores - np.nanmean(scores)) / (np.nanstd(scores) or 1)
    if statistic in ("tau-b", "tau-c", "spearman", "auc", "ap"):
        return rankdata(scores, axis=None, nan_policy="omit").reshape(scores.shape)
    return scores
