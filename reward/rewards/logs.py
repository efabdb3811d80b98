"""What rewards tell a trainer's log and its user: scores under names, and rows without one."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reward.data.images import load_image
from reward.data.score_table import ScoreTable
from reward.errors import ImageError, InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.metrics.function_places import names_function
from reward.registry import is_address
from reward.rewards.completions import Reason, Row

logger = logging.getLogger(__name__)


def default_name(spec: MetricSpec, checkpoint: str | os.PathLike[str], weights: Mapping[str, float] | None) -> str:
    """The metric's name, then the last part of the checkpoint and the weights where they are not the metric's own.

    Example:
        >>> from reward.registry import metric_spec
        >>> default_name(metric_spec("vela"), "runs/photos", {"rel": 2, "flu": 1})
        'vela_photos_rel2_flu1'
    """
    path = os.fspath(checkpoint)
    if is_address(path):
        parts = [path.partition("#")[2] or spec.name]
    elif path == "embedded" or names_function(path):
        parts = [spec.name]
    else:
        last = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
        parts = [spec.name, re.sub(r"[^\w.-]+", "_", last)]
    if weights is not None and not (spec.weigh(weights) == spec.weigh()).all():
        used = {spec.aliases.get(name, name): weight for name, weight in weights.items() if weight}
        short_names = {aspect: alias for alias, aspect in spec.aliases.items()}
        # Weights that are alike need no numbers: `vela_rel_flu`.
        are_alike = len(set(used.values())) == 1
        for aspect in spec.aspects:
            if aspect in used:
                number = "" if are_alike else f"{used[aspect]:g}"
                parts.append(short_names.get(aspect, aspect) + number)
    return "_".join(parts)


def different_names(names: Sequence[str]) -> list[str]:
    """The names, with `_2`, `_3`, ... where one comes again, since what has one name is merged.

    Example:
        >>> different_names(["short", "vela", "short"])
        ['short', 'vela', 'short_2']
    """
    return [name if names.index(name) == i else f"{name}_{names[: i + 1].count(name)}" for i, name in enumerate(names)]


def log_scores(
    name: str,
    aspects: Sequence[str],
    table: ScoreTable,
    log_extra: Callable[[str, list[Any]], None] | None,
    log_metric: Callable[[str, float], None] | None,
) -> None:
    """Logs the scores of a call as `<name>/<aspect>`, and the shares of rows `<name>/unscored` and `<name>/truncated`.

    Args:
        name: of the reward.
        aspects: those that are logged.
        table: scores of all rows.
        log_extra: takes a column for the table of completions; None for no such table.
        log_metric: takes the value of a row, see `log_rows`; None for no such log.
    """
    is_scored = np.isfinite(table.scores).all(axis=1)
    for aspect in aspects:
        scores = table.column(aspect)
        if log_extra is not None:
            log_extra(f"{name}/{aspect}", scores.tolist())
        if log_metric is not None:
            log_rows(log_metric, f"{name}/{aspect}", scores[is_scored])
    if log_metric is not None:
        log_rows(log_metric, f"{name}/unscored", ~is_scored)
        log_rows(log_metric, f"{name}/truncated", table.truncated)


def log_rows(log_metric: Callable[[str, float], None], name: str, values: Iterable[float]) -> None:
    """Logs the value of each row, so that a trainer's mean is one over all rows of all processes.

    TRL adds up the values and their number over the processes: one mean a process would weigh alike for one row and
    for a hundred. Without values nothing is logged.
    """
    for value in values:
        log_metric(name, float(value))


def report_reasons(
    name: str, reasons: Mapping[int, Reason], failures: Counter[str], *, raises: bool = False
) -> dict[int, str]:
    """Counts rows that are not scored by kind, and warns of the first, tenth, hundredth, ... of each.

    Args:
        reasons: {row: why it is not scored}.
        failures: {kind: number}; changed.
        raises: whether a row that is not scored raises, unless it is a caption without a word.

    Returns:
        {row: what is wrong with it}, without captions that have no word.
    """
    errors = {row: reason.message for row, reason in reasons.items() if not reason.is_wordless}
    if errors and raises:
        row, message = next(iter(errors.items()))
        raise InvalidSampleError(f"{name}: row {row} cannot be scored ({reasons[row].kind}): {message}")
    for reason in reasons.values():
        failures[reason.kind] += 1
        count = failures[reason.kind]
        if str(count).rstrip("0") == "1":  # 1, 10, 100, ...
            logger.warning("%s: %d row%s so far: %s (%s)", name, count, "s" * (count > 1), reason.kind, reason.message)
    return errors


def check_first_call(name: str, spec: MetricSpec, rows: Sequence[Row], errors: Mapping[int, str]) -> None:
    """Refuses data in which no row can be scored: a training would finish and have learned nothing.

    Captions without a word are no fault of the data, and neither are captions that the metric cannot score although
    their images can be read.

    Args:
        rows: of a call, at least one.
        errors: {row: why it has no score}.

    Raises:
        InvalidSampleError: every row has a fault; the message names that of the first.
    """
    faults = []
    for index, row in enumerate(rows):
        if isinstance(row, Reason):
            if row.by_policy:
                return
            faults.append(row.message)
        elif index in errors and spec.needs_image and row.image is not None:
            # Of a row that the metric was given, only the image can be at fault.
            try:
                load_image(row.image)
                return
            except ImageError as error:
                faults.append(str(error))
        else:
            return
    raise InvalidSampleError(
        f"{name}: none of the {len(rows)} rows of the first call can be scored, and the reason is in the data. "
        f"The first: {faults[0]}. If only some rows of the data set are like this, leave them out"
    )
