"""How well a metric agrees with people on a benchmark, and whether it agrees better than another metric."""

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
    p_value,
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
    given = _checked(benchmark, scores)
    columns, averaged = {RATINGS: _rated, PAIRS: _paired, QUADRUPLES: _four}[benchmark.spec.form](benchmark, given)
    every = np.concatenate([column.items for column in columns.values()])
    counted = np.isin(np.arange(len(benchmark.rows)), every)
    images = np.full(len(counted), -1)
    images[counted] = number_clusters(benchmark.rows["image_id"][counted].tolist())
    count = int(images.max()) + 1
    shown = {name: (column, column.statistic) for name, column in columns.items()}
    if benchmark.spec.statistics and len(columns) == 1:  # several statistics of one column
        (one,) = columns.values()
        shown = {name: (one, _OF_RATINGS[kind]) for name, kind in benchmark.spec.statistics.items()}
        headline = next(iter(shown))
    else:
        headline = benchmark.spec.headline if averaged else list(shown)[-1]
    replicates = {
        name: resampled(statistic, column.arrays, draws(count, resamples, seed), images[column.items])
        for name, (column, statistic) in shown.items()
    }
    single = {name for name, (column, _) in shown.items() if len(np.unique(images[column.items])) == 1}
    replicates = with_mean(replicates, averaged)
    for values in replicates.values() if count == 1 else ():  # one image says no more
        values[1:] = np.nan
    return Evaluation(
        statistic=benchmark.spec.statistic,
        estimates={name: Interval.of(values[:1] if name in single else values) for name, values in replicates.items()},
        headline=headline,
        counted=counted,
        images=count,
        counts={name: len(column.items) for name, column in columns.items()},
        ties={name: column.ties for name, column in columns.items()},
        tie_rule=_TIE_RULES[
            benchmark.spec.ties if benchmark.spec.statistic == "accuracy" else benchmark.spec.statistic
        ],
        details={
            name: {kind.replace("-", "_"): float(value(*column.arrays)) for kind, value in column.details.items()}
            for name, column in columns.items()
        },
        replicates=replicates,
        by_category=_by_category(benchmark, given, resamples=resamples, seed=seed),
    )


def _checked(benchmark: Benchmark, scores: Scores) -> dict[str, np.ndarray]:
    """{aspect: scores (N, K)}, or {"overall": scores}, of pairs (N, K, draws); NaN means no score."""
    aspects = benchmark.aspects or (OVERALL,)
    given = scores if isinstance(scores, Mapping) else dict.fromkeys(aspects, scores)
    if missing := [name for name in aspects if name not in given]:
        raise ValueError(f"scores lack the aspect {missing[0]!r}; they have: {', '.join(given) or 'none'}")
    arrays = {}
    for name in aspects:
        array = np.array(given[name], dtype=np.float64)  # a copy
        array = array[:, None] if array.ndim == 1 else array
        if array.shape[: 3 if benchmark.spec.form != PAIRS else 2] != benchmark.shape or array.ndim > 3:
            raise ValueError(
                f"scores must have shape {benchmark.shape}: a row per item, a column per caption; got {array.shape}"
            )
        if np.isinf(array).any():
            raise ValueError(f"scores hold {int(np.isinf(array).sum())} infinite numbers; use NaN for no score")
        arrays[name] = array
    return arrays


def _rated(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> tuple[dict[str, _Column], list[str]]:
    """A column for each aspect, and which of them the mean is of."""
    statistic, columns = _OF_RATINGS[benchmark.spec.statistic], {}
    for aspect, given in scores.items():
        rated = np.array([aspect in each for each in benchmark.rows["ratings"]])
        places = np.flatnonzero(np.isfinite(given[:, 0]) & rated)
        if len(places) < 2:
            raise ValueError(
                f"{len(places)} captions of {benchmark.spec.title} have a score and a rating of {aspect!r}; "
                "a correlation needs at least 2"
            )
        ratings = [each[aspect] for each in benchmark.rows["ratings"][places]]
        counts = np.unique(given[places, 0], return_counts=True)[1].astype(np.float64)
        ties = float((counts**2 - counts).sum() / (len(places) ** 2 - len(places)))
        if benchmark.spec.judgments == "mean":
            targets = np.array([np.mean(each) for each in ratings])
        else:  # each rating is a judgment of its own, and the score is repeated
            places, targets = np.repeat(places, [len(each) for each in ratings]), np.concatenate(ratings)
        columns[aspect] = _Column(statistic, _CORRELATIONS, (given[places, 0], targets), places, ties)
    if MEAN in columns and len(columns) > 1:
        raise ValueError(f"no aspect may be named {MEAN!r}: the mean over the aspects has that name")
    return columns, list(columns) if len(columns) > 1 else []


def _paired(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> tuple[dict[str, _Column], list[str]]:
    """A column for each category and for all pairs together, and which of them the mean is of."""
    both, labels, title = scores[OVERALL], benchmark.rows["label"].to_numpy(), benchmark.spec.title
    both = both.reshape(*benchmark.shape, -1)
    judged = ~np.isnan(labels)
    kept, names = judged & np.isfinite(both).all(axis=(1, 2)), benchmark.rows["category"].to_numpy()
    if not kept.any():
        raise ValueError(f"no pair of {title} that counts has both its scores")
    every, categories = set(names[judged]), sorted({*names[kept]} - {""})
    lost = sorted(every - {*categories, ""})
    if lost:  # a mean over fewer categories would stand beside that of other metrics
        raise ValueError(f"no pair of the category {lost[0]!r} of {title} has both its scores")
    if reserved := {MEAN, OVERALL}.intersection(categories):
        raise ValueError(f"no category may be named {min(reserved)!r}: another column has that name")
    items, both, names = np.flatnonzero(kept), both[kept], names[kept]
    better, signs = 1 - 2 * labels[kept], np.sign(both[:, 0] - both[:, 1])
    right = np.where(signs == 0, 0.5 if benchmark.spec.ties == "half" else 0.0, signs == better[:, None])
    groups = {name: np.flatnonzero(names == name) for name in categories}
    # Which columns there are is the same for all metrics, whatever they have scored.
    parts = groups if len(every) == 1 and categories else {**groups, OVERALL: np.arange(len(items))}
    arrays, columns = (right, both[:, 0], both[:, 1], better), {}
    for name, rows in parts.items():
        ties = float((signs[rows] == 0).mean())
        columns[name] = _Column(_share, _OF_PAIRS, tuple(each[rows] for each in arrays), items[rows], ties)
    return columns, list(groups) if len(groups) > 1 else []


def _four(benchmark: Benchmark, scores: Mapping[str, np.ndarray]) -> tuple[dict[str, _Column], list[str]]:
    kept = np.flatnonzero(np.isfinite(scores[OVERALL]).all(axis=1))
    if not len(kept):
        raise ValueError(f"no quadruple of {benchmark.spec.title} has all four scores")
    four = scores[OVERALL][kept]
    text = (four[:, 0] == four[:, 1]) | (four[:, 2] == four[:, 3])
    image = (four[:, 0] == four[:, 2]) | (four[:, 1] == four[:, 3])
    ties = {"text": text, "image": image, "group": text | image}
    right = winoground_scores(four)
    columns = {
        name: _Column(_share, {name: _share}, (right[name],), kept, float(tied.mean())) for name, tied in ties.items()
    }
    return columns, []


def _by_category(
    benchmark: Benchmark, scores: Mapping[str, np.ndarray], *, resamples: int, seed: int
) -> dict[str, Evaluation]:
    """If rated captions have several categories, the evaluation of each with enough scores."""
    names = benchmark.rows["category"].to_numpy()
    found: dict[str, Evaluation] = {}
    for name in sorted({*names} - {""}) if benchmark.spec.form == RATINGS and len({*names}) > 1 else ():
        members = names == name
        part = benchmark.part_of(members)
        try:
            own = {aspect: scores[aspect][members] for aspect in part.aspects}
            found[name] = evaluate(part, own, resamples=resamples, seed=seed)
        except ValueError:  # too few scores
            continue
    return found


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
        both = {name: values - second.replicates[name] for name, values in first.replicates.items()}
        return cls(
            {name: Interval.of(values) for name, values in both.items()},
            {name: p_value(values) for name, values in both.items()},
            first.headline,
            first.scored,
        )


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
    given = [_checked(benchmark, scores) for scores in (first_scores, second_scores)]
    for name in given[0]:
        lost = np.any([np.isnan(scores[name]).reshape(len(benchmark.rows), -1).any(axis=1) for scores in given], axis=0)
        for scores in given:
            scores[name][lost] = np.nan
    return Difference.of(*(evaluate(benchmark, scores, resamples=resamples, seed=seed) for scores in given))


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
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = min(1.0, max(largest, (len(p_values) - place) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}
