"""What a run tells of all its rows: counts, errors and distributions; and which of the rows it writes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reward.errors import ConfigError, UnknownMetricError
from reward.registry import MetricSource


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
        fields = {**values}
        del fields["output"], fields["rows_per_second"]  # of which the first has the name alone
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


def metric_label(metric: str, checkpoint: str | None) -> str:
    """A metric with its checkpoint, as a summary has it; a formula and a function have none.

    Example:
        >>> metric_label("vela", "runs/photos"), metric_label("vela", "embedded"), metric_label("length", "embedded")
        ('vela=runs/photos', 'vela (weights for drawings)', 'length')
    """
    if checkpoint != "embedded":
        return f"{metric}={checkpoint}" if checkpoint else metric
    try:
        knows_drawings_only = MetricSource(metric).knows_drawings_only
    except UnknownMetricError:  # of a package that is not installed here
        return metric
    return f"{metric} (weights for drawings)" if knows_drawings_only else metric


_COUNTS = ("rows", "captions", "scored", "truncated", "thinking_cut", "distinct")


class SummaryBuilder:
    """Counts results as they come, in parts whose records can be added up."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.errors: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.numbers: dict[str, list[float]] = {}  # {column: count, mean, sum of squared distances, least and largest}
        self.readings: Counter[str] = Counter()

    def count(self, **counts: int) -> None:
        """Adds to the counts, see `ScoringSummary`."""
        for name, count in counts.items():
            self.counts[name] += count

    def add_error(self, kind: str, message: str, row: int) -> None:
        """Counts an error; `row` counts from 0."""
        self.errors[kind] += 1
        self.examples.setdefault(kind, f"row {row + 1}: {message}")

    def add_numbers(self, name: str, values: np.ndarray) -> None:
        """Adds scores of one column; NaN is left out."""
        values = values[np.isfinite(values)]
        moments = []
        if len(values):
            squares = ((values - values.mean()) ** 2).sum()
            moments = [len(values), *map(float, (values.mean(), squares, values.min(), values.max()))]
        self._merge(name, moments)

    def add_record(self, record: dict[str, Any]) -> None:
        """Adds what another builder counted in a part of the data: `vars` of it, which are JSON values."""
        self.count(**record["counts"])
        for kind, count in record["errors"].items():
            self.errors[kind] += count
            self.examples.setdefault(kind, record["examples"][kind])
        self.readings.update(record["readings"])
        for name, moments in record["numbers"].items():
            self._merge(name, moments)

    def add_summary(self, summary: ScoringSummary, name: str) -> None:
        """Adds what a run over a part of the data counted; its rows are called by the part's name and their number."""
        numbers: dict[str, list[float]] = {}
        for column, facts in summary.distributions.items():
            numbers[column] = [facts.count, facts.mean, facts.std**2 * facts.count, facts.min, facts.max]
        counts = {count: getattr(summary, count) for count in _COUNTS}
        examples = {kind: f"{name}, {example}" for kind, example in summary.examples.items()}
        record = {"counts": counts, "errors": summary.errors, "examples": examples, "numbers": numbers}
        self.add_record({**record, "readings": summary.readings})

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
        distributions: dict[str, Distribution] = {}
        for name, moments in self.numbers.items():
            if moments:
                count, mean, squares, low, high = moments
                distributions[name] = Distribution(mean, (squares / count) ** 0.5, low, high, int(count))
        counts: dict[str, Any] = {**self.counts}
        return ScoringSummary(
            output,
            **counts,
            errors=dict(self.errors),
            examples=self.examples,
            distributions=distributions,
            readings=dict(self.readings),
            **more,
        )


def judge_readings(scorers: Iterable[Any]) -> Counter[str]:
    """How many answers of the judges of some metrics were read in which way so far, see `reward.judges.Usage`."""
    readings: Counter[str] = Counter()
    for scorer in scorers:
        metric = getattr(scorer, "scorer", scorer)  # of the mean over sentences
        for judge in getattr(metric, "judges", ()):
            readings.update(judge.usage.readings)
    return readings


@dataclass(frozen=True)
class Selection:
    """What decides which rows an output has, once all of them are scored; their order stays.

    A row counts by its reward or, with a list of candidates, by that of the best. A row without one is left out. The
    three conditions hold in this order: the lowest reward, the first of equal rows, the best of what is left.

    Args:
        top: how many rows, or a share of those that are left, as in `"30%"`, rounded, at least one; of equal rewards
            those that come first in the input.
        min_reward: the lowest reward.
        dedupe: whether of the rows with one image and the same captions only the first is written.

    Raises:
        ConfigError: `top` is no number of rows and no share.

    Example:
        >>> Selection(top="50%").rows([0.1, None, 0.9, 0.5, 0.3], []).tolist()
        [False, False, True, True, False]
        >>> Selection(min_reward=0.3, dedupe=True).rows([0.1, 0.4, 0.4], ["a", "b", "b"]).tolist()
        [False, True, False]
    """

    top: str | int | None = None
    min_reward: float | None = None
    dedupe: bool = False

    def __post_init__(self) -> None:
        if self.top is not None:
            self._count(1)
        if self.min_reward is not None and not np.isfinite(self.min_reward):
            raise ConfigError(f"min_reward (--min-reward) must be a number, got {self.min_reward!r}")

    def rows(self, rewards: Sequence[float | None], identities: Iterable[str]) -> np.ndarray:
        """Whether each row is written (N,).

        Args:
            rewards: of the N rows.
            identities: what a row shares with those that are equal to it; read only to find these.
        """
        numbers = np.array(rewards, dtype=float)
        is_selected = np.isfinite(numbers)
        if self.min_reward is not None:
            is_selected &= numbers >= self.min_reward
        if self.dedupe:
            seen: set[str] = set()
            for row, identity in enumerate(identities):
                is_selected[row] &= identity not in seen
                if is_selected[row]:
                    seen.add(identity)
        if self.top is not None:
            # A stable sort leaves equal rewards in the order of the input.
            numbers[~is_selected] = -np.inf
            best = np.argsort(-numbers, kind="stable")[: self._count(int(is_selected.sum()))]
            is_selected &= np.isin(np.arange(len(numbers)), best)
        return is_selected

    def _count(self, rows: int) -> int:
        """How many of some rows `top` means."""
        text = str(self.top).strip()
        number = text.removesuffix("%").strip()
        try:
            if text.endswith("%") and 0 < float(number) <= 100:
                return max(1, round(rows * float(number) / 100))
            if int(number) > 0 and not text.endswith("%"):
                return int(number)
        except ValueError:
            pass
        raise ConfigError(f"top (--top) is a number of rows or a share, as in 1000 or 30%, got {self.top!r}")
