"""FLEUR and RefFLEUR: a vision-language model writes a number from 0.0 to 1.0, whose digits are smoothed."""

from reward.metrics.fleur.smoothing import smoothed_score

__all__ = ["smoothed_score"]
