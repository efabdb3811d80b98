"""How well a metric agrees with people on a benchmark, and whether it agrees better than another metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from reward.metaeval.benchmarks.items import Benchmark, RatedCaption
from reward.metaeval.bootstrap import RESAMPLES, Interval, draw_clusters, whole_first, with_mean
from reward.metaeval.columns import Scores, Table, check_scores, judged_rows, make_table, tie_rule

__all__ = ["Difference", "Evaluation", "compare", "evaluate", "holm"]

_ROUNDING = 1e-12  # differences this close count as equal


@dataclass(frozen=True)
class Evaluation:
    """Agreement of a metric with people, as `evaluate` returns it.

    For rated captions there is a column for each aspect and, if there are several, the headline column "mean", the mean
    of their statistics. A metric with a single score is compared with each aspect. For pairs there is a column for each
    category and, if there are several, "mean" (over the categories) and "overall" (all pairs, also those without a
    category); an arena has no "mean". For quadruples the columns are "text", "image" and "group".

    Args:
        statistic: name of the statistic.
        estimates: {column: estimate with its 95 % interval; NaN to NaN if all items are of one image}.
        headline: the column to rank metrics by.
        scored: number of items that count: those with all their scores.
        items: number of items of the benchmark.
        images: number of distinct images of the items that count; the bootstrap draws images.
        counts: {column: judgments, pairs or quadruples}; "mean" has none.
        ties: {column: share of ties, 0 to 1}. For rated captions, pairs of captions with equal scores; for pairs and
            quadruples, items with an equal comparison; for battles, those that the metric calls a tie. "mean" has none.
        tie_rule: how ties count, in words.
        details: {column: {statistic: value}}: tau_b, tau_c, spearman, pearson; or accuracy, auc, ap. "mean" has none.
        replicates: {column: the statistic on each resample (R,)}, NaN where a resample has nothing of a column. Two
            evaluations of the same items with the same seed use the same resamples.
        by_category: {category: evaluation of its captions alone}, for rated captions of several categories, such as
            tasks or sources. Categories with too few scores are left out. For pairs, categories are columns.
    """

    statistic: str
    estimates: dict[str, Interval]
    headline: str
    scored: int
    items: int
    images: int
    counts: dict[str, int]
    ties: dict[str, float]
    tie_rule: str
    details: dict[str, dict[str, float]]
    replicates: dict[str, np.ndarray] = field(repr=False)
    by_category: dict[str, Evaluation] = field(default_factory=dict, repr=False)


def evaluate(
    benchmark: Benchmark,
    scores: Scores,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Agreement of a metric's scores with the human judgments of a benchmark.

    For rated captions, `BenchmarkSpec.judgments` says whether each rating counts by itself, with the caption's score
    repeated, or the mean of the ratings counts. Pairs of a correct and an incorrect caption that people call a tie do
    not count. In an arena, battles against the source `human` do not count, and the threshold for ties is set once, on
    all battles.

    Args:
        benchmark: the items; see `load_benchmark`.
        scores: (N, K), one row per item and one column a caption, NaN where there is no score; or {aspect: (N, K)}.
        resamples: number of bootstrap resamples of whole images, see `draw_clusters`.
        seed: of the bootstrap.

    Raises:
        ValueError: scores of another shape, infinite, or too few; or resamples below 1.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=20)
        >>> words = [[len(item.candidate.split())] for item in scenes.items]
        >>> by_length = evaluate(scenes, np.array(words), resamples=100)
        >>> list(by_length.estimates), by_length.headline
        (['descriptiveness', 'relevance', 'fluency', 'mean'], 'mean')
    """
    checked = check_scores(benchmark, scores)
    table = make_table(benchmark, checked)
    draws = draw_clusters(table.strata, resamples=resamples, seed=seed)
    weights = whole_first(draws)
    values = table.resampled(weights)
    return Evaluation(
        statistic=benchmark.spec.statistic,
        estimates=table.intervals(values),
        headline=table.headline,
        scored=table.scored,
        items=len(benchmark.items),
        images=len(table.strata),
        counts=table.counts,
        ties=table.ties,
        tie_rule=tie_rule(benchmark),
        details={
            name: {kind.replace("-", "_"): float(rows.resampled(weights[:1])[0]) for kind, rows in kinds.items()}
            for name, kinds in table.details.items()
        },
        replicates={name: column[1:] for name, column in values.items()},
        by_category={
            name: evaluate(part, own, resamples=resamples, seed=seed)
            for name, part, own in _categories(benchmark, checked)
        },
    )


def _categories(
    benchmark: Benchmark, scores: dict[str, np.ndarray]
) -> Iterator[tuple[str, Benchmark, dict[str, np.ndarray]]]:
    """If rated captions have several categories, the name, items and scores of each with enough scores."""
    categories = [item.category for item in benchmark.items]
    if benchmark.spec.form is not RatedCaption or len(set(categories)) == 1:
        return
    for name in sorted(set(categories) - {""}):
        members = np.array([category == name for category in categories])
        part = replace(benchmark, items=list(compress(benchmark.items, members)))
        own = {aspect: scores[aspect][members] for aspect in part.aspects}
        if all(rows.sum() >= 2 for rows in judged_rows(part, own).values()):
            yield name, part, own


@dataclass(frozen=True)
class Difference:
    """Difference between two metrics, as `compare` returns it; the columns are those of `Evaluation.estimates`.

    Args:
        statistic: name of the statistic.
        first, second: {column: the metric's value}, on the items that both have scored.
        differences: {column: first minus second, with the 95 % interval of the paired bootstrap}.
        p_values: {column: two-sided p of the paired permutation test}.
        headline: the column to rank metrics by.
        scored: number of items that count and that both have scored.
        items: number of items of the benchmark.
        images: number of distinct images of the items that count. The bootstrap draws images, the test swaps them.
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
    resamples: int = RESAMPLES,
    permutations: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Difference between two metrics on a benchmark, on the items that both have scored.

    The paired bootstrap draws whole images, the same for both metrics. The paired permutation test swaps the two
    metrics' scores of each image with probability 1/2 and counts how often the difference becomes at least as large as
    the observed one. Scores are first put on one scale: ranks, or z-scores for Pearson's correlation. Where an item is
    right or wrong (accuracy, Winoground), right and wrong are swapped instead.

    Args:
        benchmark: as for `evaluate`.
        first_scores, second_scores: of two metrics, as for `evaluate`.
        resamples: number of bootstrap resamples.
        permutations: number R of permutations; p is (1 + number at least as large) / (1 + R).
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
    benchmark = replace(benchmark, spec=replace(benchmark.spec, statistics={}))  # a test has one statistic
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    given = [
        check_scores(benchmark, first_scores, "the first metric's scores"),
        check_scores(benchmark, second_scores, "the second metric's scores"),
    ]
    for name in given[0]:
        lost = np.logical_or(*(np.isnan(scores[name]).any(axis=1, keepdims=True) for scores in given))
        for scores in given:
            scores[name] = _on_one_scale(np.where(lost, np.nan, scores[name]), benchmark.spec.statistic)
    first, second = (make_table(benchmark, scores) for scores in given)
    weights = whole_first(draw_clusters(first.strata, resamples=resamples, seed=seed))
    values = [table.resampled(weights) for table in (first, second)]
    differences = {name: values[0][name] - values[1][name] for name in values[0]}
    permuted = _permuted_differences(first, second, permutations, seed)
    return Difference(
        statistic=benchmark.spec.statistic,
        first={name: float(column[0]) for name, column in values[0].items()},
        second={name: float(column[0]) for name, column in values[1].items()},
        differences=first.intervals(differences),
        p_values={name: _p_value(column[0], permuted[name]) for name, column in differences.items()},
        headline=first.headline,
        scored=first.scored,
        items=len(benchmark.items),
        images=len(first.strata),
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Corrects the p-values of several comparisons by Holm's method, which bounds the chance of any false discovery.

    Args:
        p_values: {comparison: p in [0, 1]}.

    Returns:
        {comparison: corrected p}, in the same order.

    Raises:
        ValueError: a value outside [0, 1].

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

    The rows of both metrics are joined, those of the second in clusters of their own. A permutation gives weight 1 to
    one of the two clusters of each image for the first metric, and to the other one for the second; no row is moved.
    """
    clusters = len(first.strata)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))  # independent of the bootstrap's
    swapped = rng.integers(0, 2, (permutations, clusters), dtype=np.int8)
    one, other = np.hstack([1 - swapped, swapped]), np.hstack([swapped, 1 - swapped])
    differences = {}
    for name, column in first.columns.items():
        both = column.joined(second.columns[name], clusters)
        differences[name] = both.resampled(one) - both.resampled(other)
    return with_mean(differences, first.averaged)


def _p_value(difference: float, permuted: np.ndarray) -> float:
    as_large = np.abs(permuted) >= abs(difference) - _ROUNDING
    return float((1 + as_large.sum()) / (1 + len(permuted)))


def _on_one_scale(scores: np.ndarray, statistic: str) -> np.ndarray:
    """Scores on the scale on which two metrics are swapped; each metric's own statistic stays the same."""
    from scipy.stats import rankdata

    if statistic == "pearson":
        return (scores - np.nanmean(scores)) / (np.nanstd(scores) or 1)
    if statistic in ("tau-b", "tau-c", "spearman", "auc", "ap"):
        return rankdata(scores, axis=None, nan_policy="omit").reshape(scores.shape)
    return scores
