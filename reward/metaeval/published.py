"""Published figures of metrics on benchmarks, read from published.json, and one's own beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from reward.metaeval.benchmarks import Benchmark
from reward.metaeval.evaluation import Evaluation
from reward.registry import MetricSource, is_address

FORMULA, UNPUBLISHED, UNSAID = "formula", "not published", "not stated"  # in place of a checkpoint
REPRODUCED = 0.5  # a difference up to this counts as reproduced
_WHOLE = 0.95  # share of a benchmark's items below which it is only a part of it


@dataclass(frozen=True)
class Figure:
    """A published figure, times 100.

    Args:
        figure: as printed.
        sources: where it stands: papers with their tables, or another project.
        printed: what the first of them calls the metric.
        metric: its name here; `fleur_raw` are scores of FLEUR's authors, which no metric here gives.
        checkpoint: as in NAME=CHECKPOINT, the model behind a server, or a file's name; of an n-gram metric `"formula"`;
            or that the weights are not published, or not stated.
        references: whether the metric was given references.
        benchmark, split, column: as here; the split is empty where the benchmark has no parts or the source names none.
        coefficient: what it is, such as `"tau-c"`; `"tau"` where the source does not say which.
        options: of the metric, other than its defaults.
        variant: of a metric that nobody can load; how it is trained.
    """

    figure: float
    sources: tuple[str, ...]
    printed: str
    metric: str
    checkpoint: str
    references: bool
    benchmark: str
    split: str
    column: str
    coefficient: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    variant: str = ""

    @property
    def source(self) -> str:
        """Where it stands first, in how many other places, and what it is called there if its weights are not known."""
        named = f" ({self.printed})" if self.checkpoint in (UNPUBLISHED, UNSAID) else ""
        return self.sources[0] + named + (f" and {len(self.sources) - 1} more" if self.sources[1:] else "")


@dataclass(frozen=True)
class Compared:
    """One's own value beside a published figure, both times 100."""

    published: Figure
    value: float

    @property
    def difference(self) -> float:
        """Own minus published, as it is printed."""
        return round(self.value - self.published.figure, 1) + 0.0  # no -0.0

    @property
    def verdict(self) -> str:
        """Whether the figure came out, as both are printed."""
        return "reproduced" if abs(self.difference) <= REPRODUCED else "differs"

    def to_json(self) -> dict[str, Any]:
        """As plain values, both times 100."""
        own = {"value": self.value, "difference": self.difference, "verdict": self.verdict}
        return {name: value for name, value in vars(self.published).items() if value not in ({}, "")} | own


@cache
def _data() -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text("utf-8"))
    return data


@cache
def published_figures() -> tuple[Figure, ...]:
    """All figures; the same one in several places is one with several sources.

    Example:
        >>> [one.figure for one in published_figures() if (one.metric, one.benchmark) == ("cider", "nebula")]
        [51.5, 48.8]
    """
    figures: dict[Any, Figure] = {}
    for table in _data()["tables"]:
        for row in table["rows"]:
            facts = {name: value for name, value in row.items() if name != "figures"}
            facts["options"] = _hashable(row.get("options", {}).items())
            for column, number in zip(table["columns"], row["figures"], strict=True):
                if number is None:
                    continue
                facts |= dict(zip(("benchmark", "split", "column", "coefficient"), column, strict=True))
                figure = Figure(number, (f"{table['source']} {table['table']}",), **facts)
                # Two metrics without published weights are the same only where papers call them so.
                printed = figure.printed if figure.checkpoint == UNPUBLISHED else ""
                key = (replace(figure, sources=(), printed=printed), repr(figure.options))
                if key in figures:
                    figure = replace(figures[key], sources=(*figures[key].sources, *figure.sources))
                figures[key] = figure
    return tuple(figures.values())


def _hashable(options: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Options of a metric, whose lists are tuples here as on the command line."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options}


def is_published(metric: MetricSource, figure: Figure) -> bool:
    """Whether a metric is the one of a figure: its name, checkpoint and options."""
    if metric.is_column or metric.name != figure.metric or figure.variant:
        return False
    checkpoint = str(metric.source)
    names = {checkpoint}
    if is_address(checkpoint):
        names = {checkpoint.rpartition("#")[2]}
    if checkpoint.endswith(".pth"):
        names.add(PurePath(checkpoint).name)
    if checkpoint == "embedded" and not metric.spec.checkpoints:
        names.add(FORMULA)
    return figure.checkpoint in names and _hashable(metric.options) == figure.options


def compare_published(
    benchmark: Benchmark, evaluation: Evaluation, figures: Iterable[Figure], *, references: bool
) -> tuple[Compared, ...]:
    """One's own values beside those of the figures that are of this benchmark, its part and these references.

    There are none for a part of a benchmark, as by a limit or by captions without a score, and none for more references
    than the literature draws.

    Args:
        benchmark, evaluation: one's own; of a metric that the figures are of.
        figures: from `published_figures`.
        references: whether the metric was given the benchmark's references.
    """
    has_more = False
    if benchmark.spec.drawn_references and benchmark.draws == 0:
        has_more = benchmark.rows["references"].map(len).max() > benchmark.spec.drawn_references
    judged = len(benchmark.rows)
    if "label" in benchmark.rows:
        judged = int(benchmark.rows["label"].notna().sum())
    scored = len(benchmark.rows) - judged + int(evaluation.counted.sum())
    if has_more or scored < _WHOLE * max(len(benchmark.rows), _data()["items"].get(benchmark.spec.name, 0)):
        return ()
    has_references = references and any(benchmark.rows["references"])
    compared = []
    for figure in figures:
        part = evaluation.by_category.get(figure.split)
        if figure.benchmark != benchmark.spec.name:
            continue
        if part is None and figure.split not in ("", benchmark.part):
            continue
        if figure.metric in _with_and_without() and figure.references != has_references:
            continue
        value = _value_of(part or evaluation, figure)
        if value is not None:
            compared.append(Compared(figure, 100 * value))
    return tuple(compared)


@cache
def _with_and_without() -> frozenset[str]:
    """Metrics that score with and without references; the others have no choice, as CIDEr and CLIPScore."""
    metrics: dict[bool, set[str]] = {True: set(), False: set()}
    for figure in published_figures():
        metrics[figure.references].add(figure.metric)
    return frozenset(metrics[True] & metrics[False])


def _value_of(evaluation: Evaluation, figure: Figure) -> float | None:
    """One's own value of the column and coefficient of a figure; None where the evaluation has none."""
    if figure.coefficient in ("tau", evaluation.statistic):
        estimate = evaluation.estimates.get(figure.column)
        return None if estimate is None else estimate.value
    return evaluation.details.get(figure.column, {}).get(figure.coefficient.replace("-", "_"))
