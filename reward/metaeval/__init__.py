"""How well metrics agree with human ratings, and whether one agrees better than another, with intervals."""

from reward.metaeval.agreement import Comparison, compare_metrics, compare_with_raters
from reward.metaeval.correlation import kendall_tau
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
from reward.metaeval.tables import markdown_table

__all__ = [
    "Comparison",
    "Interval",
    "PairBuild",
    "PairwiseResult",
    "bootstrap_weights",
    "build_pairs",
    "compare_metrics",
    "compare_with_raters",
    "first_different_token",
    "kendall_tau",
    "markdown_table",
    "mean_difference",
    "mean_interval",
    "pairwise_accuracy",
    "percentile_interval",
    "read_pairs",
    "tau_difference",
    "tau_interval",
    "write_pairs",
]
