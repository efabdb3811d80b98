"""The table of a benchmark: a row for each metric or score column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reward.metaeval.agreement import Comparison
from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.evaluation import Evaluation
from reward.metaeval.scoring import BenchmarkScores
from reward.registry import MetricSource

__all__ = ["BenchRow", "BenchTable"]


@dataclass(eq=False)
class BenchRow:
    """A metric or a score column on one benchmark.

    Args:
        metric: the metric or score column.
        captions: number of captions of the benchmark.
        scores: (N, K) or {aspect: (N, K)}; None if nothing could be scored.
        evaluation: agreement with the judgments; None if nothing could be scored.
        errors: number of captions without a score.
        problem: the first error, or why there is no evaluation.
        left_out: whether the benchmark lacks what the metric needs: the column, or references.
        run: time, devices, and numbers of new and cached scores; None for a score column.
        p: of the permutation test against the best row in the headline column; None for the best row.
        p_adjusted: p with Holm's correction for the number of rows.
    """

    metric: MetricSource
    captions: int
    scores: Any = None
    evaluation: Evaluation | None = None
    errors: int = 0
    problem: str = ""
    left_out: bool = False
    run: BenchmarkScores | None = None
    p: float | None = None
    p_adjusted: float | None = None


@dataclass(eq=False)
class BenchTable:
    """All rows on one benchmark.

    Args:
        benchmark: the benchmark.
        data: its path as it was given.
        rows: one a metric, in the order given.
        columns: aspects, categories, or parts of a score, and their mean.
        headline: the column by which rows are ranked.
        best: the row with the largest value in it; None if no row has one.
        raters, threshold: one rater against the others, and distance of failures; None without them.
    """

    benchmark: Benchmark
    data: str | None
    rows: list[BenchRow]
    columns: tuple[str, ...] = ()
    headline: str = ""
    best: BenchRow | None = field(default=None)
    raters: Comparison | None = None
    threshold: float | None = None
