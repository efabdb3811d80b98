"""Summary of a scoring run: counts, errors by kind, and the distribution of each aspect."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Distribution", "ScoringSummary", "SummaryBuilder", "summary_beside"]


@dataclass(frozen=True)
class Distribution:
    """Mean, standard deviation (population) and range of finite scores."""

    mean: float
    std: float
    min: float
    max: float


@dataclass
class ScoringSummary:
    """What a scoring run did.

    Args:
        output: file that was written.
        rows: rows of input and output.
        captions: captions in them (more than rows when reranking).
        scored: captions with a reward.
        truncated: captions of which some text was cut to fit the model.
        thinking_cut: captions from which reasoning was cut, on request.
        distinct: captions that are no repetition of another of their row, when lists are reranked; else 0.
        errors: {kind: count}; kinds are row, candidate, references, image, group and metric or, of several metrics, the
            name of the one that failed.
        examples: {kind: "row 7: message"}, the first of each kind; rows count from 1.
        distributions: {aspect or "reward": distribution}.
        resumed_rows: rows that an earlier, interrupted run had scored.
        new_rows: rows scored by this run.
        seconds: time this run spent scoring, without loading the model.
        images_decoded: images this run decoded.
        cache: {what is kept on disk: [entries found, entries computed]} by this run; empty without a cache.
        devices: those of the processes of this run; empty when it scored in its own process.
        columns: {role: column} that were read.
        checkpoints: {metric: its checkpoint as it was given}; None for a scorer object.
        image_root: where relative paths of images start, from the folder of the output.
        groups: groups of rows that were ranked, when each row has one candidate; else 0.
        already_done: True when the output was there already, of the same input and settings.
    """

    output: Path
    rows: int = 0
    captions: int = 0
    scored: int = 0
    truncated: int = 0
    thinking_cut: int = 0
    distinct: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    distributions: dict[str, Distribution] = field(default_factory=dict)
    resumed_rows: int = 0
    new_rows: int = 0
    seconds: float = 0.0
    images_decoded: int = 0
    cache: dict[str, list[int]] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    columns: dict[str, str | None] = field(default_factory=dict)
    checkpoints: dict[str, str | None] = field(default_factory=dict)
    image_root: str | None = None
    groups: int = 0
    already_done: bool = False

    @property
    def rows_per_second(self) -> float:
        """Rate of this run."""
        return self.new_rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for the summary file."""
        return {**asdict(self), "output": self.output.name, "rows_per_second": round(self.rows_per_second, 3)}

    @classmethod
    def from_json(cls, values: dict[str, Any], output: Path) -> ScoringSummary:
        """Reads what `to_json` gave."""
        left_out = ("output", "rows_per_second", "out_of_domain", "sources")  # the last two of older files
        known = {name: value for name, value in values.items() if name not in left_out}
        known["distributions"] = {name: Distribution(**value) for name, value in known["distributions"].items()}
        return cls(output=output, **known)


def summary_beside(data: Any) -> dict[str, Any]:
    """The summary beside a file that `capreward score`, `rerank` or `caption` wrote; empty without one."""
    if not isinstance(data, (str, os.PathLike)):
        return {}
    path = Path(data)
    name = path.name.removesuffix(".candidates.jsonl")  # of `caption --keep-candidates`, whose files share one
    try:
        found = json.loads(path.with_name(name + ".summary.json").read_text(encoding="utf-8"))["summary"]
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged, or another tool's file
        return {}
    return found if isinstance(found, dict) else {}


_COUNTS = ("rows", "captions", "scored", "truncated", "thinking_cut", "distinct")


class SummaryBuilder:
    """Counts results as they are written.

    Args:
        columns: names of the numbers, the aspects and "reward".
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.rows = self.captions = self.scored = self.truncated = self.thinking_cut = self.distinct = 0
        self.errors: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self._columns = {name: _Numbers() for name in columns}

    def add_error(self, kind: str, message: str, row: int) -> None:
        """Counts an error; `row` counts from 0."""
        self.errors[kind] = self.errors.get(kind, 0) + 1
        self.examples.setdefault(kind, f"row {row + 1}: {message}")

    def add_numbers(self, name: str, values: np.ndarray) -> None:
        """Adds scores of one column; NaN is left out."""
        self._columns[name].add(values[np.isfinite(values)])

    def record(self) -> dict[str, Any]:
        """What was counted, as JSON values that `add_record` takes."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        numbers = {name: each.moments() for name, each in self._columns.items() if each.count}
        return {**counts, "errors": self.errors, "examples": self.examples, "numbers": numbers}

    def add_record(self, record: dict[str, Any], place: str = "") -> None:
        """Adds what another builder counted in a part of the data; `place` names the part in examples, if it must."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + record.get(name, 0))
        for kind, count in record["errors"].items():
            self.errors[kind] = self.errors.get(kind, 0) + count
            self.examples.setdefault(kind, ", ".join(filter(None, [place, record["examples"][kind]])))
        for name, moments in record["numbers"].items():
            self._columns[name].merge(*moments)

    def summary(self, output: Path, **more: Any) -> ScoringSummary:
        """All that was counted, with `more` fields of the summary."""
        counted = {name: getattr(self, name) for name in (*_COUNTS, "errors", "examples")}
        distributions = {name: numbers.distribution() for name, numbers in self._columns.items() if numbers.count}
        return ScoringSummary(output=output, **counted, distributions=distributions, **more)


class _Numbers:
    """Running moments."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.squares = 0.0
        self.low, self.high = np.inf, -np.inf

    def add(self, values: np.ndarray) -> None:
        if len(values):
            squares = ((values - values.mean()) ** 2).sum()
            self.merge(len(values), values.mean(), squares, values.min(), values.max())

    def moments(self) -> list[float]:
        """What `merge` takes."""
        return [self.count, float(self.mean), float(self.squares), float(self.low), float(self.high)]

    def merge(self, count: int, mean: float, squares: float, low: float, high: float) -> None:
        """Adds the moments of other numbers, without cancellation."""
        total = self.count + count
        change = mean - self.mean
        self.squares += squares + change**2 * self.count * count / total
        self.mean += change * count / total
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count = total

    def distribution(self) -> Distribution:
        numbers = (self.mean, (self.squares / self.count) ** 0.5, self.low, self.high)
        return Distribution(*(float(number) for number in numbers))
