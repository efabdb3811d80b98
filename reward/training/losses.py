"""Losses over scores and human ratings, and over correct and incorrect captions: pure functions of tensors."""

from __future__ import annotations

import torch
from torch.nn import functional as F

__all__ = ["binary_cross_entropy", "mean_absolute_error", "mean_squared_error"]


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
    _check_shapes(scores, targets)
    return (scores.float() - targets.float()).square().mean()


def mean_absolute_error(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference, as `mean_squared_error` in all else (BEiTScore, section 3.2, second stage).

    Example:
        >>> mean_absolute_error(torch.tensor([0.5, 1.0]), torch.tensor([0.0, 1.0])).item()
        0.25
    """
    _check_shapes(scores, targets)
    return (scores.float() - targets.float()).abs().mean()


def binary_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of scores sigmoid(logits), computed from the logits (BEiTScore, section 3.2, first stage).

    Args:
        logits: floats (N,), scores before the sigmoid.
        targets: (N,), 1 for a correct caption and 0 for an incorrect one.

    Returns:
        A scalar of dtype float32.

    Raises:
        ValueError: the shapes differ.

    Example:
        >>> round(binary_cross_entropy(torch.tensor([0.0, 100.0]), torch.tensor([0.0, 1.0])).item(), 4)
        0.3466
    """
    _check_shapes(logits, targets)
    return F.binary_cross_entropy_with_logits(logits.float(), targets.float())


def _check_shapes(scores: torch.Tensor, targets: torch.Tensor) -> None:
    if scores.shape != targets.shape:
        raise ValueError(f"scores have shape {tuple(scores.shape)}, targets {tuple(targets.shape)}")
