"""Which columns hold caption, image and references, and what a row of them asks to be scored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward.columns import find_column, one_image, read_references
from reward.errors import InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.scoring.readers import BadRow

__all__ = ["ColumnPlan", "RowTask", "find_columns", "listed", "row_references", "row_task"]


@dataclass(frozen=True)
class ColumnPlan:
    """Names of the columns that are read.

    Args:
        caption: holds the caption, or the list of captions when `many`.
        image: holds the image or its path; None when the metric looks at no image.
        references: holds the list of references; None when there are none.
        many: whether a row has several candidates.
    """

    caption: str
    image: str | None
    references: str | None
    many: bool = False

    @property
    def names(self) -> list[str]:
        return [name for name in (self.caption, self.image, self.references) if name is not None]


@dataclass
class RowTask:
    """What one row asks to be scored: candidates of one image, or the reason why it cannot be.

    Args:
        candidates: captions, not checked yet.
        references: checked references.
        image: the column's value, later replaced by the decoded image; None without an image.
        problem: (kind, message) when nothing of the row can be scored.
    """

    candidates: Sequence[Any] = ()
    references: tuple[str, ...] = ()
    image: Any = None
    problem: tuple[str, str] | None = None


def find_columns(
    columns: Sequence[str],
    spec: MetricSpec,
    *,
    candidate: str | None = None,
    image: str | None = None,
    references: str | None = None,
    many: bool = False,
) -> ColumnPlan:
    """Chooses the columns: those named, else those of `reward.columns.COLUMN_NAMES`.

    Args:
        columns: the columns there are.
        spec: the metric; an image column is used only if it needs one, or if `image` names one.
        candidate, image, references: column names given by the user.
        many: look for `candidates` instead of `candidate`.

    Raises:
        DataError: a column is missing or could be one of several; the message names those there are.

    Example:
        >>> from reward.registry import metric_spec
        >>> find_columns(["id", "caption", "refs"], metric_spec("length"))
        ColumnPlan(caption='caption', image=None, references='refs', many=False)
    """
    caption = find_column(
        "candidates" if many else "candidate", columns, candidate, option="--candidate-column", needed_by="scoring"
    )
    assert caption is not None
    image_column = None
    if spec.needs_image or image is not None:
        image_column = find_column("image", columns, image, option="--image-column", needed_by=f"metric {spec.name!r}")
    needed_by = f"metric {spec.name!r}" if spec.needs_references else None
    references_column = find_column(
        "references", columns, references, option="--references-column", needed_by=needed_by
    )
    return ColumnPlan(caption, image_column, references_column, many)


def row_task(row: Mapping[str, Any] | BadRow, plan: ColumnPlan, spec: MetricSpec, *, is_csv: bool = False) -> RowTask:
    """Reads a row; whatever is wrong with it becomes its `problem`, never an exception."""
    if isinstance(row, BadRow):
        return RowTask(problem=("row", row.message))
    candidates = row.get(plan.caption)
    if not plan.many:
        candidates = [candidates]
    else:
        candidates = listed(candidates, is_csv)
        if not isinstance(candidates, list) or not candidates:
            message = f"column {plan.caption!r} must hold a list of captions, got {candidates!r:.80}"
            return RowTask(problem=("candidate", message))
    try:
        references = _references(row, plan, is_csv)
    except InvalidSampleError as error:
        return RowTask(problem=("references", str(error)))
    if spec.needs_references and not references:
        return RowTask(problem=("references", f"metric {spec.name!r} needs references, but the row has none"))
    try:
        image = one_image(row.get(plan.image)) if plan.image else None
    except InvalidSampleError as error:
        return RowTask(problem=("image", str(error)))
    if plan.image and image is None:
        return RowTask(problem=("image", f"the row has no image in column {plan.image!r}"))
    return RowTask(candidates, references, image)


def row_references(row: Mapping[str, Any] | BadRow, plan: ColumnPlan, *, is_csv: bool = False) -> tuple[str, ...]:
    """References of a row; none where they are missing or wrong."""
    if isinstance(row, BadRow):
        return ()
    try:
        return _references(row, plan, is_csv)
    except InvalidSampleError:
        return ()


def listed(value: Any, is_csv: bool) -> Any:
    """A list as it is; in CSV, the list written as JSON text."""
    if is_csv and isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _references(row: Mapping[str, Any], plan: ColumnPlan, is_csv: bool) -> tuple[str, ...]:
    return read_references(listed(row.get(plan.references), is_csv)) if plan.references else ()
