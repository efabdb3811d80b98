"""Summary of a scoring run: counts, errors by kind, and the distribution of each aspect."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Distribution:
    """Mean, standard deviation (population), range and number of finite scores."""

    mean: float
    std: float
    min: float
    max: float
    count: int = 0


@dataclass
class ScoringSummary:
    """What a scoring run did.

    Args:
        output: file that was written.
        rows: rows of the input, and of the output unless some were selected.
        captions: captions in them (more than rows when reranking).
        scored: captions with a reward.
        truncated: captions of which some text was cut to fit the model.
        thinking_cut: captions from which reasoning or marks were cut, on request.
        distinct: captions that are no repetition of another of their row, when lists are reranked; else 0.
        errors: {kind: count}; kinds are row, candidate, references, image, group and metric or, of several metrics, the
            name of the one that failed.
        examples: {kind: "row 7: message"}, the first of each kind; rows count from 1.
        distributions: {aspect or "reward": distribution}.
        resumed_rows: rows that an earlier, interrupted run had scored.
        new_rows: rows scored by this run.
        seconds: time this run spent scoring, without loading the model.
        images_decoded: images this run decoded.
        devices: those of the processes of this run; empty when it scored in its own process.
        columns: {role: column} that were read.
        checkpoints: {metric: its checkpoint as it was given}; None for a scorer object.
        image_root: where relative paths of images start, from the folder of the output.
        groups: groups of rows that were ranked, when each row has one candidate; else 0.
        readings: {"probabilities" or "text": how many answers of judges this run read so}; empty without a judge.
        selected: rows of the output, where rows were selected; else None.
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
    devices: list[str] = field(default_factory=list)
    columns: dict[str, str | None] = field(default_factory=dict)
    checkpoints: dict[str, str | None] = field(default_factory=dict)
    image_root: str | None = None
    groups: int = 0
    readings: dict[str, int] = field(default_factory=dict)
    selected: int | None = None
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
        fields = {name: value for name, value in values.items() if name not in ("output", "rows_per_second")}
        fields["distributions"] = {name: Distribution(**value) for name, value in fields["distributions"].items()}
        return cls(output=output, **fields)


def summary_beside(data: Any) -> dict[str, Any]:
    """The summary beside a file that `capreward score`, `rerank` or `caption` wrote; empty without one."""
    if not isinstance(data, (str, os.PathLike)):
        return {}
    path = Path(data)
    name = path.name.removesuffix(".candidates.jsonl")  # of `caption --keep-candidates`, whose files share one
    try:
        summary = json.loads(path.with_name(name + ".summary.json").read_text(encoding="utf-8"))["summary"]
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged, or another tool's file
        return {}
    return summary if isinstance(summary, dict) else {}


_COUNTS = ("rows", "captions", "scored", "truncated", "thinking_cut", "distinct")


class SummaryBuilder:
    """Counts results as they come, in parts whose records can be added up."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.errors: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self.numbers: dict[str, list[float]] = {}  # {column: count, mean, sum of squared distances, least and largest}
        self.readings: dict[str, int] = {}

    def count(self, **counts: int) -> None:
        """Adds to the counts, see `ScoringSummary`."""
        for name, count in counts.items():
            self.counts[name] += count

    def add_readings(self, counts: Mapping[str, int]) -> None:
        """Adds how many answers of judges were read in which way, see `judge_readings`."""
        for way, count in counts.items():
            self.readings[way] = self.readings.get(way, 0) + count

    def add_error(self, kind: str, message: str, row: int) -> None:
        """Counts an error; `row` counts from 0."""
        self.errors[kind] = self.errors.get(kind, 0) + 1
        self.examples.setdefault(kind, f"row {row + 1}: {message}")

    def add_numbers(self, name: str, values: np.ndarray) -> None:
        """Adds scores of one column; NaN is left out."""
        values = values[np.isfinite(values)]
        moments = []
        if len(values):
            squares = ((values - values.mean()) ** 2).sum()
            moments = [len(values), *map(float, (values.mean(), squares, values.min(), values.max()))]
        self._merge(name, moments)

    def record(self) -> dict[str, Any]:
        """What was counted, as JSON values that `add_record` takes."""
        return vars(self)

    def add_record(self, record: dict[str, Any]) -> None:
        """Adds what another builder counted in a part of the data."""
        self.count(**record["counts"])
        for kind, count in record["errors"].items():
            self.errors[kind] = self.errors.get(kind, 0) + count
            self.examples.setdefault(kind, record["examples"][kind])
        self.add_readings(record.get("readings", {}))  # which parts of older versions lack
        for name, moments in record["numbers"].items():
            self._merge(name, moments)

    def add_summary(self, summary: ScoringSummary, name: str) -> None:
        """Adds what a run over a part of the data counted; its rows are called by the part's name and their number."""
        numbers: dict[str, list[float]] = {}
        for column, facts in summary.distributions.items():
            numbers[column] = [facts.count, facts.mean, facts.std**2 * facts.count, facts.min, facts.max]
        counts = {count: getattr(summary, count) for count in _COUNTS}
        examples = {kind: f"{name}, {example}" for kind, example in summary.examples.items()}
        self.add_record({"counts": counts, "errors": summary.errors, "examples": examples, "numbers": numbers})

    def _merge(self, name: str, moments: list[float]) -> None:
        """Adds the moments of other numbers, without cancellation."""
        # Squares are of distances from each part's mean: those of the numbers themselves would cancel.
        old = self.numbers.setdefault(name, [])
        if old and moments:
            total, change = old[0] + moments[0], moments[1] - old[1]
            squares = old[2] + moments[2] + change**2 * old[0] * moments[0] / total
            mean = old[1] + change * moments[0] / total
            moments = [total, mean, squares, min(old[3], moments[3]), max(old[4], moments[4])]
        self.numbers[name] = moments or old

    def summary(self, output: Path, **more: Any) -> ScoringSummary:
        """All that was counted, with `more` fields of the summary."""
        distributions = {
            name: Distribution(mean, (squares / count) ** 0.5, low, high, int(count))
            for name, (count, mean, squares, low, high) in ((n, m) for n, m in self.numbers.items() if m)
        }
        found: dict[str, Any] = {**self.counts, "errors": self.errors, "examples": self.examples}
        return ScoringSummary(output=output, **found, readings=self.readings, distributions=distributions, **more)


def judge_readings(scorers: Iterable[Any]) -> Counter[str]:
    """How many answers of the judges of some metrics were read in which way so far, see `reward.judges.Usage`."""
    readings: Counter[str] = Counter()
    for scorer in scorers:
        metric = getattr(scorer, "scorer", scorer)  # of the mean over sentences
        for judge in getattr(metric, "judges", ()):
            readings.update(judge.usage.readings)
    return readings
