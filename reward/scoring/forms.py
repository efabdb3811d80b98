"""The forms in which published files hold captions, each a row of a table: how it is recognised, and what its rows are.

A form is one function and one row, in `DOCUMENTS` for a JSON file that is read whole, or in `ROWS` for rows of any file
that hold a caption or an image inside something else. Every command reads through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from reward.data.cells import is_list, missing_to_none, parse_list, to_list
from reward.data.chats import completion_text
from reward.data.samples import column_names
from reward.errors import DataError, InvalidSampleError
from reward.scoring.derived_source import DerivedSource
from reward.scoring.sources import BadRow, Source

_CAPTIONS = {*column_names("candidate"), *column_names("candidates")}
_LOOKED_AT = 100  # rows, for an image in their messages
_LISTS = ("annotations", "data", "results", "rows", "captions", "samples", "images")
_IMAGE_KEYS = ("image", "path", "url", "image_url")  # of a part of a message
_Object = dict[str, Any]


def _lists(document: _Object) -> list[str]:
    """The fields that are lists of objects, that of the rows first."""
    found = [
        name for name, value in document.items() if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    return sorted(found, key=lambda name: (*_LISTS, name).index(name))


def _of_coco(document: _Object) -> list[Any]:
    """Captions as COCO annotates them, each with the name of its image."""
    names = {image.get("id"): image.get("file_name") for image in document["images"]}
    return [{"file_name": names.get(each.get("image_id")), **each} for each in document["annotations"]]


def _of_karpathy(document: _Object) -> list[Any]:
    """A row a sentence."""
    rows = []
    for image in document["images"]:
        name = "/".join(image[key] for key in ("filepath", "filename") if image.get(key))
        facts = {key: image[key] for key in ("split", "cocoid", "imgid") if key in image}
        rows += [{"file_name": name, "caption": each.get("raw"), **facts} for each in image["sentences"]]
    return rows


def _of_columns(document: _Object) -> list[Any]:
    """`DataFrame.to_json` and `to_dict`: {column: {row: value}} or {column: [values]}."""
    columns = {name: [*value.values()] if isinstance(value, dict) else value for name, value in document.items()}
    longest = max(map(len, columns.values()))
    return [{name: value[row] for name, value in columns.items() if row < len(value)} for row in range(longest)]


def _by_image(document: _Object) -> list[Any]:
    """{image: caption}, {image: [captions]} or {image: {fields}}."""
    lists = {image: each if isinstance(each, list) else [each] for image, each in document.items()}
    both = ((image, value) for image, values in lists.items() for value in values)
    return [{"image": image, **(value if isinstance(value, dict) else {"caption": value})} for image, value in both]


class DocumentForm(NamedTuple):
    """A form of a JSON object that is a whole file: its name, whether an object is of this form, and its rows."""

    name: str
    fits: Callable[[_Object], bool]
    rows: Callable[[_Object], list[Any]]


DOCUMENTS = (
    DocumentForm("COCO's annotations", lambda it: {"images", "annotations"} <= {*_lists(it)}, _of_coco),
    DocumentForm(
        "Karpathy's split", lambda it: "images" in _lists(it) and "sentences" in it["images"][0], _of_karpathy
    ),
    DocumentForm('{"data": [rows]}', lambda it: bool(_lists(it)), lambda it: it[_lists(it)[0]]),
    DocumentForm(
        "columns, index and data",
        lambda it: {*it} == {"columns", "index", "data"},
        lambda it: [dict(zip(it["columns"], row, strict=True)) for row in it["data"]],
    ),
    DocumentForm(
        "columns",
        lambda it: bool(_CAPTIONS & {*it}) and all(isinstance(value, (dict, list)) for value in it.values()),
        _of_columns,
    ),
    DocumentForm("one row", lambda it: bool(_CAPTIONS & {*it}), lambda it: [it]),
    DocumentForm(
        "{image: caption}, {image: [captions]} or {image: {fields}}",
        lambda it: all(isinstance(value, (str, list, dict, type(None))) for value in it.values()),
        _by_image,
    ),
)


def rows_of(document: Any, path: Any) -> list[Any]:
    """The rows of a JSON value that is a whole file; one that is no object is a bad row.

    Raises:
        DataError: the value is of no form, or not whole.
    """
    if isinstance(document, list):
        return [_of_item(item) for item in document]
    if not document:
        return []
    form = next((form for form in DOCUMENTS if isinstance(document, dict) and form.fits(document)), None)
    if form is None:
        names = ", ".join(form.name for form in DOCUMENTS)
        raise DataError(f"{path} holds a JSON value of no form that can be read: a list, {names}")
    try:
        return form.rows(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} looks like {form.name}, but is not whole: {type(error).__name__}: {error}") from error


def _of_item(item: Any) -> Any:
    """A row of [captions], [[image, caption]] or [rows]."""
    if isinstance(item, str):
        return {"caption": item}
    return dict(zip(("image", "caption"), item, strict=True)) if isinstance(item, list) and len(item) == 2 else item


class RowForm(NamedTuple):
    """A form of rows that hold what they should have as a column inside something else.

    Args:
        name: for people.
        adds: the columns that it may add.
        column: which of the columns there are holds them; None if the rows are not of this form.
        read: {column: value} of a cell of it.
    """

    name: str
    adds: tuple[str, ...]
    column: Callable[[Sequence[str]], str | None]
    read: Callable[[Any], _Object]


def _chat_column(columns: Sequence[str]) -> str | None:
    if _CAPTIONS & {*columns}:
        return None
    return next((name for name in ("messages", "conversations", "conversation", "completion") if name in columns), None)


def _of_chat(cell: Any) -> _Object:
    """The last turn of the assistant, and the first image, in the messages of OpenAI, TRL or LLaVA."""
    messages = parse_list(missing_to_none(cell))
    if isinstance(messages, str):
        return {"caption": messages}
    turns = [turn for turn in to_list(messages, "messages") if isinstance(turn, Mapping)] if is_list(messages) else []
    images = (part for turn in turns for part in _parts(turn) if isinstance(part, Mapping))
    image = next(filter(None, map(_image_of, images)), None)
    with suppress(InvalidSampleError):  # the row will say that it has no caption
        return {"caption": completion_text(turns) or None, "image": image}
    return {"image": image}


def _parts(turn: Mapping[str, Any]) -> list[Any]:
    content = turn.get("content", turn.get("value"))
    return list(content) if is_list(content) else [content]


def _image_of(part: Mapping[str, Any]) -> Any:
    image = next((part[key] for key in _IMAGE_KEYS if part.get(key) is not None), None)
    image = image.get("url", image) if isinstance(image, Mapping) else image
    return image.removeprefix("file://") if isinstance(image, str) else image


ROWS = (
    RowForm("captions in messages", ("caption", "image"), _chat_column, _of_chat),
    RowForm(
        "COCO's results: image_id and caption",
        ("image",),
        lambda columns: "image_id" if "image_id" in columns else None,
        lambda cell: {"image": None if missing_to_none(cell) is None else str(cell)},
    ),
)
_ROLES = {"caption": "candidate", "image": "image"}


def with_forms(source: Source) -> Source:
    """The data, with the columns that the forms of its rows give."""
    for form in ROWS:
        column = form.column(source.columns)
        adds = [name for name in form.adds if not {*column_names(_ROLES[name])} & {*source.columns}]
        if column is None or not adds:
            continue
        make = partial(_of_row, form.read, column)
        first = (row for row in islice(source.rows([column]), _LOOKED_AT) if not isinstance(row, BadRow))
        given = {name for row in first for name, value in make(row).items() if value}
        if adds := [name for name in adds if name in given]:
            source = DerivedSource(source, form.name, adds, [column], make)
    return source


def _of_row(read: Callable[[Any], _Object], column: str, row: Mapping[str, Any]) -> _Object:
    try:
        return read(row.get(column))
    except InvalidSampleError:
        return {}  # the row will say that it has no caption
