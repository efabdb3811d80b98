"""What rewards put into a trainer's log, and under which names."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from reward.metrics.base import MetricSpec
from reward.metrics.function_places import names_function
from reward.registry import is_address

logger = logging.getLogger(__name__)


def default_name(spec: MetricSpec, source: str | os.PathLike[str], weights: Mapping[str, float] | None) -> str:
    """The metric's name, then the last part of the source and the weights where they are not the metric's own.

    Example:
        >>> from reward.registry import metric_spec
        >>> default_name(metric_spec("vela"), "runs/photos", {"rel": 2, "flu": 1})
        'vela_photos_rel2_flu1'
    """
    parts = [(is_address(source) and os.fspath(source).partition("#")[2]) or spec.name]
    if os.fspath(source) != "embedded" and not is_address(source) and not names_function(source):
        last = re.split(r"[/\\]", os.fspath(source).rstrip("/\\"))[-1]
        parts.append(re.sub(r"[^\w.-]+", "_", last))
    if weights is not None and not (spec.weigh(weights) == spec.weigh()).all():
        given = {spec.aliases.get(name, name): weight for name, weight in weights.items() if weight}
        short = {aspect: alias for alias, aspect in spec.aliases.items()}
        alike = len(set(given.values())) == 1
        parts += [short.get(a, a) + ("" if alike else f"{given[a]:g}") for a in spec.aspects if a in given]
    return "_".join(parts)


def different_names(names: Sequence[str]) -> list[str]:
    """The names, with `_2`, `_3`, ... where one comes again, since what has one name is merged.

    Example:
        >>> different_names(["short", "vela", "short"])
        ['short', 'vela', 'short_2']
    """
    return [name if names.index(name) == i else f"{name}_{names[: i + 1].count(name)}" for i, name in enumerate(names)]


def log_rows(log_metric: Callable[[str, float], None], name: str, values: Iterable[float]) -> None:
    """Logs the value of each row, so that a trainer's mean is one over all rows of all processes.

    TRL adds up the values and their number over the processes: one mean a process would weigh alike for one row and
    for a hundred. Without values nothing is logged.

    Example:
        >>> log_rows(print, "vela/fluency", [0.5, 1])
        vela/fluency 0.5
        vela/fluency 1.0
    """
    for value in values:
        log_metric(name, float(value))
