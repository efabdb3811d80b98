"""Baseline: words that the caption shares with its references."""
