"""Rows without a score: they are counted and warned of, and a first call in which no row can be scored is refused."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from reward.data.images import load_image
from reward.data.samples import CaptionSample
from reward.errors import ImageError
from reward.metrics.base import MetricSpec
from reward.rewards.completions import Reason, Row

logger = logging.getLogger(__name__)


def report_reasons(name: str, reasons: Mapping[int, Reason], failures: Counter[str]) -> None:
    """Counts the rows of a reward that have no score by kind, and warns of the first, tenth, hundredth, ... of each."""
    examples: dict[str, str] = {}
    for reason in reasons.values():
        examples.setdefault(reason.kind, reason.message)
    for kind, count in Counter(reason.kind for reason in reasons.values()).items():
        before = failures[kind]
        failures[kind] = count = before + count
        has_new_digit = len(str(before)) < len(str(count))
        if before == 0 or has_new_digit:
            logger.warning("%s: %d row%s so far: %s (%s)", name, count, "s" * (count != 1), kind, examples[kind])


def fault_of_all(name: str, spec: MetricSpec, rows: Sequence[Row], errors: Mapping[int, str]) -> str | None:
    """What is wrong with data in which no row can be scored: a training would finish and have learned nothing.

    Captions without a word are no fault of the data, and neither are captions that the metric cannot score although
    their images can be read.

    Args:
        name: of the reward, for the message.
        spec: facts of the metric.
        rows: of a call, at least one.
        errors: {row: why it has no score}.

    Returns:
        The fault of the first row, as a message; None if a row has none.
    """
    faults = []
    for index, row in enumerate(rows):
        fault = _fault_of_data(row, index in errors and spec.needs_image)
        if fault is None:
            return None
        faults.append(fault)
    return (
        f"{name}: none of the {len(rows)} rows of the first call can be scored, and the reason is in the data. "
        f"The first: {faults[0]}. If only some rows of the data set are like this, leave them out"
    )


def _fault_of_data(row: Row, looks_at_image: bool) -> str | None:
    if not isinstance(row, CaptionSample):
        return None if row.by_policy else row.message
    if looks_at_image and row.image is not None:
        try:
            load_image(row.image)
        except ImageError as error:
            return str(error)
    return None
