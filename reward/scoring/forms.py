"""The forms in which published files hold captions, each a row of a table: how it is recognised, and what its rows are.

A form is one function and one row, in `DOCUMENTS` for a JSON file that is read whole, or in `ROWS` for rows of any file
that hold a caption or an image inside something else. Every command reads through them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from reward.errors import DataError, InvalidSampleError
from reward.image_files import IMAGE_ENDINGS
from reward.json_files import parse_json
from reward.samples import column_names
from reward.scoring.csv_source import CsvSource
from reward.scoring.derived_source import DerivedSource
from reward.scoring.sources import BadRow, Source
from reward.scoring.text_sources import JsonLinesSource, RowsSource, TextSource, loaded, opened, without_mark
from reward.values import is_list, listed, or_none, values_of

__all__ = ["DOCUMENTS", "ROWS", "DocumentForm", "RowForm", "open_json", "open_pictures", "open_text", "with_forms"]

_CAPTIONS = {*column_names("candidate"), *column_names("candidates")}
_ALL_NAMES = {name for role in ("candidate", "candidates", "image", "references") for name in column_names(role)}
_LOOKED_AT = 100  # rows, for an image in their messages
_LISTS = ("annotations", "data", "results", "rows", "captions", "samples", "images")
_SAYING = ("assistant", "gpt", "model")
_IMAGE_KEYS = ("image", "path", "url", "image_url")  # of a part of a message


@dataclass(frozen=True)
class DocumentForm:
    """A form of a JSON list or object that is a whole file.

    Args:
        name: for people.
        fits: whether a list or object is of this form.
        rows: its rows, in order; one that is no object is a bad row.
        kind: list or dict.
    """

    name: str
    fits: Callable[[Any], bool]
    rows: Callable[[Any], list[Any]]
    kind: type = dict


@dataclass(frozen=True)
class RowForm:
    """A form of rows that hold what they should have as a column inside something else.

    Args:
        name: for people.
        adds: the columns that it may add, of which those are added that no column is there for.
        column: the one that holds them, of the columns there are; None if the rows are not of this form.
        read: {column: value} of the cell of that column.
    """

    name: str
    adds: tuple[str, ...]
    column: Callable[[Sequence[str]], str | None]
    read: Callable[[Any], dict[str, Any]]


def _lists(document: Mapping[str, Any]) -> list[str]:
    """The fields that are lists of objects, that of the rows first."""
    found = [
        name for name, value in document.items() if isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    return sorted(found, key=lambda name: (*_LISTS, name).index(name))


def _is_of_coco(document: dict[str, Any]) -> bool:
    found = _lists(document)
    return {"images", "annotations"} <= {*found} and "id" in document["images"][0]


def _of_coco(document: dict[str, Any]) -> list[Any]:
    """Captions as COCO annotates them, each with the name of its image."""
    names = {image.get("id"): image.get("file_name") for image in document["images"]}
    return [{"file_name": names.get(each.get("image_id")), **each} for each in document["annotations"]]


def _is_of_karpathy(document: dict[str, Any]) -> bool:
    return "images" in _lists(document) and "sentences" in document["images"][0]


def _of_karpathy(document: dict[str, Any]) -> list[Any]:
    """A row a sentence."""
    rows = []
    for image in document["images"]:
        name = "/".join(image[key] for key in ("filepath", "filename") if image.get(key))
        facts = {key: image[key] for key in ("split", "cocoid", "imgid") if key in image}
        rows += [{"file_name": name, "caption": each.get("raw"), **facts} for each in image["sentences"]]
    return rows


def _is_of_columns(document: dict[str, Any]) -> bool:
    return bool(_CAPTIONS & {*document}) and len({type(value) for value in document.values()} | {dict, list}) == 2


def _of_columns(document: dict[str, Any]) -> list[Any]:
    """`DataFrame.to_json` and `to_dict`: {column: {row: value}} or {column: [values]}."""
    columns = {name: [*value.values()] if isinstance(value, dict) else value for name, value in document.items()}
    longest = max(map(len, columns.values()))
    return [{name: value[row] for name, value in columns.items() if row < len(value)} for row in range(longest)]


def _of_image_lists(document: dict[str, Any]) -> list[Any]:
    return [{"image": image, "caption": caption} for image, captions in document.items() for caption in captions]


DOCUMENTS = (
    DocumentForm(
        "[captions]",
        lambda document: all(isinstance(value, str) for value in document),
        lambda document: [{"caption": caption} for caption in document],
        list,
    ),
    DocumentForm(
        "[[image, caption]]",
        lambda document: all(isinstance(value, list) and len(value) == 2 for value in document),
        lambda document: [{"image": image, "caption": caption} for image, caption in document],
        list,
    ),
    DocumentForm("[rows]", lambda document: True, lambda document: document, list),
    DocumentForm("COCO's annotations", _is_of_coco, _of_coco),
    DocumentForm("Karpathy's split", _is_of_karpathy, _of_karpathy),
    DocumentForm(
        '{"data": [rows]}', lambda document: bool(_lists(document)), lambda document: document[_lists(document)[0]]
    ),
    DocumentForm(
        "columns, index and data",
        lambda document: {*document} == {"columns", "index", "data"},
        lambda document: [dict(zip(document["columns"], row, strict=True)) for row in document["data"]],
    ),
    DocumentForm("columns", _is_of_columns, _of_columns),
    DocumentForm("one row", lambda document: bool(_CAPTIONS & {*document}), lambda document: [document]),
    DocumentForm(
        "{image: caption}",
        lambda document: {type(value) for value in document.values()} - {type(None)} == {str},
        lambda document: [{"image": image, "caption": caption} for image, caption in document.items()],
    ),
    DocumentForm(
        "{image: [captions]}",
        lambda document: all(isinstance(value, list) for value in document.values()),
        _of_image_lists,
    ),
    DocumentForm(
        "{image: {fields}}",
        lambda document: all(isinstance(value, dict) for value in document.values()),
        lambda document: [{"image": image, **row} for image, row in document.items()],
    ),
)


def _chat_column(columns: Sequence[str]) -> str | None:
    if _CAPTIONS & {*columns}:
        return None
    return next((name for name in ("messages", "conversations", "conversation", "completion") if name in columns), None)


def _of_chat(cell: Any) -> dict[str, Any]:
    """The last turn of the assistant, and the first image, in the messages of OpenAI, TRL or LLaVA."""
    messages = listed(or_none(cell))
    if isinstance(messages, str):
        return {"caption": messages}
    turns = [turn for turn in values_of(messages, "messages") if isinstance(turn, Mapping)] if is_list(messages) else []
    said = [turn for turn in turns if (turn.get("role") or turn.get("from")) in _SAYING]
    images = (part for turn in turns for part in _parts(turn) if isinstance(part, Mapping))
    image = next(filter(None, map(_image_of, images)), None)
    if not said:
        return {"image": image}
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in _parts(said[-1])]
    return {"caption": "".join(text for text in texts if isinstance(text, str)) or None, "image": image}


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
        lambda cell: {"image": None if or_none(cell) is None else str(cell)},
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
        make = partial(_of_row, form, column)
        first = (row for row in islice(source.rows([column]), _LOOKED_AT) if not isinstance(row, BadRow))
        given = {name for row in first for name, value in make(row).items() if value}
        if adds := [name for name in adds if name in given]:
            source = DerivedSource(source, form.name, adds, [column], make)
    return source


def _of_row(form: RowForm, column: str, row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return form.read(row.get(column))
    except InvalidSampleError:
        return {}  # the row will say that it has no caption


def open_json(path: Path) -> TextSource:
    """Opens a file of JSON: an object a line, a list of objects, or an object of a form in `DOCUMENTS`.

    Raises:
        DataError: none of them.
    """
    with opened(path) as file:
        lines = (line.strip() for line in without_mark(file) if line.strip())
        first, has_more = next(lines, b""), next(lines, None) is not None
    is_whole = first.startswith(b"[") or (first == b"{" and has_more)
    if not is_whole and path.name.lower().removesuffix(".gz").endswith(".json"):
        is_whole = bool(first) and not (has_more and _is_json(first))
    if not is_whole:
        return JsonLinesSource(path)
    with opened(path) as file:
        content = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        values = loaded(content)
        if isinstance(values, dict):
            values = parse_json(content.decode(), str(path))  # in which no image is there twice
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    return RowsSource(path, _rows_of(values, path))


def _rows_of(document: Any, path: Path) -> list[Any]:
    if not document:
        return []
    form = next((form for form in DOCUMENTS if isinstance(document, form.kind) and form.fits(document)), None)
    if form is None:
        names = ", ".join(form.name for form in DOCUMENTS)
        raise DataError(f"{path} holds a JSON value of no form that can be read: {names}")
    try:
        return form.rows(document)
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{path} looks like {form.name}, but is not whole: {type(error).__name__}: {error}") from error


def open_text(path: Path) -> TextSource:
    """Opens a `.txt` file: a table, or a caption a line."""
    with opened(path) as file:
        first = next((line for line in without_mark(file) if line.strip()), b"").decode(errors="replace")
        names = [name.strip(" \r\n\"'").lower() for name in re.split(r"[,;|\t]", first)]
        if _ALL_NAMES & {*names} or names[0].partition("#")[0].endswith(IMAGE_ENDINGS):
            return CsvSource(path)
    with opened(path) as file:
        lines = [line.decode(errors="surrogateescape").rstrip("\r\n") for line in without_mark(file)]
    return RowsSource(path, [{"caption": line} for line in lines])


def _is_json(line: bytes) -> bool:
    try:
        loaded(line)
        return True
    except (ValueError, RecursionError):
        return False


def open_pictures(folder: Path) -> RowsSource | None:
    """Pictures of a folder that each have a caption beside them, `1.jpg` and `1.txt`; None where there are none."""
    texts = {path.stem: path for path in folder.glob("*.txt")}
    pictures = sorted(path for path in folder.iterdir() if path.suffix in IMAGE_ENDINGS and path.stem in texts)
    rows = [{"image": path.name, "caption": _caption_in(texts[path.stem])} for path in pictures]
    return RowsSource(folder, rows) if rows else None


def _caption_in(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError:
        return None
