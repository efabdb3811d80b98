"""Winoground's three scores: whether a metric matches two captions with their two images."""

from __future__ import annotations

import numpy as np

__all__ = ["winoground_scores"]


def winoground_scores(scores: np.ndarray) -> dict[str, np.ndarray]:
    """Whether each quadruple is right, in three senses; all comparisons are strict, so equal scores are wrong.

    Text: each image scores higher with its own caption. Image: each caption scores higher with its own image. Group:
    both. Chance is 1/4, 1/4 and 1/6.

    Args:
        scores: finite numbers (N, 4): caption 0 with image 0, caption 1 with image 0, caption 0 with image 1,
            caption 1 with image 1.

    Returns:
        {"text": (N,), "image": (N,), "group": (N,)}, booleans; their means are the benchmark's scores.

    Raises:
        ValueError: another shape, or a number that is not finite.

    Source: Thrush et al., "Winoground", 2022, section 3.

    Example:
        >>> {name: right.tolist() for name, right in winoground_scores(np.array([[0.9, 0.2, 0.3, 0.1]])).items()}
        {'text': [False], 'image': [False], 'group': [False]}
        >>> winoground_scores(np.array([[0.9, 0.2, 0.95, 0.97]]))["text"]
        array([ True])
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != 4:
        raise ValueError(f"scores must have shape (N, 4), got {scores.shape}")
    lost = int((~np.isfinite(scores)).any(axis=1).sum())
    if lost:
        raise ValueError(f"{lost} of {len(scores)} quadruples have a score that is not finite: leave them out")
    own0, other0, other1, own1 = scores.T  # by image: its own caption, the other's
    text = (own0 > other0) & (own1 > other1)
    image = (own0 > other1) & (own1 > other0)
    return {"text": text, "image": image, "group": text & image}
