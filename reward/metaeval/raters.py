"""Metrics beside the people who rated: agreement with ratings and with single raters, and scores far from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.benchmarks.items import RATINGS
from reward.metaeval.bootstrap import Interval, bootstrap_weights, resampled, with_mean
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


def why_no_raters(benchmark: Benchmark) -> str:
    """Why a benchmark cannot tell how far one rater agrees with the others; empty if it can."""
    if benchmark.spec.form != RATINGS:
        return "no caption is rated"
    for item in benchmark.rows.itertuples():
        for aspect, ratings in item.ratings.items():
            if len(ratings) < 2:
                caption = item.captions[0]
                return f"only one rating of {aspect} is known of the caption {caption!r:.60}, perhaps a mean"
    return ""


def check_range(benchmark: Benchmark) -> None:
    """Raises DataError for ratings outside [0, 1], from which `failures` cannot tell the distance."""
    if benchmark.spec.form != RATINGS:
        raise DataError(f"--threshold needs rated captions, and {benchmark.spec.name} has none: leave it out")
    for item in benchmark.rows.itertuples():
        for aspect, ratings in item.ratings.items():
            if min(ratings) < 0 or max(ratings) > 1:
                where = f"{benchmark.spec.name}: {aspect} of the caption {item.captions[0]!r:.60}"
                raise DataError(f"{where} is rated {ratings}; --threshold needs [0, 1]: map 1 to 5 by (r - 1) / 4")


def single_rater(benchmark: Benchmark, scores: Mapping[str, Any], *, resamples: int, seed: int) -> Comparison | None:
    """One rater against the mean of the others, each left out in turn, and metrics against the same means.

    Captions count that are rated in every aspect and scored by every metric; None if there are fewer than two. Of each
    caption the first K ratings count, where K is the smallest number of ratings that a caption has.
    """
    counts = np.array([len(ratings) == len(benchmark.aspects) for ratings in benchmark.rows["ratings"]])
    columns: dict[str, dict[str, np.ndarray]] = {}
    for label, scores_of_metric in scores.items():
        columns[label] = {}
        for aspect in benchmark.aspects:
            column = _column(scores_of_metric, aspect)
            columns[label][aspect] = column
            counts &= np.isfinite(column)
    if counts.sum() < 2:
        return None
    rows = benchmark.rows[counts]
    raters: dict[str, np.ndarray] = {}
    for aspect in benchmark.aspects:
        ratings = [ratings_of_caption[aspect] for ratings_of_caption in rows["ratings"]]
        # Of a caption with more ratings the first count, so that all have as many raters.
        fewest = min(map(len, ratings))
        raters[aspect] = np.array([ratings_of_caption[:fewest] for ratings_of_caption in ratings])
        for by_aspect in columns.values():
            by_aspect[aspect] = by_aspect[aspect][counts]
    weights = bootstrap_weights(len(rows), resamples=resamples, seed=seed, clusters=rows["image_id"].tolist())
    variant: Variant = "b" if benchmark.spec.statistic == "tau-b" else "c"
    return compare_with_raters(raters, columns, weights, variant=variant)


def failures(benchmark: Benchmark, scores: Mapping[str, Any], threshold: float = 0.0) -> list[dict[str, Any]]:
    """Scores that are at least `threshold` away from the mean rating, those of each metric and aspect together.

    Metrics with a score outside [0, 1], where the ratings are, are left out.

    Source: the VELA paper, appendix E, with a threshold of 0.25.
    """
    distant = []
    for label, scores_of_metric in scores.items():
        columns = {aspect: _column(scores_of_metric, aspect) for aspect in benchmark.aspects}
        if any(((column < 0) | (column > 1)).any() for column in columns.values()):
            continue
        for aspect, column in columns.items():
            for item, score in zip(benchmark.rows.itertuples(), column, strict=True):
                rating = float(np.mean(item.ratings.get(aspect, [np.nan])))
                if abs(score - rating) >= threshold - 1e-9:  # rounding; false for NaN
                    failure = {"row": label, "aspect": aspect, "image": item.image_id, "rating": rating}
                    failure |= {"score": float(score), "candidate": item.captions[0], "references": item.references}
                    distant.append(failure)
    return distant


def _column(scores: Any, aspect: str) -> np.ndarray:
    """Scores (N,) of an aspect; of several draws the first."""
    column = np.asarray(scores[aspect] if isinstance(scores, dict) else scores, dtype=np.float64)
    return column.reshape(len(column), -1)[:, 0]
