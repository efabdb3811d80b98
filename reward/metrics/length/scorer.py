"""LengthScorer: how many words a caption has, the baseline that every metric of long captions must beat."""

from __future__ import annotations

from reward.metrics.formula import FormulaScorer
from reward.metrics.length.spec import SPEC
from reward.samples import CaptionSample

__all__ = ["LengthScorer"]


class LengthScorer(FormulaScorer):
    """Number of words, split at white space; image and references are not looked at.

    Example:
        >>> LengthScorer().score([CaptionSample("A red star on grass.")]).column("length").tolist()
        [5.0]
    """

    spec = SPEC

    def score_sample(self, sample: CaptionSample) -> list[float]:
        """Number of words of the candidate."""
        return [float(len(sample.candidate.split()))]
