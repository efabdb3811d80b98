"""Several metrics on the same arrays: agreement with ratings and with raters, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from reward.metaeval.bootstrap import Interval, resampled, with_mean
from reward.metaeval.correlation import Variant, kendall_tau

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
) -> Comparison:
    """Kendall's tau-c of each metric with the ratings of each aspect.

    Args:
        scores: {metric: {aspect: (N,)}}; a metric with a single score has it for every aspect.
        ratings: {aspect: (N,)}.
        weights: (R, N), see `bootstrap_weights`.
        subjects: metrics to compare with all others, by paired differences.

    Example:
        >>> from reward.metaeval import bootstrap_weights
        >>> ratings = {"relevance": np.arange(9.0)}
        >>> scores = {"good": ratings, "bad": {"relevance": -ratings["relevance"]}}
        >>> compared = compare_metrics(scores, ratings, bootstrap_weights(9), subjects=["good"])
        >>> compared.agreement["good"]["relevance"].value, compared.differences["good"]["bad"]["mean"].value
        (1.0, 2.0)
    """
    taus: dict[str, dict[str, np.ndarray]] = {}
    for name, by_aspect in scores.items():
        taus[name] = {}
        for aspect in ratings:
            taus[name][aspect] = resampled(kendall_tau, (by_aspect[aspect], ratings[aspect]), weights)
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

    Example:
        >>> from reward.metaeval import bootstrap_weights
        >>> raters = {"fluency": np.array([[1, 1, 2], [3, 2, 3], [4, 5, 5], [2, 2, 1]])}
        >>> compare_with_raters(raters, {}, bootstrap_weights(4)).agreement["single rater"]["fluency"].value > 0.5
        True
    """
    tau = partial(kendall_tau, variant=variant)
    taus: dict[str, dict[str, np.ndarray]] = {name: {} for name in (RATER, *scores)}
    for aspect, ratings in raters.items():
        for name, by_aspect in taus.items():
            rounds = []
            for rater in range(ratings.shape[1]):
                votes = ratings[:, rater] if name == RATER else scores[name][aspect]
                # Metrics meet the same means as the person, or the comparison would not be fair.
                mean_of_others = np.delete(ratings, rater, axis=1).mean(axis=1)
                rounds.append(resampled(tau, (votes, mean_of_others), weights))
            by_aspect[aspect] = np.mean(rounds, axis=0)
    return _comparison(taus, {name: [RATER] for name in scores})


def _comparison(taus: Mapping[str, Mapping[str, np.ndarray]], subjects: Mapping[str, Sequence[str]]) -> Comparison:
    """From {metric: {aspect: estimate and replicates (1 + R,)}} and {subject: those it is compared with}."""
    replicates = {name: with_mean(by_aspect, tuple(by_aspect)) for name, by_aspect in taus.items()}
    agreement: dict[str, dict[str, Interval]] = {}
    for name, columns in replicates.items():
        agreement[name] = {column: Interval.of(values) for column, values in columns.items()}
    differences: dict[str, dict[str, dict[str, Interval]]] = {}
    for name, others in subjects.items():
        differences[name] = {}
        for other in others:
            gaps = {column: values - replicates[other][column] for column, values in replicates[name].items()}
            differences[name][other] = {column: Interval.of(gap) for column, gap in gaps.items()}
    return Comparison(agreement, differences)
