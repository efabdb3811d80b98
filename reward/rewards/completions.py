"""From a trainer's call (prompts, completions, data set columns) to rows: a sample each, or the reason why not."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from reward.data.cells import missing_to_none, to_list
from reward.data.chats import completion_text, prompt_images
from reward.data.images import load_image
from reward.data.samples import (
    COLUMN_NAMES,
    CaptionSample,
    check_encodable,
    column_names,
    find_column,
    is_wordless,
    names_in_words,
    one_image,
    read_references,
)
from reward.data.written_captions import caption_in
from reward.errors import ConfigError, DataError, ImageError, InvalidSampleError
from reward.metrics.base import MetricSpec

logger = logging.getLogger(__name__)

# {name: (the trainer's state, the reward that was called with it)}, as weak references
_called: dict[str, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}
_PROMPT = "the prompt"
_WORDLESS = "empty caption"
_NEEDS = {
    "image": ("an image", "its column with image_column="),
    "references": ("references", "their column with references_column="),
}


@dataclass(frozen=True, eq=False)
class Reason:
    """Why a row is not scored: `kind` is what is counted, `message` tells about this row.

    `by_policy` marks what the policy wrote; all others are faults of the data or of the set-up. One of these is a
    caption without a word (no letter and no number), of which nobody has looked at the `image` yet.
    """

    kind: str
    message: str
    by_policy: bool = False
    image: Any = None

    @property
    def is_wordless(self) -> bool:
        return self.kind == _WORDLESS


Row: TypeAlias = CaptionSample | Reason


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
    faults = [
        _fault(spec, row, isinstance(row, CaptionSample) and place not in errors) for place, row in enumerate(rows)
    ]
    if None in faults:
        return None
    return (
        f"{name}: none of the {len(rows)} rows of the first call can be scored, and the reason is in the data. "
        f"The first: {faults[0]}. If only some rows of the data set are like this, leave them out"
    )


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


def report_reasons(name: str, reasons: Mapping[int, Reason], failures: Counter[str]) -> None:
    """Counts the rows of a reward that have no score by kind, and warns of the first, tenth, hundredth, ... of each."""
    for kind, count in Counter(reason.kind for reason in reasons.values()).items():
        before = failures[kind]
        failures[kind] = count = before + count
        if before == 0 or len(str(before)) < len(str(count)):
            example = next(reason.message for reason in reasons.values() if reason.kind == kind)
            logger.warning("%s: %d row%s so far: %s (%s)", name, count, "s" * (count != 1), kind, example)


def _fault(spec: MetricSpec, row: Row, is_scored: bool) -> str | None:
    if isinstance(row, Reason) and not row.by_policy:
        return row.message
    if not is_scored and spec.needs_image and row.image is not None:
        try:
            load_image(row.image)
        except ImageError as error:
            return str(error)
    return None


def read_rows(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    columns: Mapping[str, Any],
    spec: MetricSpec,
    scorer: Any = None,
    *,
    image_column: str | None = None,
    references_column: str | None = None,
    strip_thinking: bool = True,
) -> list[Row]:
    """Reads one row per completion; the arguments are not changed.

    The image comes from `image_column` if that is named, else from the columns `images` or `image`, else from the
    messages of the prompt, else from a column of another known name, see `reward.data.samples.COLUMN_NAMES`. A caption
    metric judges one image, so a row with several has none. References come from `references_column` if
    that is named, else from the column `references` or `refs` if there is one.

    Args:
        prompts: N prompts, plain or conversational.
        completions: N completions, see `completion_text`.
        columns: {name: N values} of the data set; other entries, such as a trainer's state, are left alone.
        spec: what the metric needs; a row without it has a reason.
        scorer: may refuse the form in which a row has it.
        image_column, references_column: names of columns that must be there.
        strip_thinking: whether reasoning is left out of the caption, see
            `reward.data.written_captions.caption_in`.

    Raises:
        InvalidSampleError: lengths differ, a named column is not there, or prompts, completions or a column that is
            read are no list (see `reward.data.cells.is_list`): faults of the set-up, in every row.
    """
    prompts, completions = _listed(prompts, "prompts"), _listed(completions, "completions")
    if len(prompts) != len(completions):
        raise InvalidSampleError(f"got {len(prompts)} prompts and {len(completions)} completions; each row needs both")
    chosen = {"image": image_column, "references": references_column}
    roles = ("image", "references", *spec.columns)
    read = {name for role in roles for name in ([chosen[role]] if chosen.get(role) else column_names(role))}
    data = {
        name: _listed(values, f"column {name!r}") if name in read else values
        for name, values in columns.items()
        if hasattr(values, "__iter__") or (name in read and values is not None)
    }
    cells = {role: _cells(data, role, chosen.get(role)) for role in roles}
    if image_column is None:
        cells["image"] = _image_cells(prompts, data, cells["image"])
    for where, values in (source for each in cells.values() for source in each.sources):
        if len(values) != len(completions):
            raise InvalidSampleError(f"{where} has {len(values)} values for {len(completions)} completions")
    return [_read_row(index, text, cells, spec, scorer, strip_thinking) for index, text in enumerate(completions)]


def _listed(values: Any, name: str) -> list[Any]:
    return values if type(values) is list else to_list(values, name)  # trainers give lists


def sample_row(sample: CaptionSample, spec: MetricSpec, scorer: Any = None, *, strip_thinking: bool = True) -> Row:
    """The row of a sample that did not come from a trainer."""
    candidate = caption_in(sample.candidate) if strip_thinking else sample.candidate
    if candidate != sample.candidate and not is_wordless(candidate):
        sample = replace(sample, candidate=candidate)
    given = {**sample.columns, "image": sample.image, "references": sample.references}
    return _lack(spec, given, {}) or (_wordless(sample.image) if is_wordless(candidate) else _fit(sample, spec, scorer))


def _read_row(
    index: int, completion: Any, cells: Mapping[str, _Cells], spec: MetricSpec, scorer: Any, strip_thinking: bool
) -> Row:
    kind, by_policy = "several images", False
    given, where = {}, {}
    try:
        given["image"], where["image"] = cells["image"].find(index, one_image)
        kind = "no caption"
        candidate = completion_text(completion)
        candidate = caption_in(candidate) if strip_thinking else candidate
        by_policy = True
        check_encodable(candidate, "completion")
        kind, by_policy = "bad references", False
        given["references"], where["references"] = cells["references"].find(index, _references)
    except InvalidSampleError as error:
        return Reason("no image" if isinstance(error, ImageError) else kind, str(error), by_policy)
    for role in spec.columns:
        given[role], where[role] = cells[role].find(index, missing_to_none)
    if lack := _lack(spec, given, where):
        return lack
    if is_wordless(candidate):
        return _wordless(given["image"])
    columns = {role: given[role] for role in spec.columns}
    return _fit(CaptionSample(candidate, given["image"], given["references"] or (), columns=columns), spec, scorer)


def _references(cell: Any) -> tuple[str, ...] | None:
    return read_references(cell) or None


def _wordless(image: Any) -> Reason:
    return Reason(_WORDLESS, "given the lowest score", by_policy=True, image=image)


def _lack(spec: MetricSpec, given: Mapping[str, Any], where: Mapping[str, str]) -> Reason | None:
    """What a row lacks for its metric, and where that was looked for."""
    needs = ["image"] * spec.needs_image + ["references"] * spec.needs_references + list(spec.columns)
    for role in needs:
        if given.get(role) is None or (role == "references" and not len(given[role])):
            what, column = _NEEDS.get(role, (f"a column with the {role}", "the column with column="))
            why = f"{where[role]}. Name {column}" if where else "the sample has none"
            return Reason(f"no {role}", f"metric {spec.name!r} needs {what}, but {why}")
    return None


def _fit(sample: CaptionSample, spec: MetricSpec, scorer: Any) -> Row:
    """The sample, or why its scorer refuses the columns that it needs."""
    if spec.columns and hasattr(scorer, "context"):
        try:
            scorer.context(sample)
        except InvalidSampleError as error:
            return Reason(f"bad {' or '.join(spec.columns)}", str(error))
    return sample


@dataclass(frozen=True)
class _Cells:
    """Where the values of a role are looked for: [(what messages call it, N values)], and why nowhere else."""

    sources: list[tuple[str, Sequence[Any]]]
    absent: str = ""

    def find(self, index: int, read: Callable[[Any], Any]) -> tuple[Any, str]:
        """The first value of a row that `read` finds, with its place; else None, with a phrase that says why."""
        lacking = []
        for where, values in self.sources:
            try:
                value = read(prompt_images(values[index]) if where == _PROMPT else values[index])
            except InvalidSampleError as error:
                raise type(error)(f"{where}: {error}") from None
            if value is not None:
                return value, where
            lacking.append(f"{where} holds {'no image' if where == _PROMPT else format(repr(values[index]), '.60')}")
        return None, " and ".join([*lacking, *filter(None, [self.absent])])


def _cells(data: Mapping[str, Sequence[Any]], role: str, given: str | None) -> _Cells:
    try:
        name = find_column(role, data, given, option=f"{role}_column=")
    except DataError as error:
        if given is None:
            return _Cells([], str(error))  # several are possible, which matters only to metrics that need one
        # perhaps the trainer removed it, if it is not misspelt
        hint = "" if "Did you mean" in str(error) else " Leave remove_unused_columns=False in the trainer's arguments"
        raise InvalidSampleError(f"{error}{hint}") from None
    if name is None:
        there = ", ".join(data) or "none"
        return _Cells([], f"no column is named {names_in_words(role)} (the columns are: {there})")
    return _Cells([(f"column {name!r}", data[name])])


def _image_cells(prompts: Sequence[Any], data: Mapping[str, Sequence[Any]], found: _Cells) -> _Cells:
    """The columns that a trainer shows to the policy, then the prompt, then whatever column was found."""
    shown = [(f"column {name!r}", data[name]) for name in COLUMN_NAMES["image"][0] if name in data]
    prompt = (_PROMPT, prompts)  # whose images are read row by row: a bad one is a fault of its row
    return _Cells([*shown, prompt]) if shown else _Cells([prompt, *found.sources], found.absent)
