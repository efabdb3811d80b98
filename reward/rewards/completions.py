"""From a trainer's call (prompts, completions, data set columns) to rows: samples, or reasons why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from reward.data.cells import missing_to_none, to_list
from reward.data.chats import completion_text, prompt_images
from reward.data.column_names import COLUMN_NAMES, column_names, names_in_words
from reward.data.images import load_image
from reward.data.samples import CaptionSample, find_column, is_wordless, one_image, read_references
from reward.data.written_captions import FIRST_CHARACTERS, caption_in
from reward.errors import DataError, ImageError, InvalidSampleError, did_you_mean
from reward.metrics.base import MetricSpec


@dataclass(frozen=True, eq=False)
class Reason:
    """Why a row is not scored.

    Args:
        kind: a few words, by which rows are counted: "no image".
        message: what is wrong with this row.
        by_policy: whether the fault is in what the policy wrote, and not in the data or the set-up.
        is_wordless: whether the caption has no word, and the row lacks nothing else.
    """

    kind: str
    message: str
    by_policy: bool = False
    is_wordless: bool = False


Row: TypeAlias = CaptionSample | Reason

WORDLESS = Reason("empty caption", "given the lowest score", by_policy=True, is_wordless=True)


class RowReader:
    """Reads the rows of a trainer's calls, or those of samples, for one metric.

    The image comes from `image_column` if that is named, else from the columns `images` or `image`, else from the
    messages of the prompt, else from a column of another known name, see `COLUMN_NAMES`. A caption
    metric judges one image, so a row with several has none. References come from `references_column` if that is named,
    else from the column `references` or `refs` if there is one.

    Args:
        spec: of the metric; a row that lacks what it needs becomes a `Reason`.
        scorer: the metric. If it has a method `context`, as judges do, this checks the cells of `spec.columns`.
        image_column, references_column: names of columns that must be there.
        strip_thinking: whether the caption is taken out of what the policy wrote, see
            `reward.data.written_captions.caption_in`.
    """

    def __init__(
        self,
        spec: MetricSpec,
        scorer: Any = None,
        *,
        image_column: str | None = None,
        references_column: str | None = None,
        strip_thinking: bool = True,
    ) -> None:
        self.spec, self.scorer, self.strip_thinking = spec, scorer, strip_thinking
        self._needs = spec.needs  # a property, which is not to be computed for every row
        self._column_of = {"image": image_column, "references": references_column}
        self._roles = ("image", "references", *spec.columns)
        self._readable: set[str] = set()  # names of all columns that may be read
        for role in self._roles:
            column = self._column_of.get(role)
            self._readable.update(column_names(role) if column is None else [column])
        # {names of columns: {role: where to look}}. A trainer's calls have the same columns at each step.
        self._lookups: dict[tuple[str, ...], dict[str, _Lookup]] = {}

    def read(self, prompts: Sequence[Any] | None, completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Row]:
        """One row for each completion, in order; the arguments are not changed.

        Args:
            prompts, completions: N each, plain or conversational, see `reward.data.chats.completion_text`; prompts of
                None hold no images.
            columns: {name: N values} of the data set; other entries, such as a trainer's state, are left alone.

        Raises:
            InvalidSampleError: lengths differ, a named column is not there, or prompts, completions or a column that
                is looked at are no list (see `reward.data.cells.is_list`): faults of the set-up, in every row.
        """
        if prompts is None:
            prompts = [None] * len(completions)
        # Trainers give lists, which are taken as they are.
        if type(prompts) is not list:
            prompts = to_list(prompts, "prompts")
        if type(completions) is not list:
            completions = to_list(completions, "completions")
        if len(prompts) != len(completions):
            raise InvalidSampleError(
                f"got {len(prompts)} prompts and {len(completions)} completions; each row needs both"
            )
        data = {}
        for name, values in columns.items():
            if name in self._readable and values is not None:
                if type(values) is not list:
                    values = to_list(values, f"column {name!r}")
                data[name] = values
            elif hasattr(values, "__iter__"):
                data[name] = values  # not read, but messages list the columns that are there
        names = tuple(data)
        if names not in self._lookups:
            self._lookups[names] = {role: self._find_lookup(role, names) for role in self._roles}
        lookups = self._lookups[names]
        for lookup in lookups.values():
            for column in lookup.columns:
                if column is not None and len(data[column]) != len(completions):
                    raise InvalidSampleError(
                        f"column {column!r} has {len(data[column])} values for {len(completions)} completions"
                    )
        cells = _Cells(prompts, data, lookups)
        rows = []
        for index, completion in enumerate(completions):
            rows.append(self._read_row(index, completion, cells))
        return rows

    def read_samples(self, samples: Iterable[CaptionSample]) -> list[Row]:
        """The rows of samples that did not come from a trainer."""
        rows = []
        for sample in samples:
            values = {**sample.columns, "image": sample.image, "references": sample.references or None}
            rows.append(self._make_row(sample.candidate, values, lambda role: "the sample has none", sample))
        return rows

    def _read_row(self, index: int, completion: Any, cells: _Cells) -> Row:
        try:
            values = {"image": cells.find("image", index)}
        except ImageError as error:
            return Reason("no image", str(error))
        except InvalidSampleError as error:
            return Reason("several images", str(error))
        try:
            caption = completion if isinstance(completion, str) else completion_text(completion)
        except InvalidSampleError as error:
            return Reason("no caption", str(error))
        try:
            for role in ("references", *self.spec.columns):
                values[role] = cells.find(role, index)
        except InvalidSampleError as error:
            return Reason("bad references", str(error))
        return self._make_row(caption, values, partial(cells.why_none, index))

    def _make_row(
        self,
        caption: str,
        values: Mapping[str, Any],
        why_none: Callable[[str], str],
        sample: CaptionSample | None = None,
    ) -> Row:
        """The sample of one row, or the reason why there is none.

        Args:
            caption: as the policy wrote it.
            values: {role: value}, None where there is none.
            why_none: says of a role why it has no value.
            sample: becomes the row, with the caption; None makes one of the values.
        """
        # Nearly all captions are written without marks, and stay as they are.
        if self.strip_thinking and not FIRST_CHARACTERS.isdisjoint(caption):
            caption = caption_in(caption)
        for role in self._needs:
            if values.get(role) is None:
                needed = {"image": "an image", "references": "references"}.get(role, f"a column with the {role}")
                return Reason(f"no {role}", f"metric {self.spec.name!r} needs {needed}, but {why_none(role)}")
        try:
            if is_wordless(caption):
                # The metric, which would refuse an image that cannot be opened, does not get to see this row.
                if self.spec.needs_image:
                    load_image(values["image"])
                return WORDLESS
            if sample is None:
                columns = {name: values[name] for name in self.spec.columns}
                sample = CaptionSample(caption, values["image"], values["references"] or (), columns=columns)
            elif caption != sample.candidate:
                sample = replace(sample, candidate=caption)
        except ImageError as error:
            return Reason("no image", str(error))
        except InvalidSampleError as error:  # half an emoji, which no tokenizer takes
            return Reason("no caption", str(error), by_policy=True)
        if self.spec.columns and hasattr(self.scorer, "context"):
            try:
                self.scorer.context(sample)
            except InvalidSampleError as error:
                return Reason(f"bad {' or '.join(self.spec.columns)}", str(error))
        return sample

    def _find_lookup(self, role: str, names: tuple[str, ...]) -> _Lookup:
        """Where to look for the values of a role, in data with columns of these names."""
        column = self._column_of.get(role)
        if column is not None:
            try:
                find_column(role, names, column, option=f"{role}_column=")
            except DataError as error:
                message = str(error)
                if not did_you_mean(column, names):  # it is not misspelt, so the trainer may have removed it
                    message += " Leave remove_unused_columns=False in the trainer's arguments"
                raise InvalidSampleError(message) from None
            return _Lookup([column])
        absent = ""
        try:
            column = find_column(role, names, option=f"{role}_column=")
        except DataError as error:
            absent = str(error)  # several columns are possible: told only if the metric needs the role
        if column is None and not absent:
            present = ", ".join(names) or "none"
            absent = f"no column is named {names_in_words(role)} (the columns are: {present})"
        columns = [] if column is None else [column]
        if role != "image":
            return _Lookup(columns, absent)
        # A trainer shows the policy the images of these columns, so they go before those in the prompt.
        policy_columns = [name for name in COLUMN_NAMES["image"].first if name in names]
        if policy_columns:
            return _Lookup([*policy_columns, None])
        return _Lookup([None, *columns], absent)


@dataclass(frozen=True)
class _Lookup:
    """Where the values of a role are looked for.

    Args:
        columns: their names, in this order; None stands for the images of the prompt.
        absent: for messages, why no column is among them; empty if one is.
    """

    columns: Sequence[str | None]
    absent: str = ""


@dataclass(frozen=True)
class _Cells:
    """The values of a trainer's call, by row and role."""

    prompts: list[Any]
    data: Mapping[str, Sequence[Any]]
    lookups: Mapping[str, _Lookup]

    def find(self, role: str, index: int) -> Any:
        """The first value of a row for a role; None if there is none.

        Raises:
            InvalidSampleError: the first one that is there cannot be read; the message says where it is.
        """
        for column in self.lookups[role].columns:
            try:
                if column is None:
                    value = one_image(prompt_images(self.prompts[index]))
                elif role == "image":
                    value = one_image(self.data[column][index])
                elif role == "references":
                    value = read_references(self.data[column][index]) or None
                else:
                    value = missing_to_none(self.data[column][index])
            except InvalidSampleError as error:
                where = "the prompt" if column is None else f"column {column!r}"
                raise type(error)(f"{where}: {error}") from None
            if value is not None:
                return value
        return None

    def why_none(self, index: int, role: str) -> str:
        """Says where a value was looked for, and how the user names its column."""
        phrases = []
        for column in self.lookups[role].columns:
            if column is None:
                phrases.append("the prompt holds no image")
            else:
                phrases.append(f"column {column!r} holds {self.data[column][index]!r:.60}")
        if self.lookups[role].absent:
            phrases.append(self.lookups[role].absent)
        option = f"{role}_column=" if role in ("image", "references") else "column="
        return f"{' and '.join(phrases)}. Name the column with {option}"
