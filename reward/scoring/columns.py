"""Which columns hold caption, image and references, and what is to be scored in a row."""

from __future__ import annotations

import hashlib
import os
import reprlib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

from reward.checkpoints.fingerprints import image_stamp
from reward.data.cells import is_list, missing_to_none, parse_list, to_list
from reward.data.drawn_images import BoxedImage
from reward.data.images import image_key
from reward.data.samples import (
    CaptionSample,
    column_names,
    find_column,
    is_blank,
    join_names,
    one_image,
    read_references,
)
from reward.data.written_captions import caption_in
from reward.errors import DataError, ImageError, InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.scoring.sources import BadRow, Source

Problem: TypeAlias = "tuple[str, str]"  # its kind, and the message

_ROWS_LOOKED_AT = 1000  # for the form of the data


@dataclass
class RowTask:
    """What is to be scored in one row: candidates of one image, or the reason why there is nothing."""

    row: int = 0  # its number
    name: str = ""  # names its texts and its image as they are now
    candidates: Sequence[Any] = ()  # not checked yet
    references: tuple[str, ...] = ()  # checked
    image: Any = None  # the cell, later replaced by the decoded image
    image_key: str | None = None  # under which rows share an image
    stamp: str = ""  # changes when the file of its image does, see `image_stamp`
    problem: Problem | None = None  # when nothing of the row can be scored
    image_problem: str | None = None  # why there is no image, for metrics that need one
    context: dict[str, Any] = field(default_factory=dict)  # further fields of a `CaptionSample`
    group: str | None = None  # names the group in which it competes
    thinking_cut: int = 0  # from how many of its captions reasoning is cut

    @cached_property
    def samples(self) -> list[CaptionSample | Problem]:
        """What is to be scored, or what is wrong with it: one each candidate, or one alone; the image is decoded."""
        return [self._sample(candidate) for candidate in self.candidates or [None]]

    def _sample(self, candidate: Any) -> CaptionSample | Problem:
        if self.problem is not None:
            return self.problem
        try:
            return CaptionSample(candidate, self.image, self.references, **self.context)
        except InvalidSampleError as error:
            return "candidate", str(error)


@dataclass(frozen=True)
class ColumnPlan:
    """Names of the columns that are read, and how.

    Args:
        caption: holds the caption, or the list of captions when `many`.
        image, references: None where none are read.
        group: holds what the candidates of one image share, when rows with one candidate each are to be ranked.
        context: (what, column) of a candidate's "question" and "task", of its image's "box", see `BoxedImage`, and of
            what else its metric needs, see `MetricSpec.columns`.
        strip_thinking: whether captions are taken out of what a model wrote, see
            `reward.data.written_captions.caption_in`.
        specs: of the metrics.
        is_csv: whether captions are texts, also where they are lists.
    """

    caption: str
    image: str | None
    references: str | None
    many: bool = False
    group: str | None = None
    context: tuple[tuple[str, str], ...] = ()
    strip_thinking: bool = field(default=False, repr=False)
    specs: tuple[MetricSpec, ...] = field(default=(), repr=False)
    is_csv: bool = field(default=False, repr=False)

    @property
    def names(self) -> list[str]:
        """Of all columns that are read."""
        names = (self.caption, self.image, self.references, self.group, *dict(self.context).values())
        return list(dict.fromkeys(name for name in names if name is not None))

    def task(self, row: Mapping[str, Any] | BadRow, number: int = 0, root: str | os.PathLike[str] = "") -> RowTask:
        """Reads row `number`; whatever is wrong with it becomes its `problem`, never an exception.

        `root` is where relative image paths start.
        """
        task = RowTask(number)
        if isinstance(row, BadRow):
            task.name, task.problem = row.message, ("row", row.message)
            return task
        self._read_image(task, row, root)
        texts = [row.get(name) for name in (self.caption, self.references, *dict(self.context).values()) if name]
        task.name = repr([texts, task.image_key, task.stamp])
        kind = "candidate"
        try:
            self._read_captions(task, row)
            kind = "references"
            task.references = read_references(row.get(self.references)) if self.references else ()
            if all(spec.needs_references for spec in self.specs) and not task.references:
                name = "+".join(spec.name for spec in self.specs)
                raise InvalidSampleError(f"metric {name!r} needs references, but the row has none")
        except InvalidSampleError as error:
            task.problem = (kind, str(error))
            task.image = task.image_key = task.image_problem = None
        if self.group is not None:
            self._read_group(task, missing_to_none(row.get(self.group)))
        return task

    def _read_captions(self, task: RowTask, row: Mapping[str, Any]) -> None:
        cell = missing_to_none(row.get(self.caption))
        try:
            found = parse_list(cell) if self.many or self.is_csv else cell
        except InvalidSampleError as error:
            raise InvalidSampleError(f"column {self.caption!r}: {error}") from None
        if self.many:
            if not is_list(found) or not (found := to_list(found, self.caption)):
                raise InvalidSampleError(
                    f"column {self.caption!r} must hold a list of captions, got {reprlib.repr(found)}"
                )
        elif not self.is_csv and isinstance(cell, Mapping):
            names = " or ".join(f"--candidate-column {self.caption}.{name}" for name in [*cell][:3])
            raise InvalidSampleError(f"column {self.caption!r} holds an object: name one of its fields, {names}")
        elif not self.is_csv and is_list(cell):
            raise InvalidSampleError(
                f"column {self.caption!r} holds a list of captions: `capreward rerank` scores those of a list"
            )
        else:  # a caption may be JSON that a model wrote, but no list of captions
            found = [found if is_list(found) else cell]
        strips = self.strip_thinking
        task.candidates = [caption_in(each) if strips and isinstance(each, str) else each for each in found]
        task.thinking_cut = (
            sum(a != b for a, b in zip(found, task.candidates, strict=True)) if self.strip_thinking else 0
        )

    def _read_image(self, task: RowTask, row: Mapping[str, Any], root: str | os.PathLike[str]) -> None:
        """Sets the image with what names it, and the further fields of its samples."""
        cells = {what: missing_to_none(row.get(column)) for what, column in self.context}
        context = {what: None if isinstance(cell, str) and is_blank(cell) else cell for what, cell in cells.items()}
        box = context.pop("box", None)
        if further := {role: context.pop(role, None) for role in _further(self.specs)}:
            context["columns"] = further
        task.context = context
        if self.image is None:
            return
        try:
            task.image, box = one_image(row.get(self.image)), parse_list(box)
        except InvalidSampleError as error:
            task.image_problem = str(error)
            return
        if task.image is None:
            task.image_problem = f"the row has no image in column {self.image!r}"
            return
        task.stamp = "" if "://" in os.fspath(root) else image_stamp(task.image, root)
        task.image_key = image_identity(task.image)
        if box is not None:
            task.image, task.image_key = BoxedImage(task.image, box), f"{task.image_key} {box}"

    def _read_group(self, task: RowTask, group: Any) -> None:
        needs_image = any(spec.needs_image for spec in self.specs)
        if group is not None:
            task.group = hashlib.sha256(image_identity(group).encode()).hexdigest()[:16]
        elif task.problem is None and (task.image_problem is None or not needs_image):
            task.problem = ("group", f"the row has nothing in column {self.group!r}, by which rows are ranked")


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
    is_csv: bool = False,
) -> ColumnPlan:
    """Chooses the columns: those named, else those of `reward.data.samples.COLUMN_NAMES`.

    Args:
        columns: the columns there are.
        specs: the metric, or several; an image column is used only if one needs it, or if `image` names one.
        candidate, image, references, group: column names given by the user.
        ranked: the data, if the candidates of an image are to be ranked: look for `candidates`, else for `candidate`
            (first, if a group is given). If the column holds no lists, each row has one candidate, and rows of one
            group (else of one image) belong together.
        context, strip_thinking, is_csv: see `ColumnPlan`; a metric that reads questions finds the column `question` by
            itself.

    Raises:
        DataError: a column is missing or could be one of several; the message names those there are. Or the column of
            candidates to rank holds neither lists nor texts, or lists although a group is given.

    Example:
        >>> from reward.registry import metric_spec
        >>> find_columns(["id", "caption", "refs"], metric_spec("length"))
        ColumnPlan(caption='caption', image=None, references='refs', many=False, group=None, context=())
    """
    specs = (specs,) if isinstance(specs, MetricSpec) else tuple(specs)

    def found(role: str, given: str | None, needing: Sequence[str] = (), option: str = "") -> str | None:
        by = f"metric {' and '.join(map(repr, needing))}" if needing else None
        return find_column(role, columns, given, option=option or f"--{role}-column", needed_by=by)

    def needing(what: str) -> list[str]:
        return [spec.name for spec in specs if getattr(spec, what) and not spec.model_decides]

    read = {what: found(what, column) for what, column in (context or {}).items()}
    for role in _further(specs):
        wanting = [spec.name for spec in specs if role in spec.columns]
        read[role] = found(role, read.get(role), wanting, "column= (--set column=)")
    if needing("reads_questions"):
        read["question"] = found("question", read.get("question"), needing("reads_questions"))
    elif "question" in columns and "question" not in read:
        name = "+".join(spec.name for spec in specs)
        warnings.warn(
            f"metric {name!r} does not read the column 'question', and takes answers for captions", stacklevel=2
        )
    if any(spec.needs_image for spec in specs) or image is not None:
        image = found("image", image, needing("needs_image"))
    references = found("references", references, needing("needs_references"))
    roles = ["candidate"] if ranked is None or group is not None else ["candidates", "candidate"]
    option = "--candidate-column"
    captions = (find_column(role, columns, candidate, option=option) for role in roles)
    caption = next((name for name in captions if name is not None), None)
    caption = caption or find_column(roles[0], columns, option=option, needed_by="scoring")
    assert caption is not None
    many = ranked is not None and _holds_lists(ranked, caption)
    if many and group is not None:
        raise DataError(
            f"column {caption!r} holds lists of captions, and those of a row compete: leave out --group-column, "
            "which is for one caption a row"
        )
    if ranked is not None and not many:
        group = found("group", group) if group is not None else image or found("image", None, option="--group-column")
        if group is None:
            raise DataError(
                "each row has one candidate, and no column names the image: name the column that the candidates of one "
                f"image share with --group-column. The columns are: {join_names(columns)}."
            )
    pairs = tuple((what, column) for what, column in read.items() if column is not None)
    return ColumnPlan(caption, image, references, many, group, pairs, strip_thinking, specs, is_csv)


def _further(specs: Sequence[MetricSpec]) -> list[str]:
    """What else the metrics read of a row."""
    return list(dict.fromkeys(role for spec in specs for role in spec.columns))


def _holds_lists(source: Source, column: str) -> bool:
    """Whether captions to be ranked come as lists, one a row; the first rows tell."""
    kinds = set()
    for row in islice(source.rows([column]), _ROWS_LOOKED_AT):
        value = None if isinstance(row, BadRow) else missing_to_none(row.get(column))
        with suppress(InvalidSampleError):  # of which the row will tell
            value = parse_list(value)
        if is_list(value):
            return True
        kinds |= {type(value)} - {type(None)}
    if kinds and str not in kinds:
        raise DataError(
            f"column {column!r} holds {min(kind.__name__ for kind in kinds)}, neither lists of captions nor one a row: "
            "name another with --candidate-column"
        )
    return not kinds and column in column_names("candidates")  # all empty: each row says so


def image_identity(image: Any) -> str:
    """Key under which rows share an image, or another value: the path, or the hash of the bytes or the pixels."""
    if isinstance(image, dict):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, bytes):
        return hashlib.sha256(image).hexdigest()
    if hasattr(image, "getbands") or getattr(image, "ndim", 0) > 0:
        with suppress(ImageError):
            return image_key(image)
    return repr(image)
