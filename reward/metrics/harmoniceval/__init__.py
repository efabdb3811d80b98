"""HarmonicEval: five criteria rated from 1 to 5 by a vision-language model, weighted by how sure it is of each."""

from reward.metrics.harmoniceval.aggregate import aggregate

__all__ = ["aggregate"]
