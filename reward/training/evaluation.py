"""The figures of a training run: Kendall's tau-c with the ratings, or the accuracy on pairs of captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import TrainingError
from reward.metaeval.classification import roc_auc
from reward.metaeval.correlation import kendall_tau
from reward.metrics.base import MetricSpec
from reward.training.config import TrainingConfig
from reward.training.data import Judgements
from reward.training.pairs import CaptionPairs

if TYPE_CHECKING:
    from reward.training.trainer import MetricTrainer

__all__ = ["agreement", "evaluate_parts", "figures_of", "pair_accuracy"]


def agreement(
    scores: np.ndarray, targets: np.ndarray, aspect_ids: np.ndarray, aspects: Sequence[str]
) -> dict[str, float]:
    """Kendall's tau-c of each rated aspect, and their mean, by which training stops.

    Tau-c is 0 for an aspect of a single row, and where the scores or the targets are constant.

    Args:
        scores, targets: floats (N,).
        aspect_ids: integers (N,), the place in `aspects` of what each row rates.
        aspects: names of the metric's aspects.

    Returns:
        {"tau_c": mean, "tau_c_<aspect>": ..., "mse": mean squared error}.

    Raises:
        TrainingError: a score is not finite, so the training has diverged.

    Example:
        >>> agreement(np.array([0.1, 0.9]), np.array([0.0, 1.0]), np.array([0, 0]), ["relevance"])["tau_c"]
        1.0
    """
    scores, targets = _checked(scores), np.asarray(targets, dtype=np.float64)
    taus = {}
    for place, aspect in enumerate(aspects):
        rows = np.asarray(aspect_ids) == place
        if rows.any():
            taus[f"tau_c_{aspect}"] = kendall_tau(scores[rows], targets[rows]) if rows.sum() > 1 else 0.0
    return {"tau_c": sum(taus.values()) / len(taus), **taus, "mse": float(np.mean((scores - targets) ** 2))}


def pair_accuracy(
    scores: np.ndarray, targets: np.ndarray, kinds: np.ndarray, pairs: np.ndarray, categories: Sequence[str]
) -> dict[str, float]:
    """Share of pairs of each kind whose correct caption has the higher score, and their mean.

    Equal scores count as wrong.

    Args:
        scores: floats (N,), of both captions of N / 2 pairs, in any order.
        targets: 1 for correct and 0 for incorrect captions (N,).
        kinds: place in `categories` of each caption's kind of error (N,).
        pairs: number of each caption's pair (N,).
        categories: names of the kinds.

    Returns:
        {"accuracy": mean over the kinds, "accuracy_<category>": ..., "auc": area under the ROC curve of all captions}.

    Raises:
        TrainingError: a score is not finite, so the training has diverged.

    Example:
        >>> pair_accuracy(np.array([0.9, 0.1]), np.array([1, 0]), np.array([0, 0]), np.array([7, 7]), ["noun"])
        {'accuracy': 1.0, 'accuracy_noun': 1.0, 'auc': 1.0}
    """
    scores, correct = _checked(scores), np.asarray(targets) > 0.5
    order = np.lexsort((~correct, np.asarray(pairs)))  # pair by pair, the correct caption first
    first, second = scores[order][::2], scores[order][1::2]
    right, kinds = first > second, np.asarray(kinds)[order][::2]
    accuracies = {
        f"accuracy_{name}": float(right[kinds == place].mean())
        for place, name in enumerate(categories)
        if (kinds == place).any()
    }
    return {"accuracy": sum(accuracies.values()) / len(accuracies), **accuracies, "auc": roc_auc(scores, correct)}


def _checked(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64)
    lost = int((~np.isfinite(scores)).sum())
    if lost:
        raise TrainingError(
            f"{lost} of {len(scores)} scores are not finite: lower learning_rate, or use precision bf16 or fp32"
        )
    return scores


def figures_of(prediction: Any, rows: Judgements | CaptionPairs, spec: MetricSpec) -> dict[str, float]:
    """`agreement` or `pair_accuracy` of the predictions that a Trainer made for rows."""
    if isinstance(rows, CaptionPairs):
        targets, kinds, pairs = prediction.label_ids
        return pair_accuracy(prediction.predictions, targets, kinds, pairs, rows.categories)
    targets, aspect_ids = prediction.label_ids
    return agreement(prediction.predictions, targets, aspect_ids, spec.aspects)


def evaluate_parts(
    trainer: MetricTrainer, parts: Mapping[str, Judgements | CaptionPairs], config: TrainingConfig, spec: MetricSpec
) -> dict[str, dict[str, float]]:
    """Figures of every part that was not trained on; see `TrainingResult.figures`.

    Raises:
        TrainingError: the network gives every caption of the validation part the same score.
    """
    figures: dict[str, dict[str, float]] = {}
    for part, rows in parts.items():
        if part == config.train_part:
            continue
        views = {part: rows}
        if isinstance(rows, Judgements) and 0 < config.reference_free_rate < 1:
            views[f"{part} (reference-free)"] = rows.without_references()
        for name, view in views.items():
            output = trainer.predict(view.sorted_by_length())
            if part == config.validation_part:
                _check_learned(output.predictions, part)
            figures[name] = {
                **figures_of(output, view, spec),
                "n": len(view) // (2 if isinstance(view, CaptionPairs) else 1),
            }
    return figures


def _check_learned(scores: Any, part: str) -> None:
    """Refuses a network with constant scores, whose figures would look like those of a difficult task."""
    if len(scores) > 1 and scores.min() == scores.max():
        raise TrainingError(
            f"nothing was learned: every caption of the part {part!r} gets the score {scores.min():.6g}. Train longer "
            "(epochs, max_steps), with a higher learning_rate, or a shorter warm-up (warmup_ratio)"
        )
