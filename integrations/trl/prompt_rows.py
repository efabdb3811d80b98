"""Rows that are no data set yet, and images that a data set holds inside its prompts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reward.errors import DataError
from reward.functions.chats import as_prompt
from reward.samples import column_names
from reward.values import or_none

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["rows_of", "with_images_of_prompts"]


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
