"""From a data set of images and references to the columns that TRL's trainers and our rewards read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from integrations.trl.prompt_rows import PromptRows
from reward.data.cells import missing_to_none
from reward.data.chats import PROMPT, as_prompt
from reward.data.samples import column_names, find_column
from reward.errors import DataError, InvalidSampleError

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    DatasetT = TypeVar("DatasetT", Dataset, IterableDataset, DatasetDict, IterableDatasetDict)


def make_prompt_dataset(
    dataset: DatasetT | Sequence[Mapping[str, Any]] | pd.DataFrame,
    prompt: str | Callable[[dict[str, Any]], str] | None = None,
    *,
    system: str | None = None,
    image_column: str | None = None,
    references_column: str | None = None,
    prompt_column: str | None = None,
    check_images: bool = True,
) -> DatasetT | Dataset:
    """Gives each row a prompt for a vision-language policy, its image or images, and its references.

    The prompt is conversational, as TRL wants it beside images: TRL puts the images before the text of the first user
    message, or where `<image>` stands in a user's text. A prompt ends with the user's last turn. Rows that lack an
    image are left out, with a warning that counts them: TRL cannot mix them with others. So are rows with a broken
    image, on which the policy's processor would stop the training. Each image is decoded once to find them.

    The policy sees the picture that the rewards see: images that its processor would show otherwise (16-bit grey,
    transparency) become PNGs of what `reward.data.images.load_image` gives.

    Columns may have any names. Those that are not named by an option are found under the names that the rewards and
    `capreward score` know: the image under `images`, `image`, `file_name`, `image_path` or `img`, the references under
    `references` or `refs`. A prompt's column is used only if it is named.

    Args:
        dataset: rows with an image each, or a list of images: `datasets.Image`, or paths (relative to the working
            directory; nothing is downloaded). Streaming data sets and dicts of splits are taken, too, and so are a list
            of dicts and a DataFrame.
        prompt: what the policy is asked: a text, or a function that gets the row as a dict, without its images, and
            returns the text. None without `prompt_column`: "Describe the image in detail."
        system: system message, or None for none.
        image_column: holds the image or the images; becomes `image` or `images`.
        references_column: holds a list of reference captions, or one; becomes `references`.
        prompt_column: holds the text that the policy is asked, or whole messages in TRL's or LLaVA's form; becomes
            `prompt`, see `reward.data.chats.as_prompt`. Without an image column, the images are those in its
            messages.
        check_images: whether to look for broken images. False saves the time, where all are known to be good.

    Returns:
        The data set (of a list or a DataFrame, a `Dataset`) with the columns `prompt`, `image` or `images` and, if
        there are any, `references`; its other columns stay, and those that a format hid are seen again.

    Raises:
        DataError: a column is not there, or several could be meant.
        InvalidSampleError: a column is of another type, or in the way of a new one, a prompt is neither text nor
            messages, holds a placeholder of a chat template or shows more images than its row has, or no row has an
            image that can be read. A streaming data set raises it when the row is read.

    Example:
        >>> from datasets import Dataset
        >>> from PIL import Image
        >>> picture = Image.new("RGB", (96, 96), "red")
        >>> rows = Dataset.from_dict({"picture": [picture], "refs": [["A red star."]], "object": ["star"]})
        >>> rows = make_prompt_dataset(rows, lambda row: f"Describe the {row['object']}.", image_column="picture")
        >>> rows.remove_columns(["image", "object"])[0]["prompt"][0]["content"]
        'Describe the star.'
    """
    from datasets import Dataset, IterableDataset  # on use, here and below: a large package

    if prompt is not None and prompt_column is not None:
        raise InvalidSampleError("give either prompt or prompt_column")
    if isinstance(dataset, dict):
        options: dict[str, Any] = {"image_column": image_column, "references_column": references_column}
        options |= {"system": system, "prompt_column": prompt_column, "check_images": check_images}
        splits = {split: make_prompt_dataset(part, prompt, **options) for split, part in dataset.items()}
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

    def read_prompt(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        if prompt_column is not None:
            return as_prompt(row[prompt_column], system)
        if callable(prompt):
            row_without_image = {name: cell for name, cell in row.items() if name != image}
            return as_prompt(prompt(row_without_image), system)
        return as_prompt(PROMPT if prompt is None else prompt, system)

    prompt_needs: list[str] = []
    if prompt_column is not None:
        prompt_needs = [prompt_column]
    elif callable(prompt):
        prompt_needs = [name for name in columns if name != image]
    rows = PromptRows(new_names, image, references, read_prompt, prompt_needs, check_images)
    if isinstance(dataset, IterableDataset):
        return rows.shape_stream(dataset)
    return rows.shape_stored(dataset)


def _make_table(rows: Any, prompt_column: str | None) -> Dataset:
    """A list of dicts, or a DataFrame, as a data set; a row may lack a column."""
    from datasets import Dataset

    if hasattr(rows, "columns") and hasattr(rows, "iloc"):  # a DataFrame of pandas
        rows = rows.to_dict("records")
    elif hasattr(rows, "columns"):  # of polars
        rows = rows.to_dicts()
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise DataError(
            f"make_prompt_dataset takes a data set of `datasets`, a list of dicts or a DataFrame, got {rows!r:.200}"
        )
    names = dict.fromkeys(str(name) for row in rows for name in row)
    columns = {name: [_arrow_cell(row.get(name)) for row in rows] for name in names}
    if prompt_column in columns:
        # Arrow takes neither pictures in messages nor texts beside lists of parts.
        chats = [as_prompt(cell) for cell in columns[prompt_column]]
        if not any(name in columns for name in column_names("image")):
            columns["images"] = [_images_in(chat) for chat in chats]
        for chat in chats:
            for message in chat:
                message["content"] = [{**part, "image": None} for part in message["content"]]
        columns[prompt_column] = chats
    return Dataset.from_dict(columns)


def _arrow_cell(cell: Any) -> Any:
    if isinstance(cell, os.PathLike):
        return os.fspath(cell)
    return missing_to_none(cell)


def _images_in(chat: Any) -> list[Any]:
    images = []
    for message in as_prompt(chat):
        images += [part["image"] for part in message["content"] if "image" in part]
    return images


def _with_images_of_prompts(dataset: Any, name: str) -> Any:
    """The data set with a column `images` of the images in its messages."""
    from datasets import Dataset, Image, List

    def images_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
        return {"images": _images_in(row[name])}

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
    first_row: dict[str, Any] = next(iter(dataset), {})  # such as that of a generator
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
