"""Which columns hold caption, image and references, and what is to be scored in a row."""

from __future__ import annotations

import hashlib
import os
import reprlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from reward.boxes import BoxedImage
from reward.errors import DataError, ImageError, InvalidSampleError
from reward.fingerprints import image_stamp
from reward.images import image_key
from reward.metrics.base import MetricSpec
from reward.samples import column_names, find_column, is_blank, named, one_image, read_references
from reward.scoring.sources import BadRow, Source
from reward.thinking import without_thinking
from reward.values import is_list, listed, or_none, values_of

__all__ = [
    "ColumnPlan",
    "RowTask",
    "find_columns",
    "image_identity",
    "picture_of",
    "row_key",
    "row_references",
    "row_task",
]

_ROWS_LOOKED_AT = 1000  # for the form of the data


@dataclass(frozen=True)
class ColumnPlan:
    """Names of the columns that are read.

    Args:
        caption: holds the caption, or the list of captions when `many`.
        image: holds the image or its path; None when the metric looks at no image.
        references: holds the list of references; None when there are none.
        many: whether a row has several candidates.
        group: holds what the candidates of one image share, when rows with one candidate each are to be ranked.
        context: (what, column) of a candidate's "question" and "task", of its image's "box", see `BoxedImage`, and of
            what else its metric needs, see `MetricSpec.columns`.
        strip_thinking: whether captions are scored without their reasoning, see `reward.thinking`.
    """

    caption: str
    image: str | None
    references: str | None
    many: bool = False
    group: str | None = None
    context: tuple[tuple[str, str], ...] = ()
    strip_thinking: bool = field(default=False, repr=False)

    def shown(self, caption: Any) -> Any:
        """A caption as it is scored."""
        return without_thinking(caption) if self.strip_thinking and isinstance(caption, str) else caption

    def thinking_cut(self, captions: Iterable[Any]) -> int:
        """From how many captions reasoning is cut."""
        return sum(self.shown(caption) != caption for caption in captions) if self.strip_thinking else 0

    @property
    def names(self) -> list[str]:
        names = (self.caption, self.image, self.references, self.group, *dict(self.context).values())
        return list(dict.fromkeys(name for name in names if name is not None))

    @property
    def texts(self) -> list[str]:
        """The columns that `row_key` looks at."""
        names = (self.caption, self.references, *dict(self.context).values())
        return [name for name in names if name is not None]


@dataclass
class RowTask:
    """What is to be scored in one row: candidates of one image, or the reason why there is nothing.

    Args:
        candidates: captions, not checked yet.
        references: checked references.
        image: the column's value, later replaced by the decoded image; None without an image.
        problem: (kind, message) when nothing of the row can be scored.
        image_problem: why there is no image, for metrics that need one.
        context: further fields of a `CaptionSample`.
        row: number of the row, from 0.
        key: `row_key` of the row.
        picture: names its image as it is now: the `image_stamp` of a file, else the content; empty without one.
        is_file: whether `picture` is that of a file.
        image_key: under which rows share an image.
        group: names the group of the row; None without groups.
        thinking_cut: from how many of its captions reasoning is cut.
    """

    candidates: Sequence[Any] = ()
    references: tuple[str, ...] = ()
    image: Any = None
    problem: tuple[str, str] | None = None
    image_problem: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    row: int = 0
    key: str = ""
    picture: str = ""
    is_file: bool = False
    image_key: str | None = None
    group: str | None = None
    thinking_cut: int = 0


def find_columns(
    columns: Sequence[str],
    specs: MetricSpec | Sequence[MetricSpec],
    *,
    candidate: str | None = None,
    image: str | None = None,
    references: str | None = None,
    group: str | None = None,
    ranked: Source | None = None,
    context: Mapping[str, str] | None = None,
    strip_thinking: bool = False,
) -> ColumnPlan:
    """Chooses the columns: those named, else those of `reward.samples.COLUMN_NAMES`.

    Args:
        columns: the columns there are.
        specs: the metric, or several; an image column is used only if one needs it, or if `image` names one.
        candidate, image, references, group: column names given by the user.
        ranked: the data, if the candidates of an image are to be ranked: look for `candidates`, else for `candidate`
            (first, if a group is given). If the column holds no lists, each row has one candidate, and rows of one
            group (else of one image) belong together.
        context, strip_thinking: see `ColumnPlan`; a metric that reads questions finds the column `question` by itself.

    Raises:
        DataError: a column is missing or could be one of several; the message names those there are. Or the column of
            candidates to rank holds neither lists nor texts, or lists although a group is given.

    Example:
        >>> from reward.registry import metric_spec
        >>> find_columns(["id", "caption", "refs"], metric_spec("length"))
        ColumnPlan(caption='caption', image=None, references='refs', many=False, group=None, context=())
    """
    specs = [specs] if isinstance(specs, MetricSpec) else specs
    name = repr("+".join(spec.name for spec in specs))
    found = {
        what: find_column(what, columns, column, option=f"--{what}-column") for what, column in (context or {}).items()
    }
    for role in _further(specs):
        by = _needing(spec for spec in specs if role in spec.columns)
        found[role] = find_column(role, columns, found.get(role), option="column= (--set column=)", needed_by=by)
    if any(spec.reads_questions for spec in specs) and "question" not in found:
        by = f"metric {name} with this task"
        found["question"] = find_column("question", columns, option="--question-column", needed_by=by)
    elif "question" in columns and "question" not in found:
        warnings.warn(
            f"metric {name} does not read the column 'question', and takes answers for captions", stacklevel=2
        )
    image_column = None
    looking = _needing(spec for spec in specs if spec.needs_image)
    if looking or image is not None:
        image_column = find_column(
            "image", columns, image, option="--image-column", needed_by=looking or f"metric {name}"
        )
    needed_by = _needing(spec for spec in specs if spec.needs_references)
    references_column = find_column(
        "references", columns, references, option="--references-column", needed_by=needed_by
    )
    roles = ["candidate"] if ranked is None or group is not None else ["candidates", "candidate"]
    found_captions = (find_column(role, columns, candidate, option="--candidate-column") for role in roles)
    caption = next((name for name in found_captions if name is not None), None)
    caption = caption or find_column(roles[0], columns, option="--candidate-column", needed_by="scoring")
    assert caption is not None
    many = False
    if ranked is not None:
        many = _holds_lists(ranked, caption)
        group = _group_column(columns, caption, many, image_column, group)
    read = tuple((what, column) for what, column in found.items() if column is not None)
    return ColumnPlan(caption, image_column, references_column, many, group, read, strip_thinking)


def _further(specs: Sequence[MetricSpec]) -> list[str]:
    """What else the metrics read of a row."""
    return list(dict.fromkeys(role for spec in specs for role in spec.columns))


def _needing(specs: Iterable[MetricSpec]) -> str | None:
    """The metrics that need a column, for a message; None if none does."""
    names = [repr(spec.name) for spec in specs]
    return f"metric {' and '.join(names)}" if names else None


def _holds_lists(source: Source, column: str) -> bool:
    """Whether captions to be ranked come as lists, one a row; the first rows tell.

    Raises:
        DataError: they are neither lists nor texts, so that every row would fail.
    """
    kinds = set()
    for row in islice(source.rows([column]), _ROWS_LOOKED_AT):
        value = None if isinstance(row, BadRow) else or_none(row.get(column))
        with suppress(InvalidSampleError):  # of which the row will tell
            value = listed(value)
        if is_list(value):
            return True
        kinds |= {type(value)} - {type(None)}
    if kinds and str not in kinds:
        raise DataError(
            f"column {column!r} holds {min(kind.__name__ for kind in kinds)}, neither lists of captions nor one a row: "
            "name another with --candidate-column"
        )
    return not kinds and column in column_names("candidates")  # all empty: each row says so


def _group_column(columns: Sequence[str], caption: str, many: bool, image: str | None, group: str | None) -> str | None:
    """The column that tells which rows compete; None if each row has its candidates in a list."""
    if many and group is not None:
        raise DataError(
            f"column {caption!r} holds lists of captions, and those of a row compete: leave out --group-column, "
            "which is for one caption a row"
        )
    if many:
        return None
    group = find_column("group", columns, group, option="--group-column") if group is not None else image
    group = group or find_column("image", columns, option="--group-column")
    if group is None:
        raise DataError(
            "each row has one candidate, and no column names the image: name the column that the candidates of one "
            f"image share with --group-column. The columns are: {named(columns)}."
        )
    return group


def row_key(row: Mapping[str, Any] | BadRow, plan: ColumnPlan) -> str:
    """Short hash of a row's texts, which shows that a saved result belongs to this row.

    Example:
        >>> row_key({"candidate": "a red star", "id": 3}, ColumnPlan("candidate", None, None))
        '7cb6926a'
    """
    texts = row.message if isinstance(row, BadRow) else [row.get(name) for name in plan.texts]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:8]


def row_task(
    row: Mapping[str, Any] | BadRow,
    plan: ColumnPlan,
    specs: MetricSpec | Sequence[MetricSpec],
    *,
    number: int = 0,
    is_csv: bool = False,
    root: str | os.PathLike[str] = "",
) -> RowTask:
    """Reads row `number`; whatever is wrong with it becomes its `problem`, never an exception.

    `root` is where relative image paths start.
    """
    specs = [specs] if isinstance(specs, MetricSpec) else specs
    key = row_key(row, plan)
    if isinstance(row, BadRow):
        return RowTask(problem=("row", row.message), row=number, key=key)
    task = _row_task(row, plan, specs, is_csv)
    task.row, task.key = number, key
    if plan.image:
        _name_picture(task, row, plan, root)
    if plan.group is not None:
        group = or_none(row.get(plan.group))
        needs_image = any(spec.needs_image for spec in specs)
        if group is None and task.problem is None and (task.image_problem is None or not needs_image):
            task.problem = (
                "group",
                f"the row has nothing in column {plan.group!r}, by which rows are ranked",
            )
        task.group = None if group is None else hashlib.sha256(_group_key(group).encode()).hexdigest()[:16]
    return task


def _name_picture(task: RowTask, row: Mapping[str, Any], plan: ColumnPlan, root: str | os.PathLike[str]) -> None:
    """Sets what tells the image of a row from others, and from what it was when the row was scored."""
    boxed = isinstance(task.image, BoxedImage)
    image = task.image.image if boxed else task.image
    identity = None if image is None else image_identity(image)
    task.picture, task.is_file = picture_of(row, plan, root, identity=identity)
    task.image_key = f"{identity} {task.image.box}" if boxed else identity


def picture_of(
    row: Mapping[str, Any] | BadRow, plan: ColumnPlan, root: str | os.PathLike[str], *, identity: str | None = None
) -> tuple[str, bool]:
    """What names the image of a row as it is now, and whether that is a file, which may be replaced.

    Args:
        identity: its `image_identity`, if that is known.
    """
    if isinstance(row, BadRow) or plan.image is None:
        return "", False
    cell = row.get(plan.image)
    stamp = "" if "://" in os.fspath(root) else image_stamp(cell, root)
    if stamp:
        return stamp, True
    try:
        image = one_image(cell)
    except InvalidSampleError:
        return "", False
    if image is None:
        return "", False
    if hasattr(image, "getbands") or getattr(image, "ndim", 0) > 0:
        return _group_key(image), False
    return identity or image_identity(image), False


def _group_key(group: Any) -> str:
    """What the rows of a group share; pixels by content, since those of other rows are other objects, and gone."""
    if hasattr(group, "getbands") or getattr(group, "ndim", 0) > 0:
        with suppress(ImageError):
            return image_key(group)
    return image_identity(group)


def image_identity(image: Any) -> str:
    """Cheap key under which rows share an image: the path, or the hash of the bytes."""
    if isinstance(image, dict):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, bytes):
        return hashlib.sha256(image).hexdigest()
    if getattr(image, "ndim", 0):  # pixels, of which `repr` shows some only; the caller keeps image or array alive
        return f"array {id(image)}"
    return repr(image)


def _row_task(row: Mapping[str, Any], plan: ColumnPlan, specs: Sequence[MetricSpec], is_csv: bool) -> RowTask:
    cell = or_none(row.get(plan.caption))
    try:
        candidates = listed(cell) if plan.many or is_csv else cell
    except InvalidSampleError as error:
        return RowTask(problem=("candidate", f"column {plan.caption!r}: {error}"))
    if not plan.many and not is_csv and (is_list(cell) or isinstance(cell, Mapping)):
        way = "a list of captions: `capreward rerank` scores those of a list"
        if isinstance(cell, Mapping):
            names = " or ".join(f"--candidate-column {plan.caption}.{name}" for name in [*cell][:3])
            way = f"an object: name one of its fields, {names}"
        return RowTask(problem=("candidate", f"column {plan.caption!r} holds {way}"))
    if not plan.many:  # a caption may be JSON that a model wrote, but no list of captions
        candidates = [candidates if is_list(candidates) else cell]
    elif not is_list(candidates) or not (candidates := values_of(candidates, plan.caption)):
        message = f"column {plan.caption!r} must hold a list of captions, got {reprlib.repr(candidates)}"
        return RowTask(problem=("candidate", message))
    cut = plan.thinking_cut(candidates)
    candidates = [plan.shown(candidate) for candidate in candidates]
    try:
        references = _references(row, plan)
    except InvalidSampleError as error:
        return RowTask(candidates, problem=("references", str(error)), thinking_cut=cut)
    if all(spec.needs_references for spec in specs) and not references:
        message = f"metric {'+'.join(spec.name for spec in specs)!r} needs references, but the row has none"
        return RowTask(candidates, problem=("references", message), thinking_cut=cut)
    image, image_problem = None, None
    try:
        image = one_image(row.get(plan.image)) if plan.image else None
        if plan.image and image is None:
            image_problem = f"the row has no image in column {plan.image!r}"
    except InvalidSampleError as error:
        image_problem = str(error)
    cells = {what: or_none(row.get(column)) for what, column in plan.context}
    context = {what: None if isinstance(cell, str) and is_blank(cell) else cell for what, cell in cells.items()}
    if further := {role: context.pop(role, None) for role in _further(specs)}:
        context["columns"] = further
    box = listed(context.pop("box", None))
    if box is not None and image is not None:
        image = BoxedImage(image, box)
    return RowTask(candidates, references, image, image_problem=image_problem, context=context, thinking_cut=cut)


def row_references(row: Mapping[str, Any] | BadRow, plan: ColumnPlan) -> tuple[str, ...]:
    """References of a row; empty where they are missing or wrong."""
    if isinstance(row, BadRow):
        return ()
    try:
        return _references(row, plan)
    except InvalidSampleError:
        return ()


def _references(row: Mapping[str, Any], plan: ColumnPlan) -> tuple[str, ...]:
    return read_references(row.get(plan.references)) if plan.references else ()
