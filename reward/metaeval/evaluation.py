"""How well a metric agrees with people on one benchmark: every column with its interval, ties, other statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from reward.metaeval.benchmarks.forms import Benchmark, RatedCaption
from reward.metaeval.columns import Scores, check_scores, check_statistic, judged_rows, make_table, tie_rule
from reward.metaeval.intervals import RESAMPLES, Interval
from reward.metaeval.resampling import draw_clusters

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Columns are the aspects and, if several, "mean", the mean of their statistics, which is the headline: a metric with
    one score for everything is held against each aspect in turn. Of pairs they are the categories and, if several,
    "mean" (over the categories) and "overall" (all pairs together, also those without a category), in an arena without
    "mean"; of quadruples "text", "image", "group".

    Args:
        statistic: which one the estimates are of.
        estimates: {column: estimate with its 95 % interval, NaN to NaN where all is of one image}.
        headline: the column to rank metrics by.
        scored: items that count: those with all their scores.
        items: items of the benchmark.
        images: different ones of the items that count; the bootstrap draws them.
        counts: {column: judgments, pairs or quadruples}; "mean" has none.
        ties: {column: share of ties, 0 to 1}: of pairs of captions with equal scores; of pairs or quadruples with an
            equal comparison; of battles that the metric calls a tie. "mean" has none.
        tie_rule: what a tie counts, in words.
        details: {column: {statistic: value}}: tau_b, tau_c, spearman, pearson; or accuracy, auc, ap. "mean" has none.
        replicates: {column: the statistic on each resample (R,)}. Two evaluations with the same seed that scored the
            same items met the same resamples. NaN where a resample has nothing of a column.
        by_category: {category: the same of its captions alone}, of rated captions of several categories, such as tasks
            or sources; without those of which too few are scored. Of pairs, categories are columns.
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
    statistic: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Agreement of a metric's scores with the human judgments of a benchmark.

    Of rated captions, `BenchmarkSpec.judgments` says whether each rater's rating counts by itself, with the caption's
    score repeated, or their mean. Where captions are correct or incorrect, pairs that people call a tie do not count.
    In an arena battles against the source `human` do not count, and the threshold for ties is set once, on all battles.

    Args:
        benchmark: the items; see `load_benchmark`.
        scores: (N, K), a row an item and a column a caption, NaN where there is no score; or {aspect: (N, K)}.
        statistic: another one than the benchmark's own: "tau-b", "tau-c", "spearman" or "pearson" of rated captions,
            "accuracy", "auc", "ap" or "agreement" of pairs; of quadruples the headline. None is the benchmark's own.
        resamples: of the bootstrap, which draws whole images, see `draw_clusters`.
        seed: of the bootstrap.

    Raises:
        ValueError: scores of another shape, infinite, or too few; no such statistic; or resamples below 1.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=20)
        >>> words = [[len(item.candidate.split())] for item in scenes.items]
        >>> found = evaluate(scenes, np.array(words), resamples=100)
        >>> list(found.estimates), found.headline
        (['descriptiveness', 'relevance', 'fluency', 'mean'], 'mean')
    """
    statistic = check_statistic(benchmark, statistic)
    checked = check_scores(benchmark, scores)
    table = make_table(benchmark, checked, statistic)
    draws = draw_clusters(table.strata, resamples=resamples, seed=seed)
    whole = np.ones_like(draws[:1])  # each image once: the estimate itself
    values = table.resampled(np.concatenate([whole, draws]))
    return Evaluation(
        statistic=statistic,
        estimates=table.intervals(values),
        headline=table.headline,
        scored=table.scored,
        items=len(benchmark.items),
        images=len(table.strata),
        counts=table.counts,
        ties=table.ties,
        tie_rule=tie_rule(benchmark, statistic),
        details={
            name: {kind.replace("-", "_"): float(rows.resampled(whole)[0]) for kind, rows in kinds.items()}
            for name, kinds in table.details.items()
        },
        replicates={name: found[1:] for name, found in values.items()},
        by_category={
            name: evaluate(part, own, statistic=statistic, resamples=resamples, seed=seed)
            for name, part, own in _categories(benchmark, checked)
        },
    )


def _categories(
    benchmark: Benchmark, scores: dict[str, np.ndarray]
) -> Iterator[tuple[str, Benchmark, dict[str, np.ndarray]]]:
    """Name, items and scores of each category of rated captions that has enough scores, if there are several."""
    categories = [item.category for item in benchmark.items]
    if benchmark.spec.form is not RatedCaption or len(set(categories)) == 1:
        return
    for name in sorted(set(categories) - {""}):
        members = np.array([category == name for category in categories])
        part = replace(benchmark, items=list(compress(benchmark.items, members)))
        own = {aspect: scores[aspect][members] for aspect in part.aspects}
        if all(rows.sum() >= 2 for rows in judged_rows(part, own).values()):
            yield name, part, own
