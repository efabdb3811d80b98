"""Rows that are no data set yet, formats and transforms of those that are, and images inside prompts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reward.errors import DataError, InvalidSampleError
from reward.rewards.chats import as_prompt
from reward.samples import column_names
from reward.scoring.transformed_source import shown_columns
from reward.values import or_none

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["readable_rows", "rows_of", "with_format_of", "with_images_of_prompts", "with_transform", "without_format"]

logger = logging.getLogger(__name__)


def rows_of(rows: Any, prompt_column: str | None) -> Dataset:
    """A list of dicts, or a DataFrame, as a data set; a row may lack a column."""
    from datasets import Dataset

    if hasattr(rows, "columns"):  # of pandas or polars
        rows = rows.to_dict("records") if hasattr(rows, "iloc") else rows.to_dicts()
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise DataError(
            f"make_prompt_dataset takes a data set of `datasets`, a list of dicts or a DataFrame, got {rows!r:.200}"
        )

    def cell(name: str, value: Any) -> Any:
        value = or_none(value)
        if name == prompt_column and not isinstance(value, str):  # Arrow takes no texts beside lists of parts
            return as_prompt(value)
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    names = dict.fromkeys(name for row in rows for name in row)
    columns = {str(name): [cell(name, row.get(name)) for row in rows] for name in names}
    shown = [_images_of(prompt) for prompt in columns.get(prompt_column or "", ())]
    if any(shown) and not any(name in columns for name in column_names("image")):
        columns["images"] = shown
    for prompt in columns.get(prompt_column or "", ()):
        for message in prompt if isinstance(prompt, list) else ():
            message["content"] = [{**part, "image": None} for part in message["content"]]
    return Dataset.from_dict(columns)


def _images_of(asked: Any) -> list[Any]:
    """The images inside a prompt."""
    return [part["image"] for message in as_prompt(asked) for part in message["content"] if "image" in part]


def with_images_of_prompts(dataset: Any, name: str) -> Any:
    """The data set with a column `images` of the images in its messages, if there are any."""
    import pyarrow.compute as pc
    from datasets import Dataset, Features, Image, List, concatenate_datasets

    def found(row: Mapping[str, Any]) -> dict[str, Any]:
        return {"images": _images_of(row[name])}

    if not isinstance(dataset, Dataset):
        return dataset.map(found)
    features = Features({"images": List(Image())})
    prompts = dataset.select_columns(name).with_format(None)
    images = prompts.map(found, remove_columns=name, features=features, load_from_cache_file=False)
    found_some = pc.any(pc.greater(pc.list_value_length(images.data.column("images")), 0)).as_py()
    return concatenate_datasets([dataset, images], axis=1) if found_some else dataset


def without_format(dataset: Dataset, named: Iterable[str | None]) -> Dataset:
    """The data set without its format: the columns that its rows have, and those that the user names."""
    wanted = {*shown_columns(dataset), *named}
    return dataset.with_format(None).select_columns([name for name in dataset.column_names if name in wanted])


def with_format_of(given: Dataset, made: Dataset, new_names: Mapping[str, str]) -> Dataset:
    """The data set with the format of the one that it was made of; new columns are shown in any case."""
    if not hasattr(given, "format") or given.format["type"] is None:
        return made
    form = given.format
    if set(form["columns"]) == set(given.column_names):
        return made.with_format(form["type"], **form["format_kwargs"])
    columns = [new_names.get(name, name) for name in form["columns"]]
    return made.with_format(form["type"], columns=columns, output_all_columns=True, **form["format_kwargs"])


def readable_rows(dataset: Dataset) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a data set with a transform, numbered, without those that cannot be read.

    Raises:
        InvalidSampleError: there is none.
    """
    fault = None
    found = False
    for number in range(len(dataset)):
        try:
            row = dataset[number]
        except Exception as error:  # of an image that cannot be decoded, or of the transform
            fault = fault or f". The first: {type(error).__name__}: {error}"[:500]
            logger.warning("row %d cannot be read and is left out: %s", number + 1, error)
        else:
            found = True
            yield number, row
    if not found:
        raise InvalidSampleError(f"the data set, as its transform gives it, has no row that can be read{fault or ''}")


def with_transform(
    dataset: Dataset,
    new_names: Mapping[str, str],
    has_image: Callable[[Mapping[str, Any]], bool],
    shaped: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Dataset:
    """The rows with an image, whose transform goes on to make the new columns of what it gave."""
    form, gone = dataset.format, {old for old, new in new_names.items() if old != new}
    transform = form["format_kwargs"]["transform"]
    kept = [number for number, row in readable_rows(dataset) if has_image(row)]
    if not kept:
        raise InvalidSampleError("the data set, as its transform gives it, holds no image that can be read")

    def made(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        columns = transform(batch)
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        new = [{**{name: cell for name, cell in row.items() if name not in gone}, **shaped(row)} for row in rows]
        return {name: [row[name] for row in new] for name in new[0]}

    columns, others = form["columns"], form["output_all_columns"]
    return dataset.select(kept).with_format("custom", columns, others, transform=made)
