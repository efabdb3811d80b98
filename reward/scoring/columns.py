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
from typing import Any, TypeAlias

from reward.data.cells import is_list, missing_to_none, parse_list, to_list
from reward.data.column_names import column_names
from reward.data.drawn_images import BoxedImage
from reward.data.image_files import file_stamp
from reward.data.samples import CaptionSample, find_column, is_blank, join_names, one_image, read_references
from reward.errors import DataError, InvalidSampleError
from reward.metrics.base import MetricSpec
from reward.scoring.sources import BadRow, Source, image_identity, path_in

Problem: TypeAlias = "tuple[str, str]"  # its kind, and the message


@dataclass
class RowTask:
    """What is to be scored in one row: candidates of one image, or the reason why there is nothing."""

    row: int = 0  # its number
    name: str = ""  # names its texts and its image as they are now
    candidates: list[Any] = field(default_factory=list)  # not checked yet
    references: tuple[str, ...] = ()  # checked
    image: Any = None  # the cell, later replaced by the decoded image
    image_key: str | None = None  # under which rows share an image
    stamp: str = ""  # changes when the file of its image does, see `file_stamp`
    problem: Problem | None = None  # when nothing of the row can be scored
    image_problem: str | None = None  # why there is no image, for metrics that need one
    context: dict[str, Any] = field(default_factory=dict)  # further fields of a `CaptionSample`
    group: str | None = None  # names the group in which it competes
    thinking_cut: int = 0  # from how many of its captions reasoning is cut

    def make_samples(self) -> list[CaptionSample | Problem]:
        """What is to be scored, or what is wrong with it: one each candidate, or one alone; the image is decoded."""
        samples: list[CaptionSample | Problem] = []
        for candidate in self.candidates or [None]:
            if self.problem is not None:
                samples.append(self.problem)
                continue
            try:
                samples.append(CaptionSample(candidate, self.image, self.references, **self.context))
            except InvalidSampleError as error:
                samples.append(("candidate", str(error)))
        return samples


@dataclass(frozen=True)
class ColumnPlan:
    """Names of the columns that are read, and how.

    Args:
        caption: holds the caption, or the list of captions when `many`.
        image, references: None where none are read.
        group: holds what the candidates of one image share, when rows with one candidate each are to be ranked.
        context: (role, column) of a candidate's "question" and "task", of its image's "box", see `BoxedImage`, and of
            what else its metric needs, see `MetricSpec.columns`.
        strip_thinking: whether captions are taken out of what a model wrote, see
            `reward.data.written_captions.caption_in`.
        specs: of the metrics.
        is_csv: whether captions are texts, also where they are lists.
        groups_by_image: whether the group is the image: two paths of one file are one group.
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
    groups_by_image: bool = field(default=False, repr=False)

    @property
    def names(self) -> list[str]:
        """Of all columns that are read."""
        names: dict[str | None, None] = dict.fromkeys((self.caption, self.image, self.references, self.group))
        for _, column in self.context:
            names[column] = None
        names.pop(None, None)
        return list(names)  # type: ignore[arg-type]

    @cached_property
    def further_roles(self) -> list[str]:
        """What the metrics need of a row beside caption, image and references."""
        return _further_roles(self.specs)

    def task(self, row: Mapping[str, Any] | BadRow, number: int = 0, root: str | os.PathLike[str] = "") -> RowTask:
        """Reads row `number`; whatever is wrong with it becomes its `problem`, never an exception.

        `root` is where relative image paths start.
        """
        task = RowTask(number)
        if isinstance(row, BadRow):
            task.name, task.problem = row.message, ("row", row.message)
            return task
        root = os.fspath(root)
        if self.context or self.further_roles:
            self._read_context(task, row)
        written_image = self._read_image(task, row, root)
        texts = [row.get(self.caption)]
        if self.references is not None:
            texts.append(row.get(self.references))
        for _, column in self.context:
            texts.append(row.get(column))
        if self.group not in (None, self.image):
            texts.append(row.get(self.group))
        # By the name a part knows its rows again: whatever is read of a row is in it, and nothing else is.
        task.name = repr([texts, written_image, task.stamp])
        try:
            self._read_captions(task, row)
        except InvalidSampleError as error:
            task.problem = ("candidate", str(error))
        if task.problem is None and self.references is not None:
            self._read_references(task, row)
        if self.group is not None:
            self._read_group(task, row, root)
        if task.problem is not None:
            task.image = task.image_key = task.image_problem = None
        return task

    def _read_context(self, task: RowTask, row: Mapping[str, Any]) -> None:
        """The further fields of a sample; `columns` has what its metric needs beside."""
        for role, column in self.context:
            cell = missing_to_none(row.get(column))
            if isinstance(cell, str) and is_blank(cell):
                cell = None
            task.context[role] = cell
        if self.further_roles:
            task.context["columns"] = {role: task.context.pop(role, None) for role in self.further_roles}

    def _read_image(self, task: RowTask, row: Mapping[str, Any], root: str) -> Any:
        """Sets the image with what names it; gives what names it wherever the data lie."""
        box = task.context.pop("box", None)
        if self.image is None:
            return None
        try:
            image, box = one_image(row.get(self.image)), parse_list(box)
        except InvalidSampleError as error:
            task.image_problem = str(error)
            return None
        if image is None:
            task.image_problem = f"the row has no image in column {self.image!r}"
            return None
        file = image_identity(image, root)
        task.image, task.image_key = image, file
        if box is not None:
            task.image, task.image_key = BoxedImage(image, box), f"{task.image_key} {box}"
        path = path_in(image)
        if path is None:
            return task.image_key
        # The path as it is written, and not the file, names the row: the data may be moved during a stop.
        if "://" not in root:
            with suppress(OSError, ValueError):  # scoring says of a file that cannot be read why
                task.stamp = file_stamp(os.stat(file))
        return path

    def _read_captions(self, task: RowTask, row: Mapping[str, Any]) -> None:
        cell = missing_to_none(row.get(self.caption))
        try:
            value = parse_list(cell) if self.many or self.is_csv else cell
        except InvalidSampleError as error:
            raise InvalidSampleError(f"column {self.caption!r}: {error}") from None
        # In a table of text a cell in brackets may be a list that a program wrote.
        captions = [cell]
        if self.many:
            captions = []
            if is_list(value):
                captions = to_list(value, self.caption)
            if not captions:
                raise InvalidSampleError(
                    f"column {self.caption!r} must hold a list of captions, got {reprlib.repr(value)}"
                )
        elif is_list(value):
            raise InvalidSampleError(
                f"column {self.caption!r} holds a list of captions: `capreward rerank` scores those of a list"
            )
        elif isinstance(cell, dict):
            raise InvalidSampleError(
                f"column {self.caption!r} holds an object with the fields {reprlib.repr([*cell])}: write the one with "
                "the caption as a column of its own"
            )
        task.candidates = captions
        if not self.strip_thinking:
            return
        from reward.data.written_captions import caption_in

        task.candidates = []
        for text in captions:
            caption = caption_in(text) if isinstance(text, str) else text
            task.candidates.append(caption)
            task.thinking_cut += caption != text

    def _read_references(self, task: RowTask, row: Mapping[str, Any]) -> None:
        try:
            task.references = read_references(row.get(str(self.references)))
        except InvalidSampleError as error:
            task.problem = ("references", str(error))
            return
        if not task.references and all(spec.needs_references for spec in self.specs):
            task.problem = ("references", f"metric {_names(self.specs)!r} needs references, but the row has none")

    def _read_group(self, task: RowTask, row: Mapping[str, Any], root: str) -> None:
        group = missing_to_none(row.get(str(self.group)))
        if isinstance(group, str) and is_blank(group):  # of a table of text
            group = None
        if self.groups_by_image:
            with suppress(InvalidSampleError):  # several images are a group, too
                group = one_image(group)
        if group is not None:
            # Another group than the image may be a number or a name, which is no path.
            identity = image_identity(group, root if self.groups_by_image else None)
            task.group = hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:16]
            return
        has_no_image = task.image_problem is not None and _any_needs_image(self.specs)
        if task.problem is None and not has_no_image:
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
    """Chooses the columns: those named, else those of `reward.data.column_names.COLUMN_NAMES`.

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
    context_columns: dict[str, str | None] = {**(context or {})}
    further_roles = _further_roles(specs)
    for role in further_roles:
        context_columns.setdefault(role, None)
    if _needed_by(specs, "question"):
        context_columns.setdefault("question", None)
    elif "question" in columns and "question" not in context_columns:
        warnings.warn(
            f"metric {_names(specs)!r} does not read the column 'question', and takes answers for captions",
            stacklevel=2,
        )
    for role, name in context_columns.items():
        option = "column= (--set column=)" if role in further_roles else f"--{role}-column"
        needed_by = _needed_by(specs, role)
        context_columns[role] = find_column(role, columns, name, option=option, needed_by=needed_by)
    # A metric whose model decides reads images if there are any.
    if image is not None or _any_needs_image(specs):
        needed_by = _needed_by(specs, "image")
        image = find_column("image", columns, image, option="--image-column", needed_by=needed_by)
    needed_by = _needed_by(specs, "references")
    references = find_column("references", columns, references, option="--references-column", needed_by=needed_by)

    # Without a named group, candidates to be ranked are first looked for as lists.
    roles = ["candidate"]
    if ranked is not None and group is None:
        roles = ["candidates", "candidate"]
    caption = None
    for role in roles:
        caption = caption or find_column(role, columns, candidate, option="--candidate-column")
    caption = caption or find_column(roles[0], columns, option="--candidate-column", needed_by="scoring")
    assert caption is not None

    # Lists compete row by row; captions that come one a row compete with those of their image, or of a named group.
    many = ranked is not None and _holds_lists(ranked, caption)
    if many and group is not None:
        raise DataError(
            f"column {caption!r} holds lists of captions, and those of a row compete: leave out --group-column, "
            "which is for one caption a row"
        )
    groups_by_image = ranked is not None and not many and group is None
    if groups_by_image:
        group = image or find_column("image", columns, option="--group-column")
        if group is None:
            raise DataError(
                "each row has one candidate, and no column names the image: name the column that the candidates of one "
                f"image share with --group-column. The columns are: {join_names(columns)}."
            )
    elif group is not None:
        find_column("group", columns, group, option="--group-column")
        groups_by_image = group == image
    pairs = tuple((role, column) for role, column in context_columns.items() if column is not None)
    return ColumnPlan(caption, image, references, many, group, pairs, strip_thinking, specs, is_csv, groups_by_image)


def _further_roles(specs: Sequence[MetricSpec]) -> list[str]:
    """What the metrics need of a row beside caption, image and references."""
    roles = dict[str, None]()
    for spec in specs:
        roles |= dict.fromkeys(spec.columns)
    return list(roles)


def _needed_by(specs: Sequence[MetricSpec], role: str) -> str | None:
    """The metrics that need a column, for a message; those whose model decides what it reads can do without."""
    names = []
    for spec in specs:
        is_needed = spec.reads_questions if role == "question" else role in spec.needs
        if is_needed and not spec.model_decides:
            names.append(repr(spec.name))
    return f"metric {' and '.join(names)}" if names else None


def _any_needs_image(specs: Sequence[MetricSpec]) -> bool:
    return any(spec.needs_image for spec in specs)


def _names(specs: Sequence[MetricSpec]) -> str:
    return "+".join(spec.name for spec in specs)


def _holds_lists(reader: Source, column: str) -> bool:
    """Whether captions to be ranked come as lists, one a row, as the first of them does."""
    kind = None
    for row in reader.rows([column]):
        if isinstance(row, BadRow):
            continue
        value = missing_to_none(row.get(column))
        with suppress(InvalidSampleError):  # of which the row will tell
            value = parse_list(value)
        if is_list(value):
            return True
        if isinstance(value, str):
            return False
        if value is not None:
            kind = type(value).__name__
    if kind is not None:
        raise DataError(
            f"column {column!r} holds {kind}, neither lists of captions nor one a row: name another with "
            "--candidate-column"
        )
    return column in column_names("candidates")  # all empty: each row says so
