"""What files hold beside plain rows: JSON documents that are read whole, and rows with captions in messages.

A document is a list of objects, captions by image, or COCO's annotations. A column is known by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from reward.data.cells import missing_to_none, parse_list
from reward.data.chats import completion_text, prompt_images
from reward.data.image_files import is_image_name
from reward.data.samples import COLUMN_NAMES, column_names
from reward.errors import DataError, InvalidSampleError
from reward.scoring.derived_source import DerivedSource
from reward.scoring.sources import BadRow, Source

MESSAGES = ("messages", "conversations", "conversation", "completion")  # columns of chats
_CAPTIONS = {*column_names("candidate"), *column_names("candidates")}
_NAMES = {name for role in COLUMN_NAMES for name in column_names(role)}


def rows_of(document: Any, path: Any) -> list[Any]:
    """The rows of a JSON value that is a whole file: a list of objects, captions by image, or COCO's annotations.

    Raises:
        DataError: another value; the message shows how rows are written.
    """
    if isinstance(document, list):
        if document and not _has_objects(document):
            raise _unread(path, f"a list of {type(document[0]).__name__}")
        return document
    if not isinstance(document, dict):
        raise _unread(path, f"one {type(document).__name__}")
    lists = [name for name, value in document.items() if _has_objects(value)]
    if {"images", "annotations"} <= {*lists}:
        return _of_coco(document)
    if lists:
        raise _unread(path, f"an object with a list of objects, {lists[0]!r}")
    if not document:
        return []
    columns = [name for name in document if name in _NAMES]
    if columns:
        raise _unread(path, f"an object with the names of columns, {', '.join(columns)}")
    return _by_image(document, path)


def _unread(path: Any, value: str) -> DataError:
    return DataError(
        f"{path} holds {value}: write its rows as a list of objects, "
        '[{"image": "1.jpg", "caption": "A dog."}, ...] (pandas: to_json(orient="records")), or as {"1.jpg": "A dog."}'
    )


def _has_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _of_coco(document: dict[str, Any]) -> list[Any]:
    """Captions as COCO annotates them, each with the name of its image; what is no object is a bad row."""
    names = {image.get("id"): image.get("file_name") for image in document["images"] if isinstance(image, dict)}
    rows = []
    for row in document["annotations"]:
        rows.append({"file_name": names.get(row.get("image_id")), **row} if isinstance(row, dict) else row)
    return rows


def _by_image(document: dict[str, Any], path: Any) -> list[Any]:
    """{image: caption} or {image: [captions]}; facts about the file beside them are no captions."""
    pictures = [name for name in document if is_image_name(name) or name.isdecimal()]
    rows = []
    for name, value in document.items():
        captions = value if isinstance(value, list) else [value]
        if not all(isinstance(caption, str) or caption is None for caption in captions):
            raise _unread(path, f"an object whose field {name!r} is {type(captions[0]).__name__}, no caption")
        if pictures and not (is_image_name(name) or name.isdecimal()):
            raise DataError(
                f"{path} holds captions by image, such as {pictures[0]!r}, and {name!r}, which names no picture: take "
                "it out, or write its ending"
            )
        rows += [{"image": name, "caption": caption} for caption in captions]
    return rows


class _FormedSource(DerivedSource):
    """Rows with columns out of their messages; the output has no images that the messages hold as data."""

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        for row in super().records():
            if isinstance(row, dict) and "image" in self.adds and isinstance(row["image"], bytes):
                row["image"] = None
            yield row


def with_forms(source: Source) -> Source:
    """The data with the columns that stand in others: a caption and an image in messages, COCO's `image_id`."""
    columns = {*source.columns}
    has_image = not columns.isdisjoint(column_names("image"))
    messages = next((name for name in MESSAGES if name in columns), None)
    if messages is not None and columns.isdisjoint(_CAPTIONS):
        adds = ["caption"] if has_image else ["caption", "image"]
        return _FormedSource(source, "captions in messages", adds, [messages], partial(_of_chat, messages))
    if "image_id" in columns and not has_image:
        return _FormedSource(source, "COCO's image_id", ["image"], ["image_id"], _image_of_id)
    return source


def _of_chat(column: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The last turn of the assistant, and the first image, in the messages of OpenAI, TRL or LLaVA."""
    cells: dict[str, Any] = {}
    messages = None
    # What cannot be read is missing, and the row will say so.
    with suppress(InvalidSampleError):
        messages = parse_list(missing_to_none(row.get(column)))
        cells["caption"] = completion_text(messages) or None
    with suppress(InvalidSampleError):
        cells["image"] = next(iter(prompt_images(messages)), None)
    return cells


def _image_of_id(row: Mapping[str, Any]) -> dict[str, Any]:
    image_id = missing_to_none(row.get("image_id"))
    return {"image": None if image_id is None else str(image_id)}
