"""How well metrics agree with human ratings, and whether one agrees better than another, with intervals."""

from reward.metaeval.agreement import Comparison, compare_metrics, compare_with_raters
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
from reward.metaeval.significance import Difference, compare, holm
from reward.metaeval.tables import markdown_table
from reward.metaeval.ties import tie_threshold, verdicts
from reward.metaeval.winoground import winoground_scores

__all__ = [
    "Comparison",
    "Difference",
    "Evaluation",
    "Interval",
    "PairBuild",
    "PairwiseResult",
    "average_precision",
    "bootstrap_weights",
    "build_pairs",
    "compare",
    "compare_metrics",
    "compare_with_raters",
    "evaluate",
    "first_different_token",
    "holm",
    "kendall_tau",
    "markdown_table",
    "mean_difference",
    "mean_interval",
    "pairwise_accuracy",
    "pearson",
    "percentile_interval",
    "read_pairs",
    "roc_auc",
    "spearman",
    "tau_difference",
    "tau_interval",
    "tie_threshold",
    "verdicts",
    "winoground_scores",
    "write_pairs",
]
