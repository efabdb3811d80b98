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
from reward.metaeval.tables import markdown_table

__all__ = [
    "Comparison",
    "Interval",
    "bootstrap_weights",
    "compare_metrics",
    "compare_with_raters",
    "kendall_tau",
    "markdown_table",
    "mean_difference",
    "mean_interval",
    "percentile_interval",
    "tau_difference",
    "tau_interval",
]
