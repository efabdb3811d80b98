"""Several metrics on the same arrays: agreement with ratings and raters, pairwise accuracy, paired differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from reward.metaeval.bootstrap import (
    MEAN,
    RESAMPLES,
    Interval,
    checked_pair,
    draw_clusters,
    number_clusters,
    whole_first,
    with_mean,
)
from reward.metaeval.columns import cluster_strata, pair_columns
from reward.metaeval.correlation import Variant, resampled_tau

__all__ = ["RATER", "Comparison", "PairwiseResult", "compare_metrics", "compare_with_raters", "pairwise_accuracy"]

RATER = "single rater"  # the name of the row for a person


@dataclass(frozen=True)
class Comparison:
    """Agreement of metrics with ratings, for each aspect and for "mean", the mean over the aspects.

    Args:
        agreement: {metric: {aspect: tau}}.
        differences: {metric: {other metric: {aspect: tau of the metric minus tau of the other}}}, paired.
    """

    agreement: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, dict[str, Interval]]]


def compare_metrics(
    scores: Mapping[str, Mapping[str, np.ndarray]],
    ratings: Mapping[str, np.ndarray],
    weights: np.ndarray,
    *,
    subjects: Sequence[str] = (),
    variant: Variant = "c",
) -> Comparison:
    """Kendall's tau of each metric with the ratings of each aspect.

    Args:
        scores: {metric: {aspect: (N,)}}; a metric with a single score has it for every aspect.
        ratings: {aspect: (N,)}.
        weights: (R, N), see `bootstrap_weights`.
        subjects: metrics to compare with all others, by paired differences.
        variant: "b" or "c".

    Raises:
        ValueError: a score is not finite, or shapes differ.
        KeyError: a metric lacks an aspect, or a subject has no scores.

    Example:
        >>> from reward.metaeval import bootstrap_weights
        >>> ratings = {"relevance": np.arange(9.0)}
        >>> scores = {"good": ratings, "bad": {"relevance": -ratings["relevance"]}}
        >>> compared = compare_metrics(scores, ratings, bootstrap_weights(9), subjects=["good"])
        >>> compared.agreement["good"]["relevance"].value, compared.differences["good"]["bad"]["mean"].value
        (1.0, 2.0)
    """
    weights = whole_first(weights)
    taus = {
        name: {aspect: resampled_tau(row[aspect], ratings[aspect], weights, variant=variant) for aspect in ratings}
        for name, row in scores.items()
    }
    return _comparison(taus, {name: [other for other in scores if other != name] for name in subjects})


def compare_with_raters(
    raters: Mapping[str, np.ndarray],
    scores: Mapping[str, Mapping[str, np.ndarray]],
    weights: np.ndarray,
    *,
    variant: Variant = "c",
) -> Comparison:
    """Agreement of a single rater with the mean of the other raters, beside that of metrics with the same means.

    Each of the K raters takes the metric's place in turn, and the K values are averaged: the agreement of one person.

    Args:
        raters: {aspect: ratings (N, K)}, K at least 2.
        scores: {metric: {aspect: (N,)}}, may be empty.
        weights: (R, N), see `bootstrap_weights`.
        variant: "b" or "c".

    Returns:
        Agreement of "single rater" and of each metric, and the paired difference of each metric from "single rater".

    Raises:
        ValueError: fewer than two raters, a number that is not finite, or shapes differ.

    Example:
        >>> from reward.metaeval import bootstrap_weights
        >>> raters = {"fluency": np.array([[1, 1, 2], [3, 2, 3], [4, 5, 5], [2, 2, 1]])}
        >>> compare_with_raters(raters, {}, bootstrap_weights(4)).agreement["single rater"]["fluency"].value > 0.5
        True
    """
    weights = whole_first(weights)
    taus: dict[str, dict[str, np.ndarray]] = {name: {} for name in (RATER, *scores)}
    for aspect, ratings in raters.items():
        ratings = np.asarray(ratings, dtype=np.float64)
        if ratings.ndim != 2 or ratings.shape[1] < 2:
            raise ValueError(f"ratings of {aspect!r} must have shape (N, K) with K >= 2 raters, got {ratings.shape}")
        others = [np.delete(ratings, rater, axis=1).mean(axis=1) for rater in range(ratings.shape[1])]
        for name, row in taus.items():
            own = ratings.T if name == RATER else [scores[name][aspect]] * len(others)
            pairs = zip(own, others, strict=True)
            row[aspect] = np.mean([resampled_tau(*pair, weights, variant=variant) for pair in pairs], axis=0)
    return _comparison(taus, {name: [RATER] for name in scores})


def _comparison(taus: Mapping[str, Mapping[str, np.ndarray]], subjects: Mapping[str, Sequence[str]]) -> Comparison:
    """From {metric: {aspect: estimate and replicates (1 + R,)}} and {subject: those it is compared with}."""
    rows = {name: with_mean(row, tuple(row)) for name, row in taus.items()}
    return Comparison(
        {name: {column: Interval.of(values) for column, values in row.items()} for name, row in rows.items()},
        {name: {other: _differences(rows[name], rows[other]) for other in others} for name, others in subjects.items()},
    )


def _differences(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> dict[str, Interval]:
    """Of the columns that both have, from estimates and replicates (1 + R,) on paired or independent resamples."""
    return {name: Interval.of(first[name] - second[name]) for name in first if name in second}


@dataclass(frozen=True)
class PairwiseResult:
    """Pairwise accuracy and AUC by category; tables also have "mean", the mean over the categories.

    Args:
        accuracy: share of pairs whose correct caption scores higher; equal scores count half, or as `ties` says.
        auc: probability that the correct caption of a pair scores higher than the incorrect caption of any pair of the
            category; equal scores count half.
        pooled_auc: the same over all pairs of all categories.
        pairs: number of pairs.
        ties: number of pairs with equal scores.
        rows: category and cluster of each pair.
        seed: of the bootstrap.
        replicates: {category or "mean": accuracy on each resample (R,)}.
    """

    accuracy: dict[str, Interval]
    auc: dict[str, Interval]
    pooled_auc: Interval
    pairs: dict[str, int]
    ties: dict[str, int]
    rows: tuple[tuple[str, Hashable], ...] = field(repr=False)
    seed: int = field(repr=False)
    replicates: dict[str, np.ndarray] = field(repr=False)

    def minus(self, other: PairwiseResult) -> dict[str, Interval]:
        """Accuracy of this result minus that of the other, for the categories that both have, and "mean".

        Two metrics on the same pairs are compared pair by pair and need equal seeds, so that both use the same
        resamples. Results on different pairs are compared as independent samples and need different seeds.

        Raises:
            ValueError: the seeds or the numbers of resamples do not allow that.
        """
        paired = self.rows == other.rows
        if paired != (self.seed == other.seed):
            raise ValueError(
                "results on the same pairs must come from the same seed to be compared pair by pair"
                if paired
                else "results on different pairs must come from different seeds, for their resamples to be independent"
            )
        if len(self.replicates[MEAN]) != len(other.replicates[MEAN]):
            raise ValueError("the two results come from different numbers of resamples")
        first, second = (
            {name: np.r_[each.accuracy[name].value, values] for name, values in each.replicates.items()}
            for each in (self, other)
        )
        return _differences(first, second)


def pairwise_accuracy(
    correct_scores: np.ndarray,
    incorrect_scores: np.ndarray,
    categories: Sequence[str],
    *,
    clusters: Sequence[Hashable] | None = None,
    ties: Literal["half", "wrong"] = "half",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairwiseResult:
    """How often a metric scores the correct caption of a pair higher than the incorrect one, with 95 % intervals.

    The bootstrap draws clusters, stratified by the categories in which they occur; see `draw_clusters`.

    Args:
        correct_scores, incorrect_scores: finite numbers (N,), N at least 2: one pair per row.
        categories: what is wrong with each incorrect caption, N names.
        clusters: what each pair belongs to, such as its image; None takes the pairs as independent.
        ties: whether a pair with equal scores counts `"half"` or as `"wrong"` in the accuracy.
        resamples: number of bootstrap resamples.
        seed: of the bootstrap; see `PairwiseResult.minus`.

    Raises:
        ValueError: other shapes or lengths, a score that is not finite, a category named "mean", or another `ties`.

    Example:
        >>> good, bad = np.array([0.9, 0.8, 0.5, 0.2]), np.array([0.1, 0.7, 0.5, 0.6])
        >>> result = pairwise_accuracy(good, bad, ["count", "count", "action", "action"])
        >>> {name: interval.value for name, interval in result.accuracy.items()}, result.ties["action"]
        ({'action': 0.25, 'count': 1.0, 'mean': 0.625}, 1)
    """
    scores = np.stack(checked_pair(correct_scores, incorrect_scores), axis=1)
    categories = list(categories)
    clusters = list(range(len(scores))) if clusters is None else list(clusters)
    if not len(scores) == len(categories) == len(clusters):
        raise ValueError(f"got {len(categories)} categories and {len(clusters)} clusters for {len(scores)} pairs")
    if ties not in ("half", "wrong"):
        raise ValueError(f'ties must be "half" or "wrong", got {ties!r}')
    if MEAN in categories:
        raise ValueError(f"no category may be named {MEAN!r}: the mean over the categories has that name")
    names, members = sorted(set(categories)), number_clusters(clusters)
    groups = {name: np.flatnonzero([category == name for category in categories]) for name in names}
    columns = pair_columns(scores, np.ones(len(scores)), groups, members, ties=ties)
    strata = cluster_strata({name: columns[name]["accuracy"] for name in names}, int(members.max()) + 1)
    weights = whole_first(draw_clusters(strata, resamples=resamples, seed=seed))
    accuracy, auc = (
        with_mean({name: columns[name][kind].resampled(weights) for name in names}, names)
        for kind in ("accuracy", "auc")
    )
    everything = pair_columns(scores, np.ones(len(scores)), {"": np.arange(len(scores))}, members, ties=ties)[""]
    equal = Counter(category for category, (one, other) in zip(categories, scores, strict=True) if one == other)
    return PairwiseResult(
        accuracy={name: Interval.of(values) for name, values in accuracy.items()},
        auc={name: Interval.of(values) for name, values in auc.items()},
        pooled_auc=Interval.of(everything["auc"].resampled(weights)),
        pairs={name: len(groups[name]) for name in names},
        ties={name: equal[name] for name in names},
        rows=tuple(zip(categories, clusters, strict=True)),
        seed=seed,
        replicates={name: values[1:] for name, values in accuracy.items()},
    )
