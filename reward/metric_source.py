"""MetricSource: a metric, its checkpoint and its weight, as they are written in one text."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec, Scorer
from reward.registry import load_scorer, metric_spec

__all__ = ["COLUMN", "MetricSource"]

COLUMN = "column:"  # prefix of a score column where a metric may be named
_WEIGHT_LAST = re.compile(r"(.+):(-?[0-9.]+)")


@dataclass(frozen=True)
class MetricSource:
    """A metric with its checkpoint, or a score column that came with the data.

    Args:
        name: name of the metric or the column.
        source: checkpoint of the metric: `"embedded"`, a folder, or a Hub id.
        revision: of a Hub id.
        is_column: whether it is a column.
        weight: among several metrics; None where none was given.
    """

    name: str
    source: str | os.PathLike[str] = "embedded"
    revision: str | None = None
    is_column: bool = False
    weight: float | None = None

    @classmethod
    def parse(cls, text: str, *, weighted: bool = False) -> MetricSource:
        """Reads NAME, NAME=SOURCE, NAME=HUB_ID@REVISION or column:NAME; if `weighted`, also NAME:WEIGHT=SOURCE.

        Raises:
            ConfigError: a name or a source is empty, or a weight that is no number or where there is none.
            UnknownMetricError: no metric has that name.

        Example:
            >>> MetricSource.parse("vela=name/repo@v2")
            MetricSource(name='vela', source='name/repo', revision='v2', is_column=False, weight=None)
            >>> MetricSource.parse("vela:0.7", weighted=True).weight
            0.7
        """
        if text.startswith(COLUMN):
            return cls(text[len(COLUMN) :], is_column=True)
        label, equals, source = text.partition("=")
        name, colon, weight = label.partition(":")
        if not name or (equals and not source):
            raise ConfigError(f"{text!r} is not a metric: write NAME, or NAME=SOURCE with a folder or a Hub id")
        name = metric_spec(name).name
        plain = f"{name}{equals}{source}"
        number = _number(text, weight, write=f"{name}:0.7{equals}{source}" if weighted else plain) if colon else None
        if colon and not weighted:
            raise ConfigError(f"{text!r} has a weight, but one metric by itself takes no weight: write {plain}")
        if (last := _WEIGHT_LAST.fullmatch(source)) and weighted and "://" not in source and not Path(source).exists():
            raise ConfigError(f"{text!r} has its weight at the end: write {name}:{last[2]}={last[1]}")
        revision = None
        if "@" in source and "://" not in source and not Path(source).exists():
            source, _, revision = source.partition("@")
        return cls(name, source or "embedded", revision, weight=number)

    @property
    def label(self) -> str:
        """As on the command line."""
        if self.is_column:
            return COLUMN + self.name
        return self.name if self.source == "embedded" else f"{self.name}={self.checkpoint}"

    @property
    def checkpoint(self) -> str:
        """The source with its revision."""
        return os.fspath(self.source) + (f"@{self.revision}" if self.revision else "")

    @property
    def spec(self) -> MetricSpec:
        """Facts about the metric, as far as they are known without loading it."""
        return metric_spec(self.name)

    def load(self, **options: Any) -> Scorer:
        """Loads the scorer, see `load_scorer`."""
        return load_scorer(self.name, self.source, **options | ({"revision": self.revision} if self.revision else {}))


def _number(text: str, weight: str, *, write: str) -> float:
    try:
        return float(weight)
    except ValueError:
        raise ConfigError(f"{text!r} gives {weight!r} as a weight, which is no number: write {write}") from None
