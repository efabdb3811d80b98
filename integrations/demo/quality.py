"""The truth about captions of scenes: what the oracle says of each, and how systems compare in it, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reward.metaeval import Interval, mean_difference, mean_interval
from reward.scenes import Oracle, Scene

__all__ = ["MEASURES", "Quality", "compare_systems", "judge_captions", "mean_quality"]

MEASURES = ("f1", "recall", "precision", "faults", "words")
Quality = dict[str, np.ndarray]  # {measure: (N,)}, one number a scene


def judge_captions(captions: Sequence[str], scenes: Sequence[Scene | str]) -> Quality:
    """Oracle F1, recall, precision and language faults, and the number of words, of one caption a scene.

    Example:
        >>> from reward.scenes import Entity
        >>> scene = Scene((Entity("star", "red", "big", "plain", 1, 0),), None, None, "beach")
        >>> judge_captions(["There is a small red star in the top left."], [scene])["precision"]
        array([0.8])
    """
    oracle = Oracle()
    verdicts = [oracle.score(caption, scene) for caption, scene in zip(captions, scenes, strict=True)]
    quality = {name: np.array([getattr(verdict, name) for verdict in verdicts], dtype=float) for name in MEASURES[:-1]}
    return quality | {"words": np.array([len(caption.split()) for caption in captions], dtype=float)}


def mean_quality(captions: Sequence[Sequence[str]], scenes: Sequence[Scene | str]) -> Quality:
    """The same for several captions a scene, averaged within the scene."""
    flat = [caption for group in captions for caption in group]
    owners = [scene for group, scene in zip(captions, scenes, strict=True) for _ in group]
    ends = np.cumsum([len(group) for group in captions])[:-1]
    return {
        name: np.array([part.mean() for part in np.split(values, ends)])
        for name, values in judge_captions(flat, owners).items()
    }


def compare_systems(
    systems: Mapping[str, Quality], pairs: Sequence[tuple[str, str]], weights: np.ndarray
) -> tuple[dict[str, dict[str, Interval]], dict[str, dict[str, Interval]]]:
    """Means of each system, and paired differences.

    Args:
        systems: {system: quality on the same N scenes}.
        pairs: systems whose difference, first minus second, is wanted.
        weights: (R, N), see `reward.metaeval.bootstrap_weights`.

    Returns:
        {system: {measure: mean}} and {"first - second": {measure: difference}}.
    """
    means = {
        name: {measure: mean_interval(values, weights) for measure, values in quality.items()}
        for name, quality in systems.items()
    }
    differences = {
        f"{first} - {second}": {
            measure: mean_difference(systems[first][measure], systems[second][measure], weights) for measure in MEASURES
        }
        for first, second in pairs
    }
    return means, differences
