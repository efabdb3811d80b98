"""The figures of a training run: Kendall's tau-c with the ratings, or the accuracy on pairs of captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import TrainingError
from reward.metaeval.bootstrap import Interval, bootstrap_weights, resampled
from reward.metaeval.classification import roc_auc
from reward.metaeval.correlation import kendall_tau
from reward.metrics.base import MetricSpec
from reward.training.caption_pairs import CaptionPairs
from reward.training.config import TrainingConfig
from reward.training.judgements import Judgements
from reward.training.rows import TrainingRows
from reward.training.splits import VALIDATION

if TYPE_CHECKING:
    from reward.training.trainer import MetricTrainer


def rating_figures(
    scores: np.ndarray, targets: np.ndarray, aspect_ids: np.ndarray, aspects: Sequence[str]
) -> dict[str, float]:
    """Kendall's tau-c of each rated aspect, and their mean, by which training stops.

    Tau-c is 0 for an aspect of a single row, and where the scores or the targets are constant.

    Args:
        scores, targets: floats (N,).
        aspect_ids: integers (N,), the index in `aspects` of what each row rates.
        aspects: names of the metric's aspects.

    Returns:
        {"tau_c": mean, "tau_c_<aspect>": ..., "mse": mean squared error}.

    Example:
        >>> rating_figures(np.array([0.1, 0.9]), np.array([0.0, 1.0]), np.array([0, 0]), ["relevance"])["tau_c"]
        1.0
    """
    scores, targets = _checked(scores), np.asarray(targets, dtype=np.float64)
    taus = {}
    for number, aspect in enumerate(aspects):
        rows = np.asarray(aspect_ids) == number
        if rows.any():
            taus[f"tau_c_{aspect}"] = float(np.nan_to_num(kendall_tau(scores[rows], targets[rows])))
    return {"tau_c": sum(taus.values()) / len(taus), **taus, "mse": float(np.mean((scores - targets) ** 2))}


def pair_accuracy(
    scores: np.ndarray, targets: np.ndarray, kinds: np.ndarray, categories: Sequence[str]
) -> dict[str, float]:
    """Share of pairs of each kind whose correct caption has the higher score, and their mean.

    Equal scores count as wrong.

    Args:
        scores: floats (N,), of both captions of N / 2 pairs, pair by pair, the correct one first.
        targets: 1 for correct and 0 for incorrect captions (N,).
        kinds: index in `categories` of each caption's kind of error (N,).
        categories: names of the kinds.

    Returns:
        {"accuracy": mean over the kinds, "accuracy_<category>": ..., "auc": area under the ROC curve of all captions}.

    Example:
        >>> pair_accuracy(np.array([0.9, 0.1]), np.array([1, 0]), np.array([0, 0]), ["noun"])
        {'accuracy': 1.0, 'accuracy_noun': 1.0, 'auc': 1.0}
    """
    scores, correct = _checked(scores), np.asarray(targets) > 0.5
    is_right = scores[::2] > scores[1::2]  # strictly: a metric that gives all captions one score ranks no pair
    kinds_of_pairs = np.asarray(kinds)[::2]
    accuracies = {}
    for kind, category in enumerate(categories):
        rows = kinds_of_pairs == kind
        if rows.any():
            accuracies[f"accuracy_{category}"] = float(is_right[rows].mean())
    return {"accuracy": sum(accuracies.values()) / len(accuracies), **accuracies, "auc": roc_auc(scores, correct)}


def accuracy_interval(scores: np.ndarray, kinds: np.ndarray) -> Interval:
    """The accuracy of `pair_accuracy` with its 95 % interval over resamples of pairs.

    Args:
        scores, kinds: as there.

    Example:
        >>> str(accuracy_interval(np.array([0.9, 0.1] * 9 + [0.1, 0.9]), np.zeros(20, int)))
        '0.900 [0.700, 1.000]'
    """

    def mean_over_kinds(is_right: np.ndarray, kinds: np.ndarray) -> float:
        pairs = np.bincount(kinds)
        return float((np.bincount(kinds, is_right)[pairs > 0] / pairs[pairs > 0]).mean())

    is_right = (scores[::2] > scores[1::2]).astype(np.float64)
    weights = bootstrap_weights(len(is_right))
    return Interval.of(resampled(mean_over_kinds, [is_right, np.asarray(kinds)[::2]], weights))


def _checked(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64)
    lost = int((~np.isfinite(scores)).sum())
    if lost:
        raise TrainingError(
            f"{lost} of {len(scores)} scores are not finite: lower learning_rate, or use precision bf16 or fp32"
        )
    return scores


def figures_of(prediction: Any, rows: TrainingRows, spec: MetricSpec) -> dict[str, float]:
    """`rating_figures` or `pair_accuracy` of the predictions that a Trainer made for rows."""
    targets, aspects = prediction.label_ids
    if isinstance(rows, CaptionPairs):
        return pair_accuracy(prediction.predictions, targets, aspects, rows.categories)
    return rating_figures(prediction.predictions, targets, aspects, spec.aspects)


def compare_figures(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[str, float]:
    """The figure that counts before and after a training, in words, and by how much it rose.

    Example:
        >>> compare_figures({"tau_c": 0.25}, {"tau_c": 0.5})
        ("Kendall's tau-c x 100 was 25.0 and is 50.0", 0.25)
    """
    name, words = "tau_c", "Kendall's tau-c x 100"
    if "accuracy" in after:
        name, words = "accuracy", "pairs ranked right x 100"
    rise = after[name] - before[name]
    return f"{words} was {100 * before[name]:.1f} and is {100 * after[name]:.1f}", rise


def predicted_figures(
    trainer: MetricTrainer, rows: TrainingRows, spec: MetricSpec, *, learned: str = ""
) -> dict[str, float]:
    """Figures of a network on rows, with their number n.

    Args:
        trainer: has the network.
        rows: what is predicted.
        spec: facts of the metric.
        learned: refuse a network with constant scores, whose figures would look like those of a difficult task, on
            what is called so.
    """
    compute, trainer.compute_metrics = trainer.compute_metrics, None  # it knows the validation part only
    output = trainer.predict(rows.sorted_by_length())
    trainer.compute_metrics = compute
    scores = output.predictions
    if learned and len(scores) > 1 and scores.min() == scores.max():
        raise TrainingError(
            f"nothing was learned: every caption of the part {learned!r} gets the score {scores.min():.6g}. Train "
            "longer (epochs, max_steps), with a higher learning_rate, or a shorter warm-up (warmup_ratio)"
        )
    figures = {**figures_of(output, rows, spec), "n": len(rows) // rows.step}
    if isinstance(rows, CaptionPairs):
        interval = accuracy_interval(scores, output.label_ids[1])
        figures |= {"low": interval.low, "high": interval.high}
    return figures


def evaluate_parts(
    trainer: MetricTrainer, rows: Mapping[str, TrainingRows], config: TrainingConfig, spec: MetricSpec
) -> dict[str, dict[str, float]]:
    """Figures of every part that was not trained on, {part: figures}; see `TrainingResult.figures`."""
    figures: dict[str, dict[str, float]] = {}
    for part in dict.fromkeys((VALIDATION, *config.test_parts)):
        if part not in rows:
            continue
        views = {part: rows[part]}
        judgements = rows[part]
        if isinstance(judgements, Judgements) and 0 < config.reference_free_rate < 1:
            views[f"{part} (reference-free)"] = judgements.without_references()
        for name, view in views.items():
            figures[name] = predicted_figures(trainer, view, spec, learned=name if part == VALIDATION else "")
    return figures
