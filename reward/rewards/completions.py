"""From a trainer's call (prompts, completions, data set columns) to samples, and the reasons why a row has no score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reward.errors import DataError, ImageError, InvalidSampleError
from reward.images import image_key, load_image
from reward.metrics.base import MetricSpec
from reward.rewards.chats import IMAGE_TYPES, block_image
from reward.samples import (
    COLUMN_NAMES,
    CaptionSample,
    check_encodable,
    checked_references,
    clean_references,
    column_names,
    find_column,
    is_wordless,
    one_image,
    usual_names,
)
from reward.thinking import without_thinking
from reward.values import is_list, or_none, values_of

__all__ = [
    "CaptionRow",
    "Problem",
    "check_first_call",
    "completion_text",
    "prompt_images",
    "read_rows",
]

_PROMPT = "the prompt"


@dataclass(frozen=True)
class Problem:
    """Why a row has no score: `kind` is what is counted, `message` tells about this row.

    `by_policy` marks a problem with what the policy wrote; all others are faults of the data or of the set-up.
    """

    kind: str
    message: str
    by_policy: bool = False


@dataclass(frozen=True, eq=False)
class CaptionRow:
    """One completion with its image and references, or the reason why it cannot be scored.

    Args:
        sample: what a metric scores; None for a problem, and for a caption without a word (no letter and no number).
            The policy wrote that caption, so it is no problem of the data.
        image, references: of the row, also where there is no sample.
        columns: {role: cell} of what else its metric needs, see `MetricSpec.columns`.
        problem: why the row cannot be scored.
        image_from, references_from, columns_from: where they were found, or why there are none.
        thinking_cut: whether reasoning was cut from the caption.
    """

    sample: CaptionSample | None = None
    image: Any = None
    references: Any = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    problem: Problem | None = None
    image_from: str = "the sample has none"
    references_from: str = "the sample has none"
    columns_from: Mapping[str, str] = field(default_factory=dict)
    thinking_cut: bool = False

    @classmethod
    def of_sample(cls, sample: CaptionSample, *, strip_thinking: bool = False) -> CaptionRow:
        """The row of a sample that did not come from a trainer; what reads a caption with its reasoning cuts it."""
        image, references, columns = sample.image, sample.references, sample.columns
        candidate = without_thinking(sample.candidate) if strip_thinking else sample.candidate
        is_cut = candidate != sample.candidate
        if is_wordless(candidate):
            return cls(None, image, references, columns, thinking_cut=is_cut)
        sample = replace(sample, candidate=candidate) if is_cut else sample
        return cls(sample, image, references, columns, thinking_cut=is_cut)

    @property
    def is_wordless(self) -> bool:
        return self.sample is None and self.problem is None

    def check_needs(self, spec: MetricSpec, scorer: Any = None) -> CaptionRow:
        """The row, with a problem if it lacks what the metric needs, or holds it in a form that its scorer refuses."""
        if self.problem is None and spec.needs_image and self.image is None:
            message = f"metric {spec.name!r} needs an image, but {self.image_from}"
            return CaptionRow(problem=Problem("no image", message + self._hint("its column with image_column=")))
        if self.problem is None and spec.needs_references and not self.references:
            message = f"metric {spec.name!r} needs references, but {self.references_from}"
            return CaptionRow(
                problem=Problem("no references", message + self._hint("their column with references_column="))
            )
        for role in spec.columns if self.problem is None else ():
            if self.columns.get(role) is None:
                why = self.columns_from.get(role, "the sample has none")
                message = f"metric {spec.name!r} needs a column with the {role}, but {why}"
                message += self._hint("the column with column=")
                return CaptionRow(problem=Problem(f"no {role}", message))
        if spec.columns and self.sample is not None and hasattr(scorer, "context"):
            try:
                scorer.context(self.sample)
            except InvalidSampleError as error:
                return CaptionRow(problem=Problem(f"bad {' or '.join(spec.columns)}", str(error)))
        return self

    def _hint(self, what: str) -> str:
        return "" if self.image_from == CaptionRow.image_from else f". Name {what}"  # a sample has no columns

    def content(self, *, with_image: bool = True) -> tuple[Any, ...]:
        """What its score is made of; rows of equal content score alike.

        The image counts by its pixels or bytes: one object, or one path, may hold another picture at the next call.
        """
        if self.sample is None:
            return (self.problem,)
        image: str | None = None
        if with_image and self.image is not None:
            try:
                image = image_key(self.image)
            except ImageError as error:
                image = str(error)
        return self.sample.candidate, tuple(self.sample.references), image, repr(self.columns)


def check_first_call(name: str, spec: MetricSpec, rows: Sequence[CaptionRow], problems: Mapping[int, Problem]) -> None:
    """Rejects data in which no row can be scored: a training would finish and have learned nothing.

    Captions without a word are no reason to stop, and neither are captions that the metric cannot score although
    their images can be read.

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
    try:
        if row.is_wordless:  # it was not scored, so nobody has looked at its references and image yet
            where = row.references_from
            checked_references(row.references)
        if spec.needs_image and (problem is not None or row.is_wordless):
            where = row.image_from
            load_image(row.image)
    except (ImageError, InvalidSampleError) as error:
        return f"{where}: {error}"
    return None


def completion_text(completion: Any) -> str:
    """Gives the caption in a completion.

    Args:
        completion: a string, or a conversation: the text of its last assistant message, where content blocks of type
            text are joined by line breaks and content None (a message of tool calls only) is an empty caption.
            Reasoning stays in, see `reward.thinking`.

    Raises:
        InvalidSampleError: None, another type, or a conversation without an assistant message.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "A red star."}]}])
        'A red star.'
    """
    if isinstance(completion, str):
        return completion
    if not is_list(completion):
        raise InvalidSampleError(
            f"a completion must be a string or a list of messages, got {type(completion).__name__}: {completion!r:.80}"
        )
    messages = values_of(completion, "completion")
    for message in reversed(messages):
        if isinstance(message, Mapping) and message.get("role") == "assistant":
            return _content_text(message.get("content"))
    raise InvalidSampleError(f"the completion has no assistant message among its {len(messages)} messages")


def _content_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if is_list(content):
        texts = [block.get("text") for block in content if isinstance(block, Mapping) and block.get("type") == "text"]
        for text in texts:
            if text is not None and not isinstance(text, str):
                raise InvalidSampleError(f"the text of a message block must be a string, got {text!r:.80}")
        return "\n".join(text for text in texts if text)
    raise InvalidSampleError(f"message content must be a string or a list of blocks, got {type(content).__name__}")


def prompt_images(prompt: Any) -> list[Any]:
    """Gives the images inside the messages of a conversational prompt, in order; a plain prompt has none.

    They are as `load_image` takes them; `reward.rewards.chats.block_image` says under which keys they are found.

    Raises:
        ImageError: an image is under another key, or an address that cannot be read.

    Example:
        >>> prompt_images([{"role": "user", "content": [{"type": "image", "path": "a.png"}]}])
        ['a.png']
    """
    if not is_list(prompt):
        return []
    images = []
    for message in values_of(prompt, "prompt"):
        content = message.get("content") if isinstance(message, Mapping) else None
        for block in values_of(content, "content") if is_list(content) else ():
            if isinstance(block, Mapping) and block.get("type") in IMAGE_TYPES:
                images.append(block_image(block))
    return [image for image in images if image is not None]  # a mere placeholder holds none


def read_rows(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    columns: Mapping[str, Any],
    *,
    image_column: str | None = None,
    references_column: str | None = None,
    further: Sequence[str] = (),
    strip_thinking: bool = True,
) -> list[CaptionRow]:
    """Reads one row per completion; the arguments are not changed.

    The image comes from `image_column` if that is named, else from the columns `images` or `image`, else from the
    messages of the prompt, else from a column of another known name, see `reward.samples.COLUMN_NAMES`. A caption
    metric judges one image, so a row with several is a problem. References come from `references_column` if
    that is named, else from the column `references` or `refs` if there is one.

    Args:
        prompts: N prompts, plain or conversational.
        completions: N completions, see `completion_text`.
        columns: {name: N values} of the data set; other entries, such as a trainer's state, are left alone.
        image_column, references_column: names of columns that must be there.
        further: what else the metric needs, see `MetricSpec.columns`.
        strip_thinking: whether reasoning is left out of the caption, see `reward.thinking`.

    Raises:
        InvalidSampleError: lengths differ, a named column is not there, or prompts, completions or a column that is
            read are no list (see `reward.values.is_list`): faults of the set-up, in every row.
    """
    prompts, completions = values_of(prompts, "prompts"), values_of(completions, "completions")
    count = len(completions)
    if len(prompts) != count:
        raise InvalidSampleError(f"got {len(prompts)} prompts and {count} completions; each row needs one of both")
    read = set([image_column] if image_column else column_names("image"))
    read.update([references_column] if references_column else column_names("references"))
    read.update(name for role in further for name in column_names(role))
    data = {
        name: values_of(values, f"column {name!r}") if name in read else values
        for name, values in columns.items()
        if is_list(values) or (name in read and values is not None)
    }
    images, references = _image_cells(prompts, data, image_column), _cells(data, "references", references_column)
    others = {role: _cells(data, role, None) for role in further}
    for where, values in (cells for each in (images, references, *others.values()) for cells in each.sources):
        if len(values) != count:
            raise InvalidSampleError(f"{where} has {len(values)} values for {count} completions")
    return [
        _read_row(index, text, images, references, others, strip_thinking) for index, text in enumerate(completions)
    ]


@dataclass(frozen=True)
class _Cells:
    """Where the values of a role are looked for: [(what messages call it, N values)], and why nowhere else."""

    sources: list[tuple[str, Sequence[Any]]]
    absent: str = ""

    def find(self, index: int, read: Callable[[Any], Any]) -> tuple[Any, str]:
        """The first value of a row that `read` finds, with its place; else None, with a phrase that says why."""
        for where, values in self.sources:
            try:
                value = read(prompt_images(values[index]) if where == _PROMPT else values[index])
            except InvalidSampleError as error:
                raise type(error)(f"{where}: {error}") from None
            if value is not None:
                return value, where
        lacking = [
            f"{where} holds {'no image' if where == _PROMPT else format(repr(values[index]), '.60')}"
            for where, values in self.sources
        ]
        return None, " and ".join([*lacking, self.absent] if self.absent else lacking)


def _cells(data: Mapping[str, Sequence[Any]], role: str, given: str | None) -> _Cells:
    try:
        name = find_column(role, data, given, option=f"{role}_column=")
    except DataError as error:
        if given is not None:
            if "Did you mean" in str(error):  # misspelt, not removed by the trainer
                raise InvalidSampleError(str(error)) from None
            raise InvalidSampleError(f"{error} Leave remove_unused_columns=False in the trainer's arguments") from None
        return _Cells([], str(error))  # several are possible, which matters only to metrics that need one
    if name is None:
        there = ", ".join(data) or "none"
        return _Cells([], f"no column is named {usual_names(role)} (the columns are: {there})")
    return _Cells([(f"column {name!r}", data[name])])


def _image_cells(prompts: Sequence[Any], data: Mapping[str, Sequence[Any]], given: str | None) -> _Cells:
    if given is not None:
        return _cells(data, "image", given)
    shown = [(f"column {name!r}", data[name]) for name in COLUMN_NAMES["image"][0] if name in data]
    prompt = (_PROMPT, prompts)  # whose images are read row by row: a bad one is a fault of its row
    if shown:
        return _Cells([*shown, prompt])
    cells = _cells(data, "image", None)
    return _Cells([prompt, *cells.sources], cells.absent)


def _read_row(
    index: int,
    completion: Any,
    images: _Cells,
    references: _Cells,
    others: Mapping[str, _Cells],
    strip_thinking: bool,
) -> CaptionRow:
    kind, by_policy = "several images", False
    found = {role: cells.find(index, or_none) for role, cells in others.items()}
    columns = {role: cell for role, (cell, _) in found.items()}
    try:
        image, image_from = images.find(index, one_image)
        kind = "no caption"
        written = completion_text(completion)
        candidate = without_thinking(written) if strip_thinking else written
        by_policy = True
        check_encodable(candidate, "completion")
        kind, by_policy = "bad references", False
        known, references_from = references.find(index, clean_references)
        sample = None
        if not is_wordless(candidate):
            try:
                sample = CaptionSample(candidate, image, known, columns=columns)
            except InvalidSampleError as error:
                raise InvalidSampleError(f"{references_from}: {error}") from None
    except InvalidSampleError as error:
        kind = "no image" if isinstance(error, ImageError) else kind
        return CaptionRow(problem=Problem(kind, str(error), by_policy))
    return CaptionRow(
        sample,
        image,
        known or (),
        columns,
        image_from=image_from,
        references_from=references_from,
        columns_from={role: where for role, (_, where) in found.items()},
        thinking_cut=candidate != written,
    )
