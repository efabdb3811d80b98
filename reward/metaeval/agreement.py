"""Several metrics against the same ratings: agreement per aspect and on their mean, with paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reward.metaeval.correlation import Variant, resampled_tau
from reward.metaeval.intervals import Interval, percentile_interval

__all__ = ["MEAN", "RATER", "Comparison", "compare_metrics", "compare_with_raters"]

MEAN = "mean"  # the column of the mean over the aspects
RATER = "single rater"  # the row of a person instead of a metric


@dataclass(frozen=True)
class Comparison:
    """Agreement of metrics with ratings; every table also has the column "mean", of the mean over the aspects.

    Args:
        aspects: names of the aspects.
        agreement: {metric: {aspect: tau}}.
        differences: {metric: {other metric: {aspect: tau of the metric minus tau of the other}}}, paired.
    """

    aspects: tuple[str, ...]
    agreement: dict[str, dict[str, Interval]]
    differences: dict[str, dict[str, dict[str, Interval]]]

    def to_json(self) -> dict[str, Any]:
        """Plain values: an interval is [value, low, high]."""
        return {
            "agreement": {name: _plain(row) for name, row in self.agreement.items()},
            "differences": {
                name: {other: _plain(row) for other, row in rows.items()} for name, rows in self.differences.items()
            },
        }


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
        scores: {metric: {aspect: (N,)}}; a metric with one score for everything gives it for every aspect.
        ratings: {aspect: (N,)}.
        weights: (R, N), see `bootstrap_weights`.
        subjects: metrics whose paired differences from all others are wanted.
        variant: "b" or "c".

    Raises:
        ValueError: a score is not finite, or shapes differ.
        KeyError: a metric lacks an aspect, or a subject has no scores.

    Example:
        >>> from reward.metaeval.intervals import bootstrap_weights
        >>> ratings = {"relevance": np.arange(9.0)}
        >>> scores = {"good": ratings, "bad": {"relevance": -ratings["relevance"]}}
        >>> found = compare_metrics(scores, ratings, bootstrap_weights(9), subjects=["good"])
        >>> found.agreement["good"]["relevance"].value, found.differences["good"]["bad"]["mean"].value
        (1.0, 2.0)
    """
    weights = _with_all_samples_first(weights)
    taus = {
        name: [resampled_tau(columns[aspect], ratings[aspect], weights, variant=variant) for aspect in ratings]
        for name, columns in scores.items()
    }
    return _comparison(tuple(ratings), taus, {name: [other for other in scores if other != name] for name in subjects})


def compare_with_raters(
    raters: Mapping[str, np.ndarray],
    scores: Mapping[str, Mapping[str, np.ndarray]],
    weights: np.ndarray,
    *,
    variant: Variant = "c",
) -> Comparison:
    """Agreement of a single rater with the mean of the other raters, beside that of metrics with the same means.

    Each of the K raters takes the metric's place in turn and the K values are averaged: what a person reaches.

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
        >>> from reward.metaeval.intervals import bootstrap_weights
        >>> raters = {"fluency": np.array([[1, 1, 2], [3, 2, 3], [4, 5, 5], [2, 2, 1]])}
        >>> found = compare_with_raters(raters, {}, bootstrap_weights(4))
        >>> found.agreement["single rater"]["fluency"].value > 0.5
        True
    """
    weights = _with_all_samples_first(weights)
    taus: dict[str, list[np.ndarray]] = {RATER: [], **{name: [] for name in scores}}
    for aspect, ratings in raters.items():
        ratings = np.asarray(ratings, dtype=np.float64)
        if ratings.ndim != 2 or ratings.shape[1] < 2:
            raise ValueError(f"ratings of {aspect!r} must have shape (N, K) with K >= 2 raters, got {ratings.shape}")
        others = [np.delete(ratings, rater, axis=1).mean(axis=1) for rater in range(ratings.shape[1])]
        for name, found in taus.items():
            own = ratings.T if name == RATER else [scores[name][aspect]] * len(others)
            pairs = zip(own, others, strict=True)
            found.append(np.mean([resampled_tau(*pair, weights, variant=variant) for pair in pairs], axis=0))
    return _comparison(tuple(raters), taus, {name: [RATER] for name in scores})


def _with_all_samples_first(weights: np.ndarray) -> np.ndarray:
    """With a first resample that holds each sample once, whose tau is the estimate itself."""
    return np.concatenate([np.ones((1, weights.shape[1])), weights])


def _comparison(
    aspects: tuple[str, ...], taus: Mapping[str, list[np.ndarray]], differences: Mapping[str, list[str]]
) -> Comparison:
    """From {metric: per aspect the estimate and its replicates (1 + R,)} to intervals."""
    columns = {name: np.stack([*found, np.mean(found, axis=0)], axis=1) for name, found in taus.items()}

    def row(values: np.ndarray) -> dict[str, Interval]:
        names = (*aspects, MEAN)
        return {name: percentile_interval(values[0, k], values[1:, k]) for k, name in enumerate(names)}

    return Comparison(
        aspects,
        {name: row(values) for name, values in columns.items()},
        {
            name: {other: row(columns[name] - columns[other]) for other in others}
            for name, others in differences.items()
        },
    )


def _plain(row: dict[str, Interval]) -> dict[str, list[float]]:
    return {name: [interval.value, interval.low, interval.high] for name, interval in row.items()}
