"""Losses over scores and human ratings: pure functions of tensors."""

from __future__ import annotations

import torch

__all__ = ["mean_squared_error"]


def mean_squared_error(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean squared difference, in float32 whatever autocast computes the scores in.

    Args:
        scores: floats (N,) in [0, 1].
        targets: mean human ratings (N,), the five-point scale mapped to [0, 1].

    Returns:
        A scalar of dtype float32.

    Raises:
        ValueError: the shapes differ; broadcasting would train on every pair of rows.

    Example:
        >>> mean_squared_error(torch.tensor([0.5, 1.0]), torch.tensor([0.0, 1.0])).item()
        0.125
    """
    if scores.shape != targets.shape:
        raise ValueError(f"scores have shape {tuple(scores.shape)}, targets {tuple(targets.shape)}")
    return (scores.float() - targets.float()).square().mean()
