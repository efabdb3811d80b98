"""How well metrics agree with people, and whether one agrees better than another, with intervals.

`load_benchmark` reads human judgments, `score_benchmark` scores their captions with a metric, `evaluate` measures how
well the scores agree with the judgments, and `compare` tests the difference between two metrics. `run_bench` does all
that for several metrics and benchmarks, like `capreward bench`. The other functions work on plain arrays.

Example:
    >>> from reward.metaeval import compare, evaluate, load_benchmark, score_benchmark
    >>> scenes = load_benchmark("scenes", limit=60)
    >>> unigram, length = (score_benchmark(scenes, name).for_aspects(scenes) for name in ("unigram", "length"))
    >>> agreement = evaluate(scenes, unigram, resamples=100)
    >>> agreement.headline, list(agreement.estimates)
    ('mean', ['descriptiveness', 'relevance', 'fluency', 'mean'])
    >>> compare(scenes, unigram, length, resamples=100).p_values["relevance"] < 0.05
    True
"""

from reward.metaeval.bench import BenchTable, run_bench
from reward.metaeval.benchmark_scores import BenchmarkScores, score_benchmark
from reward.metaeval.benchmarks import Benchmark, benchmark_spec, list_benchmarks, load_benchmark
from reward.metaeval.benchmarks.own_ratings import load_ratings
from reward.metaeval.bootstrap import Interval, bootstrap_weights, mean_interval
from reward.metaeval.classification import average_precision, roc_auc, tie_threshold, verdicts, winoground_scores
from reward.metaeval.correlation import kendall_tau, pearson, spearman
from reward.metaeval.difference import Difference, compare, holm
from reward.metaeval.evaluation import Evaluation, evaluate
from reward.metaeval.raters import Comparison, compare_metrics, compare_with_raters

__all__ = [
    "BenchTable",
    "Benchmark",
    "BenchmarkScores",
    "Comparison",
    "Difference",
    "Evaluation",
    "Interval",
    "average_precision",
    "benchmark_spec",
    "bootstrap_weights",
    "compare",
    "compare_metrics",
    "compare_with_raters",
    "evaluate",
    "holm",
    "kendall_tau",
    "list_benchmarks",
    "load_benchmark",
    "load_ratings",
    "mean_interval",
    "pearson",
    "roc_auc",
    "run_bench",
    "score_benchmark",
    "spearman",
    "tie_threshold",
    "verdicts",
    "winoground_scores",
]
