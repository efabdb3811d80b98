"""Checkpoints: folders and the Hub to weights and back, and what a kept score belongs to."""
