"""Whether two scorers give the same scores: a port and its original, a service and the model in it, two checkpoints."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import DataError
from reward.metaeval.correlation import kendall_tau, pearson, spearman
from reward.metric_source import MetricSource
from reward.scoring.dataset import score_dataset
from reward.scoring.readers import open_source

__all__ = ["AspectMatch", "Match", "match_rows"]

REWARD = "reward"  # the weighted mean, as `capreward score` calls it


@dataclass(frozen=True)
class AspectMatch:
    """Differences of two scorers in one aspect, over the rows that both have scored.

    Args:
        rows: how many those are.
        largest, mean: of the absolute differences.
        correlation: Pearson's; 0 where one side is constant.
        ranks: Spearman's.
        tau: Kendall's tau-b: 1 where all pairs are in the same order.
        worst: rows with the largest differences: {row, first, second, difference}, the row counted from 1.
    """

    rows: int
    largest: float
    mean: float
    correlation: float
    ranks: float
    tau: float
    worst: list[dict[str, Any]]


@dataclass(frozen=True)
class Match:
    """Two scorers on the same rows.

    Args:
        first, second: their labels.
        aspects: {aspect: differences}; `reward` alone if they share no aspect or one is a column.
        rows: rows of the data.
        only_first, only_second, neither: rows that have a score of that side alone, or of none.
        problem: the first error, if a row has no score.
    """

    first: str
    second: str
    aspects: dict[str, AspectMatch]
    rows: int
    only_first: int
    only_second: int
    neither: int
    problem: str = ""

    @property
    def largest(self) -> float:
        """The largest absolute difference over all aspects."""
        return max(each.largest for each in self.aspects.values())

    def exceeds(self, tolerance: float) -> bool:
        """Whether a difference is above the tolerance, or a row has a score of one side only."""
        return self.largest > tolerance or self.only_first + self.only_second > 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "largest": self.largest}


def match_rows(
    data: str | os.PathLike[str],
    first: str | MetricSource | Any,
    second: str | MetricSource | Any,
    *,
    worst: int = 5,
    **options: Any,
) -> Match:
    """Scores the rows of a data file with two scorers and compares the scores.

    Args:
        data: as for `capreward score`.
        first, second: `"NAME"`, `"NAME=SOURCE"`, `"column:NAME"` for numbers that the data hold, a MetricSource, or a
            scorer.
        worst: how many rows with the largest differences to keep of each aspect.
        options: further arguments of `score_dataset`, such as image_root, batch_size and device.

    Raises:
        DataError: fewer than two rows have a score of both, or a column is not there or holds no numbers.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "rows.jsonl"
        ...     _ = file.write_text('{"caption": "a star", "words": 2}\\n{"caption": "a red star", "words": 4}\\n')
        ...     match_rows(file, "length", "column:words").aspects["reward"].largest
        1.0
    """
    (name_a, a, problem_a), (name_b, b, problem_b) = (_scores(data, each, options) for each in (first, second))
    shared = [name for name in a if name in b and name != REWARD] or [REWARD]
    aspects = {name: _compare(a[name], b[name], worst) for name in [*shared, REWARD] if name in a and name in b}
    has_a, has_b = np.isfinite(a[REWARD]), np.isfinite(b[REWARD])
    return Match(
        name_a,
        name_b,
        aspects,
        rows=len(has_a),
        only_first=int((has_a & ~has_b).sum()),
        only_second=int((has_b & ~has_a).sum()),
        neither=int((~has_a & ~has_b).sum()),
        problem=problem_a or problem_b,
    )


def _scores(data: Any, scorer: Any, options: dict[str, Any]) -> tuple[str, dict[str, np.ndarray], str]:
    """Label, {aspect: (N,)} with the reward, NaN where there is none, and the first error."""
    chosen = MetricSource.parse(scorer) if isinstance(scorer, str) else scorer
    if isinstance(chosen, MetricSource) and chosen.is_column:
        return chosen.label, {REWARD: _column(data, chosen.name, options.get("split"))}, ""
    loading: dict[str, Any] = {}
    label = type(chosen).__name__
    if isinstance(chosen, MetricSource):
        label, loading = chosen.label, {"source": chosen.source, "revision": chosen.revision}
        chosen = chosen.name
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "scores.jsonl"
        prefix = "capreward match "  # columns of the data may have the names of aspects
        score_dataset(data, chosen, output, prefix=prefix, **loading, **options)
        rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    names = [key for key in rows[0] if key.startswith(prefix) and not key.endswith((" truncated", " error"))]
    found = {name[len(prefix) :]: np.array([row[name] for row in rows], dtype=np.float64) for name in names}
    return label, found, next((row[f"{prefix}error"] for row in rows if row[f"{prefix}error"]), "")


def _column(data: Any, name: str, split: str | None) -> np.ndarray:
    source = open_source(data, split=split)
    if name not in source.columns:
        raise DataError(f"{source.name} has no column {name!r}; the columns are: {', '.join(source.columns)}")
    values = [row.get(name) if isinstance(row, dict) else None for row in source.rows([name])]
    try:
        return np.array([np.nan if value in (None, "") else float(value) for value in values], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {name!r} of {source.name} holds what is no number: {error}") from None


def _compare(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray, worst: int) -> AspectMatch:
    a, b = np.asarray(first), np.asarray(second)
    both = np.flatnonzero(np.isfinite(a) & np.isfinite(b))
    if len(both) < 2:
        raise DataError(f"{len(both)} rows have a score of both, and at least two are needed to compare them")
    a, b = a[both], b[both]
    gaps = np.abs(a - b)
    order = np.argsort(-gaps, kind="stable")[:worst]
    rows = [
        {"row": int(both[i]) + 1, "first": float(a[i]), "second": float(b[i]), "difference": float(gaps[i])}
        for i in order
        if gaps[i] > 0
    ]
    return AspectMatch(
        len(both),
        float(gaps.max()),
        float(gaps.mean()),
        pearson(a, b),
        spearman(a, b),
        kendall_tau(a, b, variant="b"),
        rows,
    )
