"""What rewards put into a trainer's log, and under which names."""

from __future__ import annotations

import logging
import os
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from reward.errors import ConfigError
from reward.metrics.base import MetricSpec
from reward.metrics.function_places import names_function
from reward.registry import is_address
from reward.rewards.completions import Reason

logger = logging.getLogger(__name__)

# {name: (the trainer's state, the reward that was called with it)}, as weak references
_called: dict[str, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}


def check_one_name(reward: Any, trainer_state: Any) -> None:
    """Raises ConfigError if another reward of this name was called by the same trainer, which would merge their logs.

    Args:
        reward: is being called.
        trainer_state: what the trainer hands to all its rewards; None where it hands over nothing.
    """
    try:
        state = weakref.ref(trainer_state)
    except TypeError:  # None, or no object of a trainer
        return
    last = _called.get(reward.__name__)
    # states are compared by identity, since those of two trainers may be equal
    if last is not None and last[0]() is trainer_state and last[1]() not in (None, reward):
        raise ConfigError(
            f"two rewards of this trainer are named {reward.__name__!r}, and it would merge their logs. "
            f"Give one of them another name: {type(reward).__name__}(..., name='...')"
        )
    _called[reward.__name__] = (state, weakref.ref(reward))


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


def report_reasons(name: str, reasons: Mapping[int, Reason], failures: Counter[str]) -> None:
    """Counts the rows of a reward that have no score by kind, and warns of the first, tenth, hundredth, ... of each."""
    for kind, count in Counter(reason.kind for reason in reasons.values()).items():
        before = failures[kind]
        failures[kind] = count = before + count
        if before == 0 or len(str(before)) < len(str(count)):
            example = next(reason.message for reason in reasons.values() if reason.kind == kind)
            logger.warning("%s: %d row%s so far: %s (%s)", name, count, "s" * (count != 1), kind, example)


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
