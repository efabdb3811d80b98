"""From the scores of a benchmark's captions to the columns of a table: what is counted in each, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from reward.metaeval.benchmarks.forms import OVERALL, Benchmark, CaptionPair, Quadruple, RatedCaption
from reward.metaeval.classification import resampled_auc, resampled_precision
from reward.metaeval.correlation import resampled_pearson, resampled_spearman, resampled_tau
from reward.metaeval.resampling import number_clusters
from reward.metaeval.ties import tie_threshold, verdicts
from reward.metaeval.winoground import winoground_scores
from reward.metrics.caparena.battles import HUMAN

__all__ = ["MEAN", "STATISTICS", "Column", "Scores", "Table", "checked_scores", "checked_statistic", "make_table"]

MEAN = "mean"  # the column of the mean over the aspects or categories
STATISTICS = {
    RatedCaption: ("tau-c", "tau-b", "spearman", "pearson"),
    CaptionPair: ("accuracy", "auc", "ap", "agreement"),
    Quadruple: ("group", "text", "image"),
}
Scores = np.ndarray | Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Column:
    """Rows that one statistic is computed of.

    Args:
        statistic: one of `STATISTICS`, or `"mean"` of the values.
        values: scores, or what each item counts, (n,).
        targets: ratings or labels, (n,); without meaning for `"mean"`.
        clusters: number of each row's cluster, (n,).
    """

    statistic: str
    values: np.ndarray
    targets: np.ndarray
    clusters: np.ndarray

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The statistic on resamples (R, K) of clusters, (R,)."""
        if self.statistic == "mean":
            totals = [
                np.bincount(self.clusters, part, weights.shape[1]) for part in (self.values, np.ones(len(self.values)))
            ]
            return (weights @ totals[0]) / (weights @ totals[1])
        if self.statistic.startswith("tau"):
            variant = "b" if self.statistic == "tau-b" else "c"
            return resampled_tau(self.values, self.targets, weights, variant=variant, clusters=self.clusters)
        function = {
            "spearman": resampled_spearman,
            "pearson": resampled_pearson,
            "auc": resampled_auc,
            "ap": resampled_precision,
        }[self.statistic]
        return function(self.values, self.targets, weights, clusters=self.clusters)

    def joined(self, other: Column, clusters: int) -> Column:
        """Rows of this and of the other column, those of the other in clusters of their own, from number K on."""
        return Column(
            self.statistic,
            np.concatenate([self.values, other.values]),
            np.concatenate([self.targets, other.targets]),
            np.concatenate([self.clusters, other.clusters + clusters]),
        )


@dataclass(frozen=True)
class Table:
    """The columns of a benchmark for one metric.

    Args:
        columns: {name: rows}.
        averaged: names of the columns whose mean is the column "mean"; empty where there is none.
        headline: name of the column to rank by.
        strata: of each cluster, the columns that it occurs in; its length is K.
        scored: items that count.
        ties: {column: share of ties}.
        details: {column: {statistic: rows}}.
    """

    columns: dict[str, Column]
    averaged: tuple[str, ...]
    headline: str
    strata: tuple[tuple[str, ...], ...]
    scored: int
    ties: dict[str, float]
    details: dict[str, dict[str, Column]]

    def resampled(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Each column's statistic on resamples (R, K) of clusters, (R,)."""
        return with_mean({name: column.resampled(weights) for name, column in self.columns.items()}, self.averaged)


def with_mean(values: dict[str, np.ndarray], averaged: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The values and, after those it is the mean of, the column "mean"."""
    if not averaged:
        return values
    mean = np.mean([values[name] for name in averaged], axis=0)
    return {**{name: values[name] for name in averaged}, MEAN: mean, **values}


def checked_statistic(benchmark: Benchmark, statistic: str | None) -> str:
    """The statistic asked for, or the benchmark's own.

    Raises:
        ValueError: the form of the benchmark has no such statistic.
    """
    statistic = statistic or benchmark.spec.statistic
    known = STATISTICS[benchmark.spec.form]
    if statistic not in known:
        raise ValueError(f"{benchmark.spec.title} has no statistic {statistic!r}; it has: {', '.join(known)}")
    return statistic


def checked_scores(benchmark: Benchmark, scores: Scores, what: str = "scores") -> dict[str, np.ndarray]:
    """{aspect: scores (N, K)}, or {"overall": scores} for pairs and quadruples; NaN is no score.

    Raises:
        ValueError: another shape, an aspect is missing, or an infinite score.
    """
    aspects = benchmark.aspects or (OVERALL,)
    given = scores if isinstance(scores, Mapping) else dict.fromkeys(aspects, scores)
    missing = [name for name in aspects if name not in given]
    if missing:
        raise ValueError(f"{what} lack the aspect {missing[0]!r}; they have: {', '.join(given) or 'none'}")
    shape = (len(benchmark.items), benchmark.captions_per_item)
    found = {}
    for name in aspects:
        array = np.asarray(given[name], dtype=np.float64)
        if array.shape == shape[:1] and shape[1] == 1:
            array = array[:, None]
        if array.shape != shape:
            raise ValueError(f"{what} must have shape {shape}: a row an item, a column a caption; got {array.shape}")
        if np.isinf(array).any():
            raise ValueError(f"{what} hold {int(np.isinf(array).sum())} infinite numbers; what has no score is NaN")
        found[name] = array
    return found


def make_table(benchmark: Benchmark, scores: Mapping[str, np.ndarray], statistic: str) -> Table:
    """The columns of a benchmark, of the items that have all their scores.

    Raises:
        ValueError: no item has a score.
    """
    if benchmark.spec.form is RatedCaption:
        return _rated(benchmark, scores, statistic)
    has_score = np.isfinite(scores[OVERALL]).all(axis=1)
    if not has_score.any():
        raise ValueError(f"no item of {benchmark.spec.title} has a score")
    if benchmark.spec.form is Quadruple:
        return _quadruples(benchmark, scores[OVERALL], has_score)
    return _pairs(benchmark, scores[OVERALL], has_score, statistic)


def _image_ids(items: list[RatedCaption] | list[CaptionPair] | list[Quadruple]) -> np.ndarray:
    """Cluster of each item: its image, or itself where none is named."""
    return number_clusters(
        [("image", item.image_id) if item.image_id else ("item", place) for place, item in enumerate(items)]
    )


def _strata(columns: Mapping[str, Column], count: int) -> tuple[tuple[str, ...], ...]:
    found: list[list[str]] = [[] for _ in range(count)]
    for name, column in columns.items():
        for cluster in np.unique(column.clusters):
            found[cluster].append(name)
    return tuple(map(tuple, found))


def _rated(benchmark: Benchmark, scores: Mapping[str, np.ndarray], statistic: str) -> Table:
    any_score = np.zeros(len(benchmark.items), dtype=bool)
    for aspect, values in scores.items():
        any_score |= np.isfinite(values[:, 0]) & np.array([aspect in item.ratings for item in benchmark.items])
    if not any_score.any():
        raise ValueError(f"no item of {benchmark.spec.title} has a score")
    items = [item for item, has in zip(benchmark.items, any_score, strict=True) if has]
    clusters = _image_ids(items)
    columns, details, ties = {}, {}, {}
    for aspect, values in scores.items():
        own = values[any_score, 0]
        rows = [place for place, item in enumerate(items) if aspect in item.ratings and np.isfinite(own[place])]
        if len(rows) < 2:
            raise ValueError(
                f"{len(rows)} captions of {benchmark.spec.title} have a score and a rating for {aspect!r}; a correlation needs at least 2"
            )
        ratings = [items[row].ratings[aspect] for row in rows]
        if benchmark.spec.judgments == "mean":
            repeats, targets = np.ones(len(rows), dtype=int), np.array([np.mean(given) for given in ratings])
        else:
            repeats, targets = (
                np.array([len(given) for given in ratings]),
                np.array([x for given in ratings for x in given]),
            )
        places = np.repeat(rows, repeats)
        columns[aspect] = Column(statistic, own[places], targets, clusters[places])
        details[aspect] = {name: replace(columns[aspect], statistic=name) for name in STATISTICS[RatedCaption]}
        ties[aspect] = _equal_share(own[rows])
    several = len(columns) > 1
    return Table(
        columns=columns,
        averaged=tuple(columns) if several else (),
        headline=MEAN if several else next(iter(columns)),
        strata=_strata(columns, int(clusters.max()) + 1),
        scored=len(items),
        ties=ties,
        details=details,
    )


def _pairs(benchmark: Benchmark, scores: np.ndarray, has_score: np.ndarray, statistic: str) -> Table:
    arena = statistic == "agreement"
    counts = [(HUMAN not in (item.systems or ())) if arena else item.label is not None for item in benchmark.items]
    kept = np.flatnonzero(has_score & np.array(counts))
    if not len(kept):
        raise ValueError(f"no pair of {benchmark.spec.title} that counts has scores")
    items = [benchmark.items[place] for place in kept]
    clusters, both = _image_ids(items), scores[kept]
    differences = both[:, 0] - both[:, 1]
    human = np.array([0 if item.label is None else 1 - 2 * item.label for item in items])
    if arena:
        said = verdicts(differences, tie_threshold(differences, int((human == 0).sum())))
        right, tied = (said == human).astype(float), said == 0
    else:
        tied = differences == 0
        right = np.where(tied, 0.5 if benchmark.spec.ties == "half" else 0.0, np.sign(differences) == human)
    categories = np.array([item.category for item in items], dtype=object)
    groups = {name: categories == name for name in sorted(set(categories))}
    named = [name for name in groups if name]
    averaged: tuple[str, ...] = ()
    if len(groups) > 1:
        averaged = () if arena else tuple(groups)
        parts = {**groups, OVERALL: np.ones(len(items), dtype=bool)}
    elif named:
        parts = groups
    else:
        parts = {OVERALL: np.ones(len(items), dtype=bool)}
    columns, details = {}, {}
    for name, rows in parts.items():
        rows = np.flatnonzero(rows)
        of_items = Column("mean", right[rows], right[rows], clusters[rows])
        if arena:
            columns[name], details[name] = of_items, {"agreement": of_items}
            continue
        labels = np.stack([human[rows] == 1, human[rows] == -1], axis=1).astype(float)
        auc = Column("auc", both[rows].ravel(), labels.ravel(), np.repeat(clusters[rows], 2))
        details[name] = {"accuracy": of_items, "auc": auc, "ap": replace(auc, statistic="ap")}
        columns[name] = details[name][statistic]
    return Table(
        columns=columns,
        averaged=averaged,
        headline=MEAN if averaged else list(columns)[-1],
        strata=_strata(
            {name: column for name, column in columns.items() if name in groups} or columns, int(clusters.max()) + 1
        ),
        scored=len(items),
        ties={name: float(tied[rows].mean()) for name, rows in parts.items()},
        details=details,
    )


def _quadruples(benchmark: Benchmark, scores: np.ndarray, has_score: np.ndarray) -> Table:
    kept = np.flatnonzero(has_score)
    clusters = _image_ids([benchmark.items[place] for place in kept])
    scores = scores[kept]
    columns = {
        name: Column("mean", right.astype(float), right.astype(float), clusters)
        for name, right in winoground_scores(scores).items()
    }
    text = (scores[:, 0] == scores[:, 1]) | (scores[:, 2] == scores[:, 3])
    image = (scores[:, 0] == scores[:, 2]) | (scores[:, 1] == scores[:, 3])
    ties = {"text": text, "image": image, "group": text | image}
    return Table(
        columns=columns,
        averaged=(),
        headline="group",
        strata=_strata(columns, int(clusters.max()) + 1),
        scored=len(kept),
        ties={name: float(tied.mean()) for name, tied in ties.items()},
        details={name: {name: column} for name, column in columns.items()},
    )


def _equal_share(values: np.ndarray) -> float:
    """Share of the pairs of captions whose scores are equal."""
    counts = np.unique(values, return_counts=True)[1].astype(float)
    return float((counts**2 - counts).sum() / (len(values) * (len(values) - 1)))
