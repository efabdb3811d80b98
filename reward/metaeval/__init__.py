"""How well metrics agree with people, and whether one agrees better than another, with intervals.

`load_benchmark` reads human judgments, `score_benchmark` runs a metric on their captions, `evaluate` holds scores
against them, `compare` tests the difference between two metrics. `measure` does all that for several metrics and
benchmarks, as `capreward bench` does. The other functions work on plain arrays.

Example:
    >>> from reward.metaeval import compare, evaluate, load_benchmark, score_benchmark
    >>> scenes = load_benchmark("scenes", limit=60)
    >>> unigram, length = (score_benchmark(scenes, name).for_aspects(scenes) for name in ("unigram", "length"))
    >>> found = evaluate(scenes, unigram, resamples=100)
    >>> found.headline, list(found.estimates)
    ('mean', ['descriptiveness', 'relevance', 'fluency', 'mean'])
    >>> compare(scenes, unigram, length, resamples=100, permutations=100).p_values["relevance"] < 0.05
    True
"""

from reward.metaeval.agreement import Comparison, compare_metrics, compare_with_raters
from reward.metaeval.bench import BenchTable, Candidate, measure
from reward.metaeval.benchmarks import Benchmark, benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.classification import average_precision, roc_auc
from reward.metaeval.correlation import kendall_tau, pearson, spearman
from reward.metaeval.evaluation import Evaluation, evaluate
from reward.metaeval.intervals import (
    Interval,
    bootstrap_weights,
    mean_difference,
    mean_interval,
    percentile_interval,
    tau_difference,
    tau_interval,
)
from reward.metaeval.pair_data import PairBuild, build_pairs, first_different_token, read_pairs, write_pairs
from reward.metaeval.pairwise import PairwiseResult, pairwise_accuracy
from reward.metaeval.scoring import BenchmarkScores, score_benchmark
from reward.metaeval.significance import Difference, compare, holm
from reward.metaeval.tables import markdown_table
from reward.metaeval.ties import tie_threshold, verdicts
from reward.metaeval.winoground import winoground_scores

__all__ = [
    "BenchTable",
    "Benchmark",
    "BenchmarkScores",
    "Candidate",
    "Comparison",
    "Difference",
    "Evaluation",
    "Interval",
    "PairBuild",
    "PairwiseResult",
    "average_precision",
    "benchmark_spec",
    "bootstrap_weights",
    "build_pairs",
    "compare",
    "compare_metrics",
    "compare_with_raters",
    "evaluate",
    "first_different_token",
    "holm",
    "kendall_tau",
    "list_benchmarks",
    "load_benchmark",
    "markdown_table",
    "mean_difference",
    "mean_interval",
    "measure",
    "pairwise_accuracy",
    "pearson",
    "percentile_interval",
    "read_pairs",
    "roc_auc",
    "score_benchmark",
    "spearman",
    "tau_difference",
    "tau_interval",
    "tie_threshold",
    "verdicts",
    "winoground_scores",
    "write_pairs",
]
