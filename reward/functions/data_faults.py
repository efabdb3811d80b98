"""Rows that lack what a metric needs, and data of which no row can be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reward.errors import ImageError, InvalidSampleError
from reward.functions.completions import CaptionRow, Problem
from reward.images import load_image
from reward.metrics.base import MetricSpec

__all__ = ["check_first_call", "row_for"]


def row_for(spec: MetricSpec, row: CaptionRow) -> CaptionRow:
    """The row, with a problem if it lacks an image or references that the metric needs."""
    if row.problem is None and spec.needs_image and row.image is None:
        message = f"metric {spec.name!r} needs an image, but {row.image_from}"
        if row.image_from != CaptionRow.image_from:  # a trainer's row, not a sample
            message += ". Name its column with image_column="
        return CaptionRow(problem=Problem("no image", message))
    if row.problem is None and spec.needs_references and not row.references:
        message = f"metric {spec.name!r} needs references, but {row.references_from}"
        if row.references_from != CaptionRow.references_from:
            message += ". Name their column with references_column="
        return CaptionRow(problem=Problem("no references", message))
    return row


def check_first_call(name: str, spec: MetricSpec, rows: Sequence[CaptionRow], problems: Mapping[int, Problem]) -> None:
    """Refuses data of which not one row can be scored: a training on it would run to its end and learn nothing.

    What the policy wrote is no reason to stop, whatever it is: captions without a word, or such as the metric cannot
    score though their images can be read.

    Args:
        name: of the reward, for the message.
        spec: facts of the metric.
        rows: all rows of the call, at least one.
        problems: {row: why it has no score}.

    Raises:
        InvalidSampleError: every row has a fault of the data; the message gives the first.
    """
    first = None
    for index, row in enumerate(rows):
        fault = _fault_of_data(spec, row, problems.get(index))
        if fault is None:
            return
        first = first or fault
    raise InvalidSampleError(
        f"{name}: none of the {len(rows)} rows of the first call can be scored, and the reason is in the data. "
        f"The first: {first}. If only some rows of the data set are like this, leave them out"
    )


def _fault_of_data(spec: MetricSpec, row: CaptionRow, problem: Problem | None) -> str | None:
    if row.problem is not None:
        return None if row.problem.by_policy else row.problem.message
    if (problem is None and not row.wordless) or not spec.needs_image:
        return None
    try:  # a caption without a word was not scored, whatever its image; the metric may not have scored it for its image
        load_image(row.image)
    except ImageError as error:
        return f"{row.image_from}: {error}"
    return None
