"""How well a metric agrees with people on a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from reward.metaeval.benchmarks.items import OVERALL, PAIRS, QUADRUPLES, RATINGS, Benchmark
from reward.metaeval.bootstrap import (
    MEAN,
    RESAMPLES,
    Interval,
    draws,
    number_clusters,
    resampled,
    with_mean,
)
from reward.metaeval.classification import average_precision, roc_auc, winoground_scores
from reward.metaeval.correlation import kendall_tau, pearson, spearman

Scores: TypeAlias = "np.ndarray | Mapping[str, np.ndarray]"

_CORRELATIONS: dict[str, Callable[..., float]] = {
    "tau-c": kendall_tau,
    "tau-b": partial(kendall_tau, variant="b"),
    "spearman": spearman,
    "pearson": pearson,
}


def _of_varied(value: Callable[..., float], scores: np.ndarray, labels: np.ndarray) -> float:
    """NaN for equal scores: chance would stand above a metric that is worse than chance."""
    return value(scores, labels) if np.ptp(scores) else np.nan


_OF_RATINGS: dict[str, Callable[..., float]] = {
    **_CORRELATIONS,
    "auc": partial(_of_varied, roc_auc),
    "ap": partial(_of_varied, average_precision),
}


def _share(right: np.ndarray, *_: np.ndarray) -> float:
    return float(right.mean())


def _of_captions(
    value: Callable[..., float], right: np.ndarray, first: np.ndarray, second: np.ndarray, better: np.ndarray
) -> float:
    """A statistic of the captions of all pairs together, the correct ones and the others; its mean over draws."""
    labels = np.concatenate([better == 1, better == -1]).astype(float)
    return float(np.mean([value(scores, labels) for scores in np.concatenate([first, second]).T]))


_OF_PAIRS: dict[str, Callable[..., float]] = {
    "accuracy": _share,
    "auc": partial(_of_captions, roc_auc),
    "ap": partial(_of_captions, average_precision),
}
_TIE_RULES = {
    "tau-b": "tied pairs are neither concordant nor discordant, and tau-b leaves them out of the denominator",
    "tau-c": "tied pairs are neither concordant nor discordant, and stay in the denominator of tau-c",
    "spearman": "equal values share the mean of their ranks",
    "pearson": "ties need no rule",
    "auc": "equal scores count half",
    "group": "comparisons are strict: equal scores are wrong",
    "half": "equal scores count half",
    "wrong": "equal scores are wrong",
}


@dataclass(frozen=True)
class _Column:
    """What one column of a table is computed from.

    Args:
        statistic: the benchmark's own, a function of the arrays.
        details: {name: function of the arrays} of all that papers report.
        arrays: scores and ratings, each (n,), or of pairs whether a metric is right and both scores, each (n, draws).
        items: place of the item that each row is of, (n,).
        ties: share of ties.
    """

    statistic: Callable[..., float]
    details: Mapping[str, Callable[..., float]]
    arrays: tuple[np.ndarray, ...]
    items: np.ndarray
    ties: float


@dataclass(frozen=True)
class Evaluation:
    """Agreement of a metric with people, as `evaluate` returns it.

    For rated captions there is a column for each aspect and, if there are several, the headline column "mean", the mean
    of their statistics. A metric with a single score is compared with each aspect. For pairs there is a column for each
    category and, if there are several, "mean" (over the categories) and "overall" (all pairs, also those without a
    category). For quadruples the columns are "text", "image" and "group".

    Args:
        statistic: name of the statistic.
        estimates: {column: estimate with its 95 % interval; NaN to NaN if all items are of one image}.
        headline: the column to rank metrics by.
        counted: whether each item of the benchmark counts, because it has all its scores, (N,).
        images: number of distinct images of the items that count; the bootstrap draws images.
        counts: {column: judgments, pairs or quadruples}; "mean" has none.
        ties: {column: share of ties, 0 to 1}. For rated captions, pairs of captions with equal scores; for pairs and
            quadruples, items with an equal comparison. "mean" has none.
        tie_rule: how ties count, in words.
        details: {column: {statistic: value}}: tau_b, tau_c, spearman, pearson; or accuracy, auc, ap. "mean" has none.
        replicates: {column: the statistic, and its values on each resample (1 + R,)}, NaN where a resample has nothing
            of a column. Two evaluations of the same items with the same seed use the same resamples.
        by_category: {category: evaluation of its captions alone}, for rated captions of several categories, such as
            tasks or sources. Categories with too few scores are left out. For pairs, categories are columns.
    """

    statistic: str
    estimates: dict[str, Interval]
    headline: str
    counted: np.ndarray = field(repr=False)
    images: int
    counts: dict[str, int]
    ties: dict[str, float]
    tie_rule: str
    details: dict[str, dict[str, float]]
    replicates: dict[str, np.ndarray] = field(repr=False)
    by_category: dict[str, Evaluation] = field(default_factory=dict, repr=False)

    @property
    def scored(self) -> int:
        """Number of items that count."""
        return int(self.counted.sum())


def evaluate(benchmark: Benchmark, scores: Scores, *, resamples: int = RESAMPLES, seed: int = 0) -> Evaluation:
    """Agreement of a metric's scores with the human judgments of a benchmark.

    For rated captions, `BenchmarkSpec.judgments` says whether each rating counts by itself, with the caption's score
    repeated, or the mean of the ratings counts. Pairs that people call a tie do not count.

    Every resample computes the statistic anew by scipy: 1,000 resamples of 17,000 ratings take about 6 seconds.

    Args:
        benchmark: the items; see `load_benchmark`.
        scores: (N, K), one row per item and one column a caption, NaN where there is no score; or {aspect: (N, K)}. Of
            pairs (N, K, draws) too: the figures are then means over the draws.
        resamples: number R of bootstrap resamples of whole images.
        seed: of the bootstrap.

    Raises:
        ValueError: scores of another shape, infinite, or too few.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=20)
        >>> words = [len(captions[0].split()) for captions in scenes.rows["captions"]]
        >>> by_length = evaluate(scenes, np.array(words), resamples=100)
        >>> list(by_length.estimates), by_length.headline
        (['descriptiveness', 'relevance', 'fluency', 'mean'], 'mean')
    """
    arrays = check_scores(benchmark, scores)
    make_columns = {RATINGS: _rating_columns, PAIRS: _pair_columns, QUADRUPLES: _quadruple_columns}
    columns, averaged = make_columns[benchmark.spec.form](benchmark, arrays)
    # Images are numbered among the items that count in a column; a resample draws from these.
    counted = np.isin(np.arange(len(benchmark.rows)), np.concatenate([column.items for column in columns.values()]))
    images = np.full(len(counted), -1)
    images[counted] = number_clusters(benchmark.rows["image_id"][counted].tolist())
    count = int(images.max()) + 1

    figures = {name: (column, column.statistic) for name, column in columns.items()}
    headline = benchmark.spec.headline if averaged else list(figures)[-1]
    if benchmark.spec.statistics and len(columns) == 1:  # several statistics of one column
        (column,) = columns.values()
        figures = {name: (column, _OF_RATINGS[kind]) for name, kind in benchmark.spec.statistics.items()}
        headline = next(iter(figures))
    replicates = {}
    of_one_image = set()  # columns whose interval no resample of images tells
    for name, (column, statistic) in figures.items():
        clusters = images[column.items]
        replicates[name] = resampled(statistic, column.arrays, draws(count, resamples, seed), clusters)
        if len(np.unique(clusters)) == 1:
            of_one_image.add(name)
    replicates = with_mean(replicates, averaged)
    # Every resample of one image is the same, which would look like certainty.
    if count == 1:
        for values in replicates.values():
            values[1:] = np.nan
    estimates = {}
    for name, values in replicates.items():
        if name in of_one_image:
            values = values[:1]
        estimates[name] = Interval.of(values)
    details: dict[str, dict[str, float]] = {}
    for name, column in columns.items():
        details[name] = {}
        for kind, statistic in column.details.items():
            details[name][kind.replace("-", "_")] = float(statistic(*column.arrays))
    rule = benchmark.spec.statistic
    if rule == "accuracy":
        rule = benchmark.spec.ties
    return Evaluation(
        statistic=benchmark.spec.statistic,
        estimates=estimates,
        headline=headline,
        counted=counted,
        images=count,
        counts={name: len(column.items) for name, column in columns.items()},
        ties={name: column.ties for name, column in columns.items()},
        tie_rule=_TIE_RULES[rule],
        details=details,
        replicates=replicates,
        by_category=_evaluate_categories(benchmark, arrays, resamples=resamples, seed=seed),
    )


def check_scores(benchmark: Benchmark, scores: Scores) -> dict[str, np.ndarray]:
    """Copies as {aspect: scores (N, K)}, or {"overall": scores}, of pairs (N, K, draws); NaN means no score.

    Raises:
        ValueError: scores of another shape, or infinite ones.
    """
    aspects = benchmark.aspects or (OVERALL,)
    by_aspect = scores if isinstance(scores, Mapping) else dict.fromkeys(aspects, scores)
    arrays = {}
    for name in aspects:
        if name not in by_aspect:
            raise ValueError(f"scores lack the aspect {name!r}; they have: {', '.join(by_aspect) or 'none'}")
        array = np.array(by_aspect[name], dtype=np.float64)  # a copy
        if array.ndim == 1:
            array = array[:, None]
        shape = array.shape
        if array.ndim == 3 and benchmark.spec.form == PAIRS:  # with draws of references
            shape = array.shape[:2]
        if shape != benchmark.shape:
            raise ValueError(
                f"scores must have shape {benchmark.shape}: a row per item, a column per caption; got {array.shape}"
            )
        if np.isinf(array).any():
            raise ValueError(f"scores hold {int(np.isinf(array).sum())} infinite numbers; use NaN for no score")
        arrays[name] = array
    return arrays


def _rating_columns(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> tuple[dict[str, _Column], list[str]]:
    """A column for each aspect, and which of them the mean is of."""
    statistic = _OF_RATINGS[benchmark.spec.statistic]
    columns = {}
    for aspect, array in scores.items():
        is_rated = np.array([aspect in ratings for ratings in benchmark.rows["ratings"]])
        items = np.flatnonzero(np.isfinite(array[:, 0]) & is_rated)
        if len(items) < 2:
            raise ValueError(
                f"{len(items)} captions of {benchmark.spec.title} have a score and a rating of {aspect!r}; "
                "a correlation needs at least 2"
            )
        ratings = [by_aspect[aspect] for by_aspect in benchmark.rows["ratings"][items]]
        # Pairs of captions with equal scores, as a share of all pairs.
        counts = np.unique(array[items, 0], return_counts=True)[1].astype(np.float64)
        ties = float((counts**2 - counts).sum() / (len(items) ** 2 - len(items)))
        if benchmark.spec.judgments == "mean":
            targets = np.array([np.mean(ratings_of_caption) for ratings_of_caption in ratings])
        else:  # each rating is a judgment, and the score is repeated
            items = np.repeat(items, [len(ratings_of_caption) for ratings_of_caption in ratings])
            targets = np.concatenate(ratings)
        columns[aspect] = _Column(statistic, _CORRELATIONS, (array[items, 0], targets), items, ties)
    if MEAN in columns and len(columns) > 1:
        raise ValueError(f"no aspect may be named {MEAN!r}: the mean over the aspects has that name")
    return columns, list(columns) if len(columns) > 1 else []


def _pair_columns(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> tuple[dict[str, _Column], list[str]]:
    """A column for each category and for all pairs together, and which of them the mean is of."""
    title = benchmark.spec.title
    labels = benchmark.rows["label"].to_numpy()
    category_of = benchmark.rows["category"].to_numpy()
    both = scores[OVERALL].reshape(*benchmark.shape, -1)  # (N, 2, draws)
    is_judged = ~np.isnan(labels)
    counts = is_judged & np.isfinite(both).all(axis=(1, 2))
    if not counts.any():
        raise ValueError(f"no pair of {title} that counts has both its scores")
    judged, categories = set(category_of[is_judged]), sorted({*category_of[counts]} - {""})
    lost = sorted(judged - {*categories, ""})
    if lost:  # a mean over fewer categories would stand beside that of other metrics
        raise ValueError(f"no pair of the category {lost[0]!r} of {title} has both its scores")
    reserved = {MEAN, OVERALL}.intersection(categories)
    if reserved:
        raise ValueError(f"no category may be named {min(reserved)!r}: another column has that name")
    # From here on only the pairs that count, n of them.
    items, both, category_of = np.flatnonzero(counts), both[counts], category_of[counts]
    better = 1 - 2 * labels[counts]  # 1 where the first is better, else -1
    signs = np.sign(both[:, 0] - both[:, 1])
    # 1 or 0 for each pair and draw of references; a tie is half right, or wrong where the literature has it so.
    right = (signs == better[:, None]).astype(np.float64)
    if benchmark.spec.ties == "half":
        right[signs == 0] = 0.5
    groups = {name: np.flatnonzero(category_of == name) for name in categories}
    parts = dict(groups)
    if len(judged) > 1 or not categories:  # the same for all metrics, whatever they have scored
        parts[OVERALL] = np.arange(len(items))
    columns = {}
    for name, rows in parts.items():
        arrays = (right[rows], both[rows, 0], both[rows, 1], better[rows])
        columns[name] = _Column(_share, _OF_PAIRS, arrays, items[rows], ties=float((signs[rows] == 0).mean()))
    return columns, list(groups) if len(groups) > 1 else []


def _quadruple_columns(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> tuple[dict[str, _Column], list[str]]:
    """The columns text, image and group of Winoground, of which there is no mean."""
    items = np.flatnonzero(np.isfinite(scores[OVERALL]).all(axis=1))
    if not len(items):
        raise ValueError(f"no quadruple of {benchmark.spec.title} has all four scores")
    # Caption 0 and caption 1 with image 0, then with image 1.
    four = scores[OVERALL][items]
    text = (four[:, 0] == four[:, 1]) | (four[:, 2] == four[:, 3])
    image = (four[:, 0] == four[:, 2]) | (four[:, 1] == four[:, 3])
    right = winoground_scores(four)
    columns = {}
    for name, is_tied in {"text": text, "image": image, "group": text | image}.items():
        columns[name] = _Column(_share, {name: _share}, (right[name],), items, float(is_tied.mean()))
    return columns, []


def _evaluate_categories(
    benchmark: Benchmark, scores: Mapping[str, np.ndarray], *, resamples: int, seed: int
) -> dict[str, Evaluation]:
    """If rated captions have several categories, the evaluation of each with enough scores."""
    category_of = benchmark.rows["category"].to_numpy()
    evaluations: dict[str, Evaluation] = {}
    if benchmark.spec.form != RATINGS or len({*category_of}) < 2:
        return evaluations
    for name in sorted({*category_of} - {""}):
        members = category_of == name
        part = benchmark.subset(members)
        scores_of_part = {aspect: scores[aspect][members] for aspect in part.aspects}
        try:
            evaluations[name] = evaluate(part, scores_of_part, resamples=resamples, seed=seed)
        except ValueError:  # too few scores
            continue
    return evaluations
