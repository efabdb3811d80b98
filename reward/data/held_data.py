"""Gives scorers `score` for what people hold: images and captions, tables, dicts, tuples, texts, or samples."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.data.cells import is_list, missing_to_none, to_list
from reward.data.samples import CaptionSample, check_samples, column_names, find_column, one_image, read_references
from reward.data.score_table import ScoreTable
from reward.errors import DataError, InvalidSampleError

if TYPE_CHECKING:
    from reward.metrics.base import MetricSpec

_FIELDS = ("candidate", "question", "task")  # of a sample; it holds further cells in `columns`
_PICTURE = re.compile(r".+\.(jpe?g|png|webp|gif|bmp|tiff?)", re.IGNORECASE)
_FORMS = (
    "score(images, captions), or rows: (image, caption), {'image': ..., 'caption': ...} or CaptionSample in a list, or "
    "a DataFrame or Dataset"
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
        count = len(self.samples) + len(self.errors)
        places = [row for row in range(count) if row not in self.errors]
        if len(table) != len(places) or not self.errors:
            return replace(table, index=self.index)
        scores, truncated = np.full((count, len(table.aspects)), np.nan), np.zeros(count, dtype=bool)
        scores[places], truncated[places] = table.scores, table.truncated
        errors = self.errors | {places[row]: message for row, message in table.errors.items()}
        texts = {name: dict(zip(places, column, strict=True)) for name, column in table.texts.items()}
        return replace(
            table,
            scores=scores,
            truncated=truncated,
            errors=dict(sorted(errors.items())),
            texts={name: [column.get(row) for row in range(count)] for name, column in texts.items()},
            index=self.index,
        )


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
        """Scores captions: `score(images, captions)`, `score(captions, references=...)`, `score(rows)`.

        Args:
            samples: images, or rows: a list of `CaptionSample`, dicts or (image, caption) tuples, a DataFrame, a
                `datasets.Dataset`, or one row. See `reward.data.held_data.as_samples`.
            captions: one for each image, or several for one image.
            batch_size: most captions or images of one forward pass; None leaves it to the metric.
            progress: whether to show a progress bar.
            references: for each caption a list of texts, or one text; for captions of one image a list that they share.
            columns: what columns of the data are called, as in `image_column="shot"`.

        Returns:
            Scores (N, A) in `spec.range`, in the order of the samples. A sample that cannot be scored has NaN and an
            entry in `errors`. Texts that do not fit the model are cut, and flagged in `truncated`.

        Raises:
            InvalidSampleError: data of another kind, or not one row of them is a sample.
            ValueError: `batch_size` is not a whole number of at least 1.
        """
        held = as_samples(samples, captions, spec=self.spec, references=references, **columns)
        check_samples(held.samples, batch_size)
        table = self.score_samples(held.samples, batch_size, progress)
        return held.spread(replace(table, default_weights=self.spec.default_weights))

    __call__ = score

    @abstractmethod
    def score_samples(
        self, samples: list[CaptionSample], batch_size: int | None = None, progress: bool = False
    ) -> ScoreTable:
        """Scores (N, A) of samples, which are not checked, in their order."""


def as_samples(data: Any = None, captions: Any = None, *, spec: MetricSpec | None = None, **columns: Any) -> HeldData:
    """Makes samples of what people hold.

    Args:
        data: images, one or several, if captions are given. Else rows: samples, dicts, (image, caption) tuples, a
            DataFrame (pandas or polars), an Arrow table, a `datasets.Dataset`, a dict of columns, or one such row; for
            a metric that looks at no image also captions.
        captions: one for each image. One image may have several, and one caption several images.
        spec: facts of the metric: what it needs.
        columns: values under a name of `reward.data.samples.COLUMN_NAMES`, such as `references=`: for each caption a
            list of texts or one text; for captions of one image a list that they share. Or the name of a column of the
            data, as in `captions="text"` or `image_column="shot"`.

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
    columns = {name: value for name, value in columns.items() if value is not None}
    if isinstance(data, list) and captions is None and not columns and any(isinstance(x, CaptionSample) for x in data):
        return HeldData(data)  # the metric says which one is no sample
    chosen = {_role(name.removesuffix("_column")): columns.pop(name) for name in list(columns) if "_column" in name}
    given = {_role(name): _read(value) for name, value in columns.items()}
    if captions is not None:
        given["candidate"] = _read(captions)
    data, index = _read(data), None
    there = _columns_of(data)
    named = [role for role, value in given.items() if isinstance(value, str) and value in there]
    chosen |= {role: given.pop(role) for role in named}
    for role in ("candidate", "image"):
        if there and isinstance(given.get(role), str):
            raise InvalidSampleError(
                f"no column of the data is named {given[role]!r:.80} (the columns are: {', '.join(map(str, there))}); "
                "values beside data are a list with one for each row"
            )
    labels = [value.index for value in (data, *given.values()) if hasattr(value, "iloc") and hasattr(value, "name")]
    if any(set(labels[0]) == set(other) and list(labels[0]) != list(other) for other in labels[1:]):
        raise InvalidSampleError(
            "these Series have the same labels in different orders: bring them into one, or take lists"
        )
    is_series = hasattr(data, "iloc") and not hasattr(data, "columns")
    if is_series and set(column_names("candidate")) & {*map(str, data.index)}:
        data = data.to_dict()  # a row of a DataFrame
    if set(given) == {"candidate"} and _are_compared_texts(data, spec):
        given, data = {"candidate": data, "references": given["candidate"]}, None
    if data is None or ("candidate" in given and not there) or _are_texts(data, spec):
        if data is not None:
            given = {"image" if "candidate" in given else "candidate": data, **given}
        _check_needs(given, spec)
        rows: list[Any] = _rows_of_values(given)
    else:
        rows, index = _rows_of_data(data, chosen)
        words = spec is not None and spec.needs_references and not spec.needs_image
        rows = [_read_row(row, place, of_words=words) for place, row in enumerate(rows)]
        if given and any(isinstance(row, CaptionSample) for row in rows):
            raise InvalidSampleError(f"a CaptionSample holds everything of its row: leave out {', '.join(given)}")
        if given:  # such as references beside a list of dicts
            added = _rows_of_values(given, len(rows))
            rows = [{**row, **more} if isinstance(row, Mapping) else row for row, more in zip(rows, added, strict=True)]
            chosen |= {role: role for role in given}
    return _made(rows, chosen, spec, index)


def _read(value: Any) -> Any:
    """A value that can be read twice, as a generator cannot."""
    return list(value) if is_list(value) and not hasattr(value, "__len__") else value


def _first(value: Any) -> Any:
    """The first of several values that is there; or the only one."""
    return next((x for x in to_list(value, "values") if x is not None), None) if is_list(value) else value


def _role(name: str) -> str:
    """The role of a keyword, such as `images` or `caption`."""
    if name in ("rubric", "questions", "task"):
        return name
    for role in ("candidate", "candidates", "image", "references", "question"):
        if {name, name.removesuffix("s")} & {role, *column_names(role)}:
            return role.removesuffix("s") if role == "candidates" else role
    if name in ("prompts", "completions"):
        raise InvalidSampleError("a scorer is no reward function: give the trainer MetricReward(scorer)")
    raise InvalidSampleError(f"score takes no {name!r}: it takes images, captions, references, batch_size and progress")


def _columns_of(data: Any) -> list[Any]:
    """The names of the columns of a table, of rows, or of one row; none of images, texts and {image: caption}."""
    first = next(iter(data), None) if isinstance(data, (list, tuple)) else data
    if isinstance(first, Mapping):
        is_image = set(first) <= {"bytes", "path"} or all(map(_is_picture, first))
        return [] if is_image else list(first)
    names = getattr(data, "column_names", None)  # of Arrow and datasets
    return list(getattr(data, "columns", ()) if names is None else names)


def _are_texts(data: Any, spec: MetricSpec | None) -> bool:
    """Whether data are captions without images."""
    if isinstance(data, str):
        if len(data) < 1000 and os.path.exists(data):
            raise InvalidSampleError(
                f"{data!r} is a file or folder: a data file is scored by reward.scoring.score_dataset or "
                f"`capreward score`, an image by score({data!r}, caption)"
            )
        return True
    if isinstance(data, tuple) and _is_pair(data) and (spec is None or spec.needs_image):
        return False
    texts = (
        [x for x in data if missing_to_none(x) is not None] if is_list(data) and getattr(data, "ndim", 1) == 1 else []
    )
    return bool(texts) and all(isinstance(x, str) for x in texts)


def _are_compared_texts(data: Any, spec: MetricSpec | None) -> bool:
    """Whether `score(data, captions)` means score(captions, references), as metrics of words are called elsewhere."""
    if spec is None or spec.needs_image or not spec.needs_references or not _are_texts(data, spec):
        return False
    return not any(map(_is_picture, [data] if isinstance(data, str) else data))


def _check_needs(given: Mapping[str, Any], spec: MetricSpec | None) -> None:
    captions, image = given.get("candidate"), given.get("image")
    first, shown = (_first(each) for each in (captions, image))
    if isinstance(first, (list, tuple)):
        raise InvalidSampleError(
            f"captions[0] holds {len(first)} captions of one image: call score(image, captions) for each image, or "
            "repeat the image for each of them"
        )
    if first is not None and _is_picture(first) and image is None:
        raise InvalidSampleError(f"captions are missing: {first!r:.60} is an image; give {_FORMS}")
    if first is not None and _is_picture(first) and not _is_picture(shown):
        raise InvalidSampleError(f"captions[0] is {first!r:.60}, an image: images come first, score(images, captions)")
    if captions is None:
        raise InvalidSampleError(f"captions are missing: give {_FORMS}")
    if spec is not None and spec.needs_image and image is None:
        raise InvalidSampleError(f"metric {spec.name!r} looks at images, and there are none: score(images, captions)")
    if spec is not None and spec.needs_references and given.get("references") is None:
        raise InvalidSampleError(
            f"metric {spec.name!r} compares with references, and there are none: score(captions, references=...)"
        )


def _rows_of_values(given: Mapping[str, Any], count: int | None = None) -> list[dict[str, Any]]:
    """Rows of the values of each role; a single value is that of every row, of which there are perhaps `count`."""
    columns = {
        role: to_list(value, f"{role}s")
        for role, value in given.items()
        if role != "references" and is_list(value) and getattr(value, "ndim", 1) in (1, 4)  # 4: a batch of images
    }
    counts = {role: len(values) for role, values in columns.items()} | ({} if count is None else {"row": count})
    if len(set(counts.values())) > 1:
        said = " and ".join(f"{many} {role}s" for role, many in counts.items()).replace("candidates", "captions")
        raise InvalidSampleError(f"got {said}: each caption needs its image, in the same order, or all have one")
    count = next(iter(counts.values()), None)
    if "references" in given:
        one_image_only = "image" in given and "image" not in columns
        columns["references"] = _references(given["references"], count, shared=one_image_only)
    size = 1 if count is None else count
    return [{role: columns[role][row] if role in columns else given[role] for role in given} for row in range(size)]


def _references(value: Any, count: int | None, *, shared: bool) -> list[Any]:
    """The references of each caption."""
    items = [value] if isinstance(value, str) else to_list(value, "references")
    nested = any(map(is_list, items))
    if count is None:
        return [items[0] if nested and len(items) == 1 else items]
    if isinstance(value, str) or (shared and not nested):
        return [items] * count
    if len(items) != count:
        raise InvalidSampleError(
            f"got references of {len(items)} captions for {count}: give a list for each, references=[[...], [...]]"
        )
    return items


def _rows_of_data(data: Any, chosen: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """The rows of a table or list, and the index of a pandas DataFrame."""
    if isinstance(data, Mapping):
        if data and all(map(_is_picture, data)) and all(isinstance(text, str) for text in data.values()):
            return list(data.items()), None  # {image: caption}
        if any(hasattr(value, "column_names") for value in data.values()):
            raise InvalidSampleError(f"the data have the splits {', '.join(data)}: score one of them")
        names = _names(list(data), chosen, None)
        if is_list(data.get(names.get("candidate", names.get("image")))):
            rows = _rows_of_values({role: data[name] for role, name in names.items()})
            return [{names[role]: cell for role, cell in row.items()} for row in rows], None
        return [dict(data)], None
    if isinstance(data, CaptionSample) or (isinstance(data, tuple) and _is_pair(data)):
        return [data], None
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas
        return data.to_dict("records"), data.index
    if hasattr(data, "collect"):  # polars, lazy
        data = data.collect()
    if hasattr(data, "to_dicts"):
        return data.to_dicts(), None
    if hasattr(data, "to_pylist"):  # Arrow
        return data.to_pylist(), None
    if hasattr(data, "column_names"):  # of `datasets`; images stay encoded, but a transform is applied
        form = getattr(data, "format", None)
        return list(data) if form is None or form.get("type") == "custom" else data.to_list(), None
    if not is_list(data):
        raise InvalidSampleError(f"captions are missing, or {type(data).__name__} holds none: give {_FORMS}")
    return list(data), None


def _is_pair(item: Any) -> bool:
    """Whether an item is (image, caption) or (image, caption, references)."""
    return (
        isinstance(item, (tuple, list))
        and len(item) in (2, 3)
        and isinstance(missing_to_none(item[1]), (str, type(None)))
        and not isinstance(item[0], (CaptionSample, Mapping, tuple))
    )


def _is_picture(value: Any) -> bool:
    """Whether a value is an image, or has the name of one."""
    if isinstance(value, str):
        return _PICTURE.fullmatch(value.strip()) is not None
    return isinstance(value, (bytes, os.PathLike)) or any(hasattr(value, name) for name in ("getbands", "read", "ndim"))


def _read_row(row: Any, place: int, *, of_words: bool) -> CaptionSample | Mapping[str, Any] | None:
    """A row of a known kind; another stops everything, since those after it will be like it."""
    if of_words and _is_pair(row) and len(row) == 2 and not _is_picture(row[0]):
        return {"candidate": row[0], "references": row[1]}
    if _is_pair(row):
        if _is_picture(row[1]) and not _is_picture(row[0]):
            raise InvalidSampleError(f"row {place} is (caption, image): put the image first, (image, caption)")
        return dict(zip(("image", "candidate", "references"), row, strict=False))
    if not isinstance(row, (CaptionSample, Mapping, type(None))):
        raise InvalidSampleError(
            f"row {place} is of type {type(row).__name__}, no image with its caption: give {_FORMS}"
        )
    return row


def _made(rows: list[Any], chosen: Mapping[str, str], spec: MetricSpec | None, index: Any) -> HeldData:
    """The samples of rows."""
    columns = list(dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row))
    names = _names(columns, chosen, spec) if columns else {}
    samples: list[CaptionSample] = []
    errors: dict[int, str] = {}
    for place, row in enumerate(rows):
        try:
            samples.append(row if isinstance(row, CaptionSample) else _sample(row, names))
        except InvalidSampleError as error:
            errors[place] = str(error)
    if errors and not samples:
        raise InvalidSampleError(f"nothing can be scored: {next(iter(errors.values()))}")
    return HeldData(samples, errors, index)


def _names(columns: list[str], chosen: Mapping[str, str], spec: MetricSpec | None) -> dict[str, str]:
    """{role: name of its column}."""
    needs = {"image": spec.needs_image, "references": spec.needs_references} if spec is not None else {}
    if spec is None or spec.reads_questions:
        needs["question"] = False
    needs |= dict.fromkeys(spec.columns if spec is not None else (), True)
    found = {}
    try:
        for role in dict.fromkeys(("candidate", "image", "references", *needs, *chosen)):
            by = f"metric {spec.name!r}" if spec is not None and (role == "candidate" or needs.get(role)) else None
            found[role] = find_column(role, columns, chosen.get(role), option=f"{role}_column=", needed_by=by)
    except DataError as error:
        lists = next((name for name in column_names("candidates") if name in columns), None)
        hint = "" if lists is None else f" For each row with several {lists}, call score(image, {lists})."
        raise InvalidSampleError(str(error) + hint) from None
    return {role: name for role, name in found.items() if name is not None}


def _sample(row: Mapping[str, Any] | None, names: Mapping[str, str]) -> CaptionSample:
    if row is None:
        raise InvalidSampleError("the row is None")
    cells = {role: missing_to_none(row.get(name)) for role, name in names.items()}
    image, references = one_image(cells.pop("image", None)), read_references(cells.pop("references", None))
    further: dict[str, Any] = {role: cells.pop(role) for role in [*cells] if role not in _FIELDS}
    return CaptionSample(image=image, references=references, columns=further, **cells)
