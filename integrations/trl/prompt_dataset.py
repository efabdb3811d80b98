"""From a data set of images and references to the columns that TRL's trainers and our rewards read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PIL.Image import Image as PillowImage

from integrations.trl.prompt_rows import PromptRows
from reward.data.cells import missing_to_none
from reward.data.chats import PROMPT, as_prompt, prompt_images
from reward.data.column_names import column_names
from reward.data.samples import ImageLike, find_column
from reward.decoding.photos import read_images
from reward.errors import DataError, InvalidSampleError

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    DatasetT = TypeVar("DatasetT", Dataset, IterableDataset, DatasetDict, IterableDatasetDict)


def make_prompt_dataset(
    dataset: DatasetT | Sequence[Mapping[str, Any] | ImageLike] | pd.DataFrame | str | os.PathLike[str],
    prompt: str | Sequence[Mapping[str, Any]] | None = None,
    *,
    image_column: str | None = None,
    references_column: str | None = None,
    prompt_column: str | None = None,
    **unknown: Any,
) -> DatasetT | Dataset:
    """Gives each row a prompt for a vision-language policy, its image or images, and its references.

    The prompt is conversational, as TRL wants it beside images: TRL puts the images before the text of the first user
    message, or where `<image>` stands in a user's text. A prompt ends with the user's last turn. Rows without an image,
    which TRL cannot mix with others, and rows with a broken one, on which the policy's processor would stop the
    training, are left out, with a warning that counts them.

    The policy sees the picture that the rewards see: images that its processor would show otherwise (16-bit grey,
    transparency) become PNGs of what `reward.data.images.load_image` gives.

    Columns that are not named by an option are found under the names that the rewards and `capreward score` know: the
    image under `images`, `image`, `file_name`, `image_path` or `img`, the references under `references` or `refs`. A
    prompt's column is used only if it is named.

    Args:
        dataset: rows with an image each, or a list of images: `datasets.Image`, or paths (relative to the working
            directory; nothing is downloaded). Streams, dicts of splits, lists of dicts and DataFrames are taken, too,
            and lists of images and a folder of them, such as `"photos/"`.
        prompt: what the policy is asked: a text, or messages, such as one of the system and one of the user. None
            without `prompt_column`: "Describe the image in detail."
        image_column: holds the image or the images; becomes `image` or `images`.
        references_column: holds a list of reference captions, or one; becomes `references`.
        prompt_column: holds the text that the policy is asked, or messages as for `reward.data.chats.as_prompt`;
            becomes `prompt`. Without an image column, the images are those in its messages.

    Returns:
        The data set (of a list or a DataFrame, a `Dataset`) with the columns `prompt`, `image` or `images` and, if
        there are any, `references`; its other columns stay, and those that a format hid are seen again.

    Raises:
        DataError: a column is not there, or several could be meant.
        TypeError: there is no such argument; the message names those for columns.
        InvalidSampleError: a column is of another type, or in the way of a new one, a prompt cannot be read or shows
            more images than its row has, or no row has an image that can be read. A stream raises it when it is read.

    Example:
        >>> from datasets import Dataset
        >>> from PIL import Image
        >>> picture = Image.new("RGB", (96, 96), "red")
        >>> rows = Dataset.from_dict({"picture": [picture], "refs": [["A red star."]], "object": ["star"]})
        >>> rows = make_prompt_dataset(rows, "Describe the picture.", image_column="picture")
        >>> rows[0]["prompt"][0]["content"], rows[0]["references"]
        ('Describe the picture.', ['A red star.'])
    """
    from datasets import Dataset, IterableDataset  # on use, here and below: a large package

    for name in unknown:
        raise TypeError(
            f"make_prompt_dataset has no argument {name!r}: columns are named by image_column=, references_column= and "
            "prompt_column="
        )
    if prompt is not None and prompt_column is not None:
        raise InvalidSampleError("give either prompt or prompt_column")
    if isinstance(dataset, dict):
        splits = {}
        for split, part in dataset.items():
            splits[split] = make_prompt_dataset(
                part,
                prompt,
                image_column=image_column,
                references_column=references_column,
                prompt_column=prompt_column,
            )
        return type(dataset)(splits)
    if not isinstance(dataset, (Dataset, IterableDataset)):
        dataset = _make_table(dataset, prompt_column)
    if isinstance(dataset, Dataset):
        if dataset.format["type"] == "custom":
            raise DataError("the data set has a transform: store what it gives with map, then with_format(None)")
        dataset = dataset.with_format(None)

    columns = _list_columns(dataset)
    if prompt_column is not None:
        find_column("prompt", columns, prompt_column, option="prompt_column=")
        if find_column("image", columns, image_column, option="image_column=") is None:
            dataset = _with_images_of_prompts(dataset, prompt_column)
            columns["images"] = True
    image = find_column("image", columns, image_column, option="image_column=", needed_by="make_prompt_dataset")
    assert image is not None  # it is needed
    references = find_column("references", columns, references_column, option="references_column=")
    new_names = {image: "images" if columns[image] else "image"}
    if references is not None:
        new_names[references] = "references"
    if prompt_column is not None:
        new_names[prompt_column] = "prompt"
    _check_free(new_names, columns)

    rows = PromptRows(new_names, image, references, PROMPT if prompt is None else prompt, prompt_column)
    if isinstance(dataset, IterableDataset):
        return rows.shape_stream(dataset)
    return rows.shape_stored(dataset)


def _make_table(rows: Any, prompt_column: str | None) -> Dataset:
    """A list of dicts or of images, a folder of images, or a DataFrame, as a data set; a row may lack a column."""
    from datasets import Dataset

    if isinstance(rows, (str, os.PathLike)):
        if not Path(rows).exists():
            raise DataError(f"there is no folder {os.fspath(rows)!r}")
        if not Path(rows).is_dir():
            raise DataError(
                f"{os.fspath(rows)!r} is no folder of images: of a file give "
                f'load_dataset("json", data_files={os.fspath(rows)!r}, split="train") of datasets, or "csv", "parquet"'
            )
        rows = [photo.path for photo in read_images(rows)]
    if isinstance(rows, Sequence) and all(isinstance(row, (str, bytes, os.PathLike, PillowImage)) for row in rows):
        rows = [{"image": image} for image in rows]
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):  # a DataFrame of pandas
        rows = rows.to_dict("records")
    elif hasattr(rows, "columns"):  # of polars
        rows = rows.to_dicts()
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise DataError(
            "make_prompt_dataset takes a data set of `datasets`, a list of dicts or a DataFrame, a folder or a list of "
            f"images, got {rows!r:.200}"
        )
    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        columns[str(name)] = [_arrow_cell(row.get(name)) for row in rows]
    if prompt_column in columns:
        # Arrow takes neither pictures in messages nor texts beside lists of parts.
        chats = [as_prompt(cell) for cell in columns[prompt_column]]
        if columns.keys().isdisjoint(column_names("image")):
            columns["images"] = [prompt_images(chat) for chat in chats]
        for chat in chats:
            for message in chat:
                message["content"] = [{**part, "image": None} for part in message["content"]]
        columns[prompt_column] = chats
    return Dataset.from_dict(columns)


def _arrow_cell(cell: Any) -> Any:
    if isinstance(cell, os.PathLike):
        return os.fspath(cell)
    return missing_to_none(cell)


def _with_images_of_prompts(dataset: Any, name: str) -> Any:
    """The data set with a column `images` of the images in its messages."""
    from datasets import Dataset, Image, List

    def images_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
        return {"images": prompt_images(as_prompt(row[name]))}

    if not isinstance(dataset, Dataset):
        return dataset.map(images_of_row)
    features = dataset.features.copy()
    features["images"] = List(Image())
    return dataset.map(images_of_row, features=features, load_from_cache_file=False)


def _list_columns(dataset: Dataset | IterableDataset) -> dict[str, bool]:
    """For each column of the rows, whether its cells are lists."""
    from datasets import LargeList, List

    if dataset.features is not None:
        return {name: isinstance(feature, (List, LargeList)) for name, feature in dataset.features.items()}
    # Of a stream without types, such as that of a generator, the first row tells.
    first_row: dict[str, Any] = next(iter(dataset), {})
    return {name: isinstance(cell, (list, tuple)) for name, cell in first_row.items()}


def _check_free(new_names: Mapping[str, str], columns: Mapping[str, bool]) -> None:
    """Refuses columns that would hide the new ones, or be hidden by them."""
    if "prompt" in columns and "prompt" not in new_names.values():
        raise InvalidSampleError(
            "the data set has a column 'prompt' already: use it with prompt_column='prompt', or remove it first"
        )
    for old, new in new_names.items():
        if new != old and new in columns:
            raise InvalidSampleError(
                f"column {old!r} should become {new!r}, but there is such a column already: remove it first"
            )
        if new == "image" and old != "images" and "images" in columns:
            raise InvalidSampleError(
                "TRL would show the column 'images' to the policy instead of 'image': remove or rename it"
            )
