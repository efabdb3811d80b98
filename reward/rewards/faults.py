"""Rows without a score: they are counted and warned of, and a first call in which no row can be scored is refused."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from reward.data.images import load_image
from reward.errors import ImageError, InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.rewards.completions import Reason, Row

logger = logging.getLogger(__name__)


def report_reasons(
    name: str, reasons: Mapping[int, Reason], failures: Counter[str], *, raises: bool = False
) -> dict[int, str]:
    """Counts rows that are not scored by kind, and warns of the first, tenth, hundredth, ... of each.

    Args:
        name: of the reward, for messages.
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
    examples: dict[str, str] = {}
    for reason in reasons.values():
        examples.setdefault(reason.kind, reason.message)
    for kind, count in Counter(reason.kind for reason in reasons.values()).items():
        before = failures[kind]
        failures[kind] = count = before + count
        has_new_digit = len(str(before)) < len(str(count))
        if before == 0 or has_new_digit:
            logger.warning("%s: %d row%s so far: %s (%s)", name, count, "s" * (count != 1), kind, examples[kind])
    return errors


def check_first_call(
    name: str, spec: MetricSpec, rows: Sequence[Row], errors: Mapping[int, str], *, goes_on: bool
) -> None:
    """Refuses data in which no row can be scored: a training would finish and have learned nothing.

    Captions without a word are no fault of the data, and neither are captions that the metric cannot score although
    their images can be read.

    Args:
        rows: of a call, at least one.
        errors: {row: why it has no score}.
        goes_on: whether such data are warned of only.

    Raises:
        InvalidSampleError: every row has a fault; the message names that of the first.
    """
    faults = []
    for index, row in enumerate(rows):
        if isinstance(row, Reason):
            if row.by_policy:
                return
            faults.append(row.message)
        elif index in errors and spec.needs_image:
            # Of a row that the metric was given, only the image can be at fault.
            try:
                load_image(row.image)
                return
            except ImageError as error:
                faults.append(str(error))
        else:
            return
    message = (
        f"{name}: none of the {len(rows)} rows of the first call can be scored, and the reason is in the data. "
        f"The first: {faults[0]}. If only some rows of the data set are like this, leave them out"
    )
    if not goes_on:
        raise InvalidSampleError(message)
    logger.warning("%s", message)
