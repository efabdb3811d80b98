"""How well a metric agrees with people on one benchmark: every column with its interval, ties, other statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reward.metaeval.benchmarks.forms import Benchmark
from reward.metaeval.columns import Scores, checked_scores, checked_statistic, make_table
from reward.metaeval.intervals import RESAMPLES, Interval, percentile_interval
from reward.metaeval.resampling import draw_clusters

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Args:
        statistic: which one the estimates are of.
        estimates: {column: estimate with its 95 % interval}. Columns are the aspects and, if several, "mean"; of pairs
            the categories and, if several, "mean" (over the categories) and "overall" (over all pairs), in an arena
            without "mean"; of quadruples "text", "image" and "group".
        headline: the column to rank metrics by.
        scored: items that count: those with all their scores.
        items: items of the benchmark.
        ties: {column: share of ties}: of pairs of captions with equal scores, of pairs or quadruples with an equal
            comparison, or of battles that the metric calls a tie.
        details: {column: {statistic: value}}: tau_b, tau_c, spearman, pearson; or accuracy, auc, ap.
        replicates: {column: the statistic on each resample (R,)}; two evaluations with the same items scored and the
            same seed met the same resamples.
    """

    statistic: str
    estimates: dict[str, Interval]
    headline: str
    scored: int
    items: int
    ties: dict[str, float]
    details: dict[str, dict[str, float]]
    replicates: dict[str, np.ndarray] = field(repr=False)


def evaluate(
    benchmark: Benchmark,
    scores: Scores,
    *,
    statistic: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Agreement of a metric's scores with the human judgments of a benchmark.

    Args:
        benchmark: the items; see `load_benchmark`.
        scores: (N, K), a row an item and a column a caption, NaN where there is no score; or {aspect: (N, K)}.
        statistic: another one than the benchmark's own: "tau-b", "tau-c", "spearman" or "pearson" of rated captions,
            "accuracy", "auc", "ap" or "agreement" of pairs; None is the benchmark's own.
        resamples: of the bootstrap, which draws whole images.
        seed: of the bootstrap.

    Raises:
        ValueError: scores of another shape, infinite, or none at all; or no such statistic.

    Example:
        >>> from reward.metaeval.benchmarks import load_benchmark
        >>> scenes = load_benchmark("scenes", limit=20)
        >>> words = [[len(item.candidate.split())] for item in scenes.items]
        >>> found = evaluate(scenes, np.array(words), resamples=100)
        >>> list(found.estimates), found.headline
        (['descriptiveness', 'relevance', 'fluency', 'mean'], 'mean')
    """
    statistic = checked_statistic(benchmark, statistic)
    table = make_table(benchmark, checked_scores(benchmark, scores), statistic)
    whole = np.ones((1, len(table.strata)))
    values = table.resampled(np.concatenate([whole, draw_clusters(table.strata, resamples=resamples, seed=seed)]))
    return Evaluation(
        statistic=statistic,
        estimates={name: percentile_interval(found[0], found[1:]) for name, found in values.items()},
        headline=table.headline,
        scored=table.scored,
        items=len(benchmark.items),
        ties=table.ties,
        details={
            name: {kind.replace("-", "_"): float(rows.resampled(whole)[0]) for kind, rows in kinds.items()}
            for name, kinds in table.details.items()
        },
        replicates={name: found[1:] for name, found in values.items()},
    )
