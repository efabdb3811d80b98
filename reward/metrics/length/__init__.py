"""Baseline: the number of words of the caption."""
