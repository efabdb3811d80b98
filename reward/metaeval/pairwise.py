"""Pairwise accuracy and ROC AUC: how often a metric prefers the correct caption of a pair, per category of error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from reward.metaeval.agreement import MEAN
from reward.metaeval.classification import resampled_auc
from reward.metaeval.correlation import checked_pair
from reward.metaeval.intervals import RESAMPLES, Interval, percentile_interval
from reward.metaeval.resampling import column_mean, draw_clusters, number_clusters

__all__ = ["PairwiseResult", "pairwise_accuracy"]


@dataclass(frozen=True)
class PairwiseResult:
    """What `pairwise_accuracy` found. Tables have one entry a category, and "mean", the mean over the categories.

    Args:
        accuracy: share of pairs whose correct caption scores higher; equal scores count half, or as `ties` says.
        auc: probability that the correct caption of a pair scores higher than the incorrect caption of any pair of the
            category; equal scores count half.
        pooled_auc: the same over all pairs of all categories.
        pairs: number of pairs.
        ties: number of pairs with equal scores.
        rows: category and cluster of each pair.
        seed: of the bootstrap.
        replicates: {category or "mean": accuracy on each resample (R,)}.
    """

    accuracy: dict[str, Interval]
    auc: dict[str, Interval]
    pooled_auc: Interval
    pairs: dict[str, int]
    ties: dict[str, int]
    rows: tuple[tuple[str, Hashable], ...] = field(repr=False)
    seed: int = field(repr=False)
    replicates: dict[str, np.ndarray] = field(repr=False)

    def minus(self, other: PairwiseResult) -> dict[str, Interval]:
        """Accuracy of this minus accuracy of the other, for the categories that both have, and "mean".

        Two metrics on the same pairs are compared pair by pair, and need equal seeds, so that both meet the same
        resamples. Results on different pairs are compared as independent samples, and need different seeds.

        Raises:
            ValueError: the seeds, or the numbers of resamples, do not allow that.
        """
        paired = self.rows == other.rows
        if paired != (self.seed == other.seed):
            raise ValueError(
                "results on the same pairs must come from the same seed to be compared pair by pair"
                if paired
                else "results on different pairs must come from different seeds, for their resamples to be independent"
            )
        common = [name for name in self.replicates if name in other.replicates]
        if any(len(self.replicates[name]) != len(other.replicates[name]) for name in common):
            raise ValueError("the two results come from different numbers of resamples")
        return {
            name: percentile_interval(
                self.accuracy[name].value - other.accuracy[name].value, self.replicates[name] - other.replicates[name]
            )
            for name in common
        }


def pairwise_accuracy(
    correct_scores: np.ndarray,
    incorrect_scores: np.ndarray,
    categories: Sequence[str],
    *,
    clusters: Sequence[Hashable] | None = None,
    ties: Literal["half", "wrong"] = "half",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairwiseResult:
    """How often a metric scores the correct caption of a pair higher than the incorrect one, with 95 % intervals.

    The bootstrap draws clusters, among those that occur in the same categories where these are 20 or more; see
    `draw_clusters`.

    Args:
        correct_scores, incorrect_scores: finite numbers (N,), N at least 2: one pair a row.
        categories: what is wrong with each incorrect caption, N names.
        clusters: what each pair belongs to, such as its image; None takes the pairs as independent.
        ties: what equal scores count in the accuracy: `"half"` a pair, or nothing, as `"wrong"` ones.
        resamples: of the bootstrap.
        seed: of the bootstrap; see `PairwiseResult.minus`.

    Raises:
        ValueError: other shapes or lengths, a score that is not finite, a category named "mean", or another `ties`.

    Example:
        >>> good, bad = np.array([0.9, 0.8, 0.5, 0.2]), np.array([0.1, 0.7, 0.5, 0.6])
        >>> found = pairwise_accuracy(good, bad, ["count", "count", "action", "action"])
        >>> {name: interval.value for name, interval in found.accuracy.items()}, found.ties["action"]
        ({'action': 0.25, 'count': 1.0, 'mean': 0.625}, 1)
    """
    correct, incorrect = checked_pair(correct_scores, incorrect_scores)
    categories = list(categories)
    clusters = list(range(len(correct))) if clusters is None else list(clusters)
    if not len(correct) == len(categories) == len(clusters):
        raise ValueError(f"got {len(categories)} categories and {len(clusters)} clusters for {len(correct)} pairs")
    if ties not in ("half", "wrong"):
        raise ValueError(f'ties must be "half" or "wrong", got {ties!r}')
    if MEAN in categories:
        raise ValueError(f"no category may be named {MEAN!r}: the mean over the categories has that name")
    draws = _stratified_weights(categories, clusters, resamples=resamples, seed=seed)
    weights = np.concatenate([np.ones_like(draws[:1]), draws])
    tied = correct == incorrect
    wins = np.where(tied, 0.5 if ties == "half" else 0.0, correct > incorrect)
    accuracy: dict[str, np.ndarray] = {}
    auc: dict[str, np.ndarray] = {}
    for name in sorted(set(categories)):
        rows = np.array([category == name for category in categories])
        own = weights[:, rows]
        total = own.sum(axis=1)
        accuracy[name] = np.divide(own @ wins[rows], total, out=np.full(len(own), np.nan), where=total > 0)
        auc[name] = _auc(correct[rows], incorrect[rows], own)
    for table in (accuracy, auc):
        table[MEAN] = column_mean(list(table.values()))
    equal = Counter(category for category, tie in zip(categories, tied, strict=True) if tie)
    pairs = Counter(categories)
    return PairwiseResult(
        accuracy={name: _interval(values) for name, values in accuracy.items()},
        auc={name: _interval(values) for name, values in auc.items()},
        pooled_auc=_interval(_auc(correct, incorrect, weights)),
        pairs={name: pairs[name] for name in accuracy if name != MEAN},
        ties={name: equal[name] for name in accuracy if name != MEAN},
        rows=tuple(zip(categories, clusters, strict=True)),
        seed=seed,
        replicates={name: values[1:] for name, values in accuracy.items()},
    )


def _interval(values: np.ndarray) -> Interval:
    """Of the estimate and its replicates (1 + R,)."""
    return percentile_interval(values[0], values[1:])


def _auc(correct: np.ndarray, incorrect: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """ROC AUC of correct and incorrect captions, (R,), from how often each resample holds each pair, (R, N)."""
    labels = np.repeat([1, 0], len(correct))
    pairs = np.tile(np.arange(len(correct)), 2)
    return resampled_auc(np.concatenate([correct, incorrect]), labels, weights, clusters=pairs)


def _stratified_weights(
    categories: Sequence[str], clusters: Sequence[Hashable], *, resamples: int, seed: int
) -> np.ndarray:
    """How often each resample holds each pair (R, N); clusters are drawn among those of the same categories."""
    members = number_clusters(clusters)
    found: list[set[str]] = [set() for _ in range(members.max() + 1)]
    for category, cluster in zip(categories, members, strict=True):
        found[cluster].add(category)
    return draw_clusters([tuple(sorted(names)) for names in found], resamples=resamples, seed=seed)[:, members]
