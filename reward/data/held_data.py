"""Samples of what people hold: rows, tables, or images and captions, told apart by type and by names of columns."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.data.cells import is_list, missing_to_none, to_list
from reward.data.column_names import column_names
from reward.data.image_files import is_image_name
from reward.data.samples import CaptionSample, check_batch_size, find_column, one_image
from reward.data.score_table import ScoreTable
from reward.errors import DataError, InvalidSampleError

if TYPE_CHECKING:
    from reward.metrics.base import MetricSpec

_FORMS = (
    "score(images, captions), or a list of rows: CaptionSample, dicts {'image': ..., 'caption': ...} or tuples (image, "
    "caption), or a DataFrame or Dataset"
)


@dataclass(frozen=True)
class HeldData:
    """Samples, in the order of the data.

    Args:
        samples: the good ones.
        errors: {row: why there is no sample}.
        index: labels of the rows of a pandas DataFrame; None without one.
    """

    samples: list[CaptionSample]
    errors: dict[int, str] = field(default_factory=dict)
    index: Any = None

    def spread(self, table: ScoreTable) -> ScoreTable:
        """The table of the samples with a row for each row of the data: NaN and the reason where there is no sample."""
        if not self.errors:
            return replace(table, index=self.index)
        count = len(self.samples) + len(self.errors)
        rows = [row for row in range(count) if row not in self.errors]
        scores = np.full((count, len(table.aspects)), np.nan)
        scores[rows] = table.scores
        truncated = np.zeros(count, dtype=bool)
        truncated[rows] = table.truncated
        errors = dict(self.errors)
        for sample, message in table.errors.items():
            errors[rows[sample]] = message
        errors = dict(sorted(errors.items()))
        texts: dict[str, list[str | None]] = {}
        for name, column in table.texts.items():
            by_row = dict(zip(rows, column, strict=True))
            texts[name] = [by_row.get(row) for row in range(count)]
        return replace(table, scores=scores, truncated=truncated, errors=errors, texts=texts, index=self.index)


class TakesData(ABC):
    """Gives a scorer `score` for data as people hold them: derive, set `spec`, and write `score_samples`."""

    spec: MetricSpec

    def score(
        self,
        samples: Any = None,
        captions: Any = None,
        references: Any = None,
        *,
        batch_size: int | None = None,
        progress: bool = False,
        **columns: Any,
    ) -> ScoreTable:
        """Scores captions: `score(images, captions)`, `score(rows)`, `score(captions, references=...)`.

        Args:
            samples: images, or rows: see `data` of `reward.data.held_data.as_samples`.
            captions: one for each image, or several for one image.
            batch_size: most captions or images of one forward pass; None leaves it to the metric.
            progress: whether to show a progress bar.
            references: for each caption a list of texts, or one text; for captions of one image a list that they share.
            columns: what columns of the data are called, as in `image_column="shot"`.

        Returns:
            Scores (N, A) in `spec.range`, in the order of the samples; NaN and an entry in `errors` for a sample that
            cannot be scored. Texts that do not fit the model are cut, and flagged in `truncated`.

        Raises:
            InvalidSampleError: data of another kind, or not one row of them is a sample.
            ValueError: `batch_size` is not a whole number of at least 1.
        """
        check_batch_size(batch_size)
        data = as_samples(samples, captions, spec=self.spec, references=references, **columns)
        table = self.score_samples(data.samples, batch_size, progress)
        return data.spread(replace(table, default_weights=self.spec.default_weights))

    __call__ = score

    @abstractmethod
    def score_samples(
        self, samples: list[CaptionSample], batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, A) of samples, which are not checked, in their order."""


def as_samples(data: Any = None, captions: Any = None, *, spec: MetricSpec | None = None, **columns: Any) -> HeldData:
    """Makes samples of what people hold.

    Args:
        data: images, one or several, if captions are given. Else one of these:

            - a list of `CaptionSample`, dicts, or tuples (image, caption) or (image, caption, references), or one;
            - a DataFrame (pandas or polars), an Arrow table, a `datasets.Dataset`, or a dict of columns;
            - a list of captions, or one, for a metric that looks at no image.
        captions, columns: values, see `TakesData.score`, under a name of `column_names.COLUMN_NAMES`. Beside data
            with columns, a text is the name of one, as in `images="shot"` or `image_column="shot"`.
        spec: facts of the metric: what it needs.

    Returns:
        The samples; a row that cannot be one has its reason.

    Raises:
        InvalidSampleError: data of another kind, other lengths, a column that is missing, or not one sample in all.

    Example:
        >>> held = as_samples(["a.png", "b.png"], ["A star.", None], references=["One star.", "A dot."])
        >>> held.samples[0].image, held.samples[0].references, held.errors
        ('a.png', ('One star.',), {1: 'candidate must be a string, got NoneType: None'})
        >>> as_samples([{"photo": "a.png", "text": "A star."}]).samples[0].caption
        'A star.'
    """
    values: dict[str, Any] = {}  # by role, beside the data or in place of them
    names: dict[str, str] = {}  # of columns of the data, by role
    for keyword, value in {"captions": captions, **columns}.items():
        if value is not None and keyword.endswith("_column"):
            names[_role(keyword.removesuffix("_column"))] = value
        elif value is not None:
            values[_role(keyword)] = _readable_twice(value)
    data = _readable_twice(data)
    # A tuple is one row, (image, caption), unless it holds the images of captions that are given beside it.
    if isinstance(data, CaptionSample) or (isinstance(data, tuple) and "candidate" not in values):
        data = [data]
    is_dict = isinstance(data, Mapping) and not _is_encoded_image(data)
    rows = None if is_dict else _rows(data)
    if is_dict or rows is not None:
        # Beside columns, a text is the name of one, and a list has a value for each row.
        for role in list(values):
            if isinstance(values[role], str):
                names[role] = values.pop(role)
    if is_dict:
        if any(hasattr(value, "column_names") for value in data.values()):
            raise InvalidSampleError(f"the data have the splits {', '.join(data)}: score one of them")
        # One row if its caption is a text, else columns by their roles.
        by_role = _find_columns(list(data), names, spec, beside=values)
        if "candidate" in by_role and isinstance(data[by_role["candidate"]], str):
            rows = [data]
        else:
            values = {role: data[name] for role, name in by_role.items()} | values
        data = None
    if rows is None:
        # Images, if captions stand beside them; else the captions themselves.
        if data is not None:
            values = {"image" if "candidate" in values else "candidate": data, **values}
        _check_values(values, spec)
        return _made(_rows_of_values(values), {}, spec)
    if values:
        if any(isinstance(row, CaptionSample) for row in rows):
            raise InvalidSampleError(f"a CaptionSample holds everything of its row: leave out {', '.join(values)}")
        additions = _rows_of_values(values, len(rows))
        rows = [None if row is None else {**row, **addition} for row, addition in zip(rows, additions, strict=True)]
        names |= zip(values, values, strict=True)
    return _made(rows, names, spec, data.index if _is_pandas(data) else None)


def _role(keyword: str) -> str:
    """The role of a keyword, such as `images` or `caption`."""
    if keyword in ("rubric", "questions", "task"):
        return keyword
    for role in ("candidate", "candidates", "image", "references", "question"):
        names = (role, *column_names(role))
        if keyword in names or keyword.removesuffix("s") in names:
            return "candidate" if role == "candidates" else role
    if keyword in ("prompts", "completions"):
        raise InvalidSampleError("a scorer is no reward function: give the trainer MetricReward(scorer)")
    raise InvalidSampleError(
        f"score takes no {keyword!r}: it takes images, captions, references, batch_size and progress"
    )


def _readable_twice(value: Any) -> Any:
    """The value itself; the list of what a generator gives."""
    if is_list(value) and not hasattr(value, "__len__"):
        return list(value)
    return value


def _rows(data: Any) -> list[Any] | None:
    """The rows of data, by the type of the data; None of images and captions, which are no rows."""
    if isinstance(data, list):
        first = _first(data)
        has_rows = isinstance(first, (CaptionSample, Mapping, tuple)) and not _is_encoded_image(first)
        if data and not has_rows:
            return None
        return [_row(row, number) for number, row in enumerate(data)]
    if _is_pandas(data):
        return data.to_dict("records")
    if hasattr(data, "collect"):  # polars, lazy
        data = data.collect()
    if hasattr(data, "to_dicts"):  # polars
        return data.to_dicts()
    if hasattr(data, "to_pylist") and hasattr(data, "column_names"):  # a table of Arrow
        return data.to_pylist()
    if hasattr(data, "column_names"):  # of `datasets`: its lists leave images encoded, but apply no transform
        if hasattr(data, "format") and data.format.get("type") != "custom":
            return data.to_list()
        return list(data)
    return None


def _row(row: Any, number: int) -> CaptionSample | Mapping[str, Any] | None:
    """A row of a list: a sample, a dict, a tuple as a dict, or None."""
    if row is None or isinstance(row, (CaptionSample, Mapping)):
        return row
    if not isinstance(row, tuple) or len(row) not in (2, 3):
        raise InvalidSampleError(f"samples[{number}] is no row, but a {type(row).__name__}: give {_FORMS}")
    if _is_image(row[1]) and not _is_image(row[0]):
        raise InvalidSampleError(f"row {number} is (caption, image): put the image first, (image, caption)")
    return dict(zip(("image", "candidate", "references"), row, strict=False))


def _first(values: Any) -> Any:
    """The first of several values that is there, None if there is none; one value itself."""
    if not is_list(values):
        return values
    for value in to_list(values, "values"):
        if missing_to_none(value) is not None:
            return value
    return None


def _is_pandas(data: Any) -> bool:
    return hasattr(data, "iloc") and hasattr(data, "columns")


def _is_encoded_image(value: Any) -> bool:
    """Whether a value is an image, as a column of `datasets` holds it undecoded."""
    return isinstance(value, Mapping) and set(value) <= {"bytes", "path"}


def _check_values(values: Mapping[str, Any], spec: MetricSpec | None) -> None:
    """Refuses captions and images that are none, or in each other's place."""
    captions, images = values.get("candidate"), values.get("image")
    caption, image = _first(captions), _first(images)
    if isinstance(captions, str) and images is None and os.path.exists(captions):
        raise InvalidSampleError(
            f"{captions!r} is a file or folder: a data file is scored by reward.scoring.score_dataset or "
            f"`capreward score`, an image by score({captions!r}, caption)"
        )
    if isinstance(caption, (list, tuple)):
        raise InvalidSampleError(
            f"captions[0] holds {len(caption)} captions of one image: call score(image, captions) for each image; "
            "references are given by name, references=[[...], [...]]"
        )
    if images is not None and _is_image(caption) and not _is_image(image):
        raise InvalidSampleError(
            f"captions[0] is {caption!r:.60}, an image: images come first, score(images, captions)"
        )
    if captions is None or not (caption is None or isinstance(caption, str)):
        raise InvalidSampleError(f"captions are missing: give {_FORMS}")
    if spec is not None and spec.needs_image and images is None:
        raise InvalidSampleError(f"metric {spec.name!r} looks at images, and there are none: score(images, captions)")
    if spec is not None and spec.needs_references and values.get("references") is None:
        raise InvalidSampleError(
            f"metric {spec.name!r} compares with references, and there are none: score(captions, references=...)"
        )


def _is_image(value: Any) -> bool:
    """Whether a value is an image, or has the name of one."""
    if isinstance(value, str):
        return is_image_name(value.strip())
    return isinstance(value, (bytes, os.PathLike)) or any(hasattr(value, name) for name in ("getbands", "read", "ndim"))


def _rows_of_values(values: Mapping[str, Any], count: int | None = None) -> list[dict[str, Any]]:
    """Rows of values by role: a list has one for each of `count` rows, and any other value is that of every row."""
    columns: dict[str, list[Any]] = {}
    for role, value in values.items():
        # An array of four dimensions is a batch of images.
        if role != "references" and is_list(value) and getattr(value, "ndim", 1) in (1, 4):
            columns[role] = to_list(value, f"{role}s")
    counts = {role: len(column) for role, column in columns.items()}
    if count is not None:
        counts["row"] = count
    if len(set(counts.values())) > 1:
        numbers = " and ".join(f"{number} {role}s" for role, number in counts.items()).replace("candidates", "captions")
        raise InvalidSampleError(f"got {numbers}: each caption needs its image, in the same order, or all have one")
    count = next(iter(counts.values()), None)
    if "references" in values:
        has_one_image = "image" in values and "image" not in columns
        columns["references"] = _reference_column(values["references"], count, are_shared=has_one_image)
    if count is None:
        count = 1
    for role, value in values.items():
        columns.setdefault(role, [value] * count)
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _reference_column(value: Any, count: int | None, *, are_shared: bool) -> list[Any]:
    """The references of each of `count` captions; None is a single caption.

    One text, or a list of texts that `are_shared`, is of all captions. Else there is a list or a text for each.
    """
    if isinstance(value, str):
        value, are_shared = [value], True
    items = to_list(value, "references")
    is_nested = any(is_list(item) for item in items)
    if count is None:
        has_list_for_caption = is_nested and len(items) == 1
        return items if has_list_for_caption else [items]
    if are_shared and not is_nested:
        return [items] * count
    if len(items) != count:
        raise InvalidSampleError(
            f"got references of {len(items)} captions for {count}: give a list for each, references=[[...], [...]]"
        )
    return items


def _made(rows: list[Any], names: Mapping[str, str], spec: MetricSpec | None, index: Any = None) -> HeldData:
    """The samples of rows, which are samples, dicts or None; `names` of columns are those that the user gave."""
    keys: dict[str, None] = {}
    for row in rows:
        if isinstance(row, Mapping):
            keys.update(dict.fromkeys(row))
    columns: dict[str, str] = {}
    if keys:
        columns = _find_columns(list(keys), names, spec)
    samples: list[CaptionSample] = []
    errors: dict[int, str] = {}
    for number, row in enumerate(rows):
        try:
            samples.append(_sample(row, columns))
        except InvalidSampleError as error:
            errors[number] = str(error)
    if errors and not samples:
        raise InvalidSampleError(f"nothing can be scored: {next(iter(errors.values()))}")
    return HeldData(samples, errors, index)


def _find_columns(
    columns: list[str], names: Mapping[str, str], spec: MetricSpec | None, beside: Collection[str] = ()
) -> dict[str, str]:
    """{role: name of its column}; what the metric needs must be there, but for roles whose values are `beside` them."""
    roles = ["candidate", "image", "references", *names]
    required = [] if spec is None else ["candidate", *spec.needs]
    if spec is None or spec.reads_questions:
        roles.append("question")
    roles += required
    by_role: dict[str, str] = {}
    for role in dict.fromkeys(roles):
        metric = None
        if spec is not None and role in required and role not in beside:
            metric = f"metric {spec.name!r}"
        try:
            name = find_column(role, columns, names.get(role), option=f"{role}_column=", needed_by=metric)
        except DataError as error:
            message = str(error)
            for lists in set(column_names("candidates")) & set(columns):
                message += f" For each row with several {lists}, call score(image, {lists})."
            raise InvalidSampleError(message) from None
        if name is not None:
            by_role[role] = name
    return by_role


def _sample(row: CaptionSample | Mapping[str, Any] | None, columns: Mapping[str, str]) -> CaptionSample:
    """The sample of a row, by the columns of its roles."""
    if isinstance(row, CaptionSample):
        return row
    if row is None:
        raise InvalidSampleError("the row is None")
    cells = {role: missing_to_none(row.get(name)) for role, name in columns.items()}
    return CaptionSample(
        cells.pop("candidate", None),
        one_image(cells.pop("image", None)),
        cells.pop("references", None),
        cells.pop("question", None),
        cells.pop("task", None),
        columns=cells,
    )
