"""Files that are read whole: JSON documents, texts, and pictures of a folder with a text each.

A document is a list of objects, captions by image, or COCO's annotations. What could mean several things is refused,
and the message shows what to write.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Any

from reward.data.column_names import COLUMN_NAMES, column_names
from reward.data.image_files import is_image_name
from reward.data.json_files import parse_json
from reward.errors import DataError
from reward.scoring.row_sources import HeldRows, JsonLinesSource, TextTable, json_row, loaded, opened, without_mark
from reward.scoring.sources import Source

_COLUMN_NAMES = {"id", "image_id"}.union(*(column_names(role) for role in COLUMN_NAMES))


def open_json_lines(path: Path) -> Source:
    """The rows of a file with a JSON object on each line."""
    try:
        return JsonLinesSource(path)
    except DataError as error:
        with opened(path) as file:
            stripped = (line.strip() for line in without_mark(file))
            first = next(filter(None, stripped), b"")
        # A document begins with a list, or with an object that goes on in the next line.
        if not first.startswith(b"[") and first != b"{":
            raise
        raise DataError(f"{path} is one JSON document and not an object a line: name it .json ({error})") from error


def open_json(path: Path) -> Source:
    """The rows of a JSON document, of a form that `document_rows` reads."""
    with opened(path) as file:
        content = file.read().removeprefix(codecs.BOM_UTF8).strip()
    try:
        document = loaded(content) if content else []
    except (ValueError, RecursionError) as error:
        first, _, following = content.partition(b"\n")
        has_row = isinstance(json_row(first.strip(), ""), dict)
        if following and has_row:
            raise DataError(f"{path} holds an object a line, and no JSON document: name it .jsonl") from error
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if isinstance(document, dict):
        # Read again by a slower reader, which refuses a name that comes twice: of two captions one would be lost.
        document = parse_json(content.decode(), str(path))
    return HeldRows(path, document_rows(document, path))


def open_text(path: Path) -> Source:
    """The rows of a text with a caption on each line; or of a table, if its first line consists of names of columns."""
    with opened(path) as file:
        lines = [line.decode(errors="surrogateescape").rstrip("\r\n") for line in without_mark(file)]
    first_lines = [_fields(line) for line in lines if line.strip()][:2]
    if first_lines and _COLUMN_NAMES.issuperset(map(str.lower, first_lines[0])):
        header = first_lines[0]
        if len(header) > 1:
            return TextTable(path)
        # A table of one column needs no separator: its captions may have commas.
        while not lines[0].strip():
            del lines[0]
        return HeldRows(path, [{header[0]: line} for line in lines[1:]])
    # The second line tells of a header with other names. Such a table would be scored as captions.
    for fields in first_lines:
        names = [field.partition("#")[0] for field in fields]  # Flickr numbers captions: 1.jpg#0
        if len(names) > 1 and any(map(is_image_name, names)):
            raise DataError(
                f"{path} holds names of pictures beside captions and no header: put a line such as image,caption in "
                "front, with the separator of the file"
            )
    return HeldRows(path, [{"caption": line} for line in lines])


def _fields(line: str) -> list[str]:
    """The fields of a line of a table, whatever separates them."""
    return [field.strip(" \"'") for field in re.split(r"[,;|\t]", line)]


def open_pictures(folder: Path) -> Source | None:
    """Pictures of a folder with their captions, `1.jpg` and `1.txt`; None where no picture has one beside it.

    Raises:
        DataError: a text has several lines, or is beside several pictures, or in a folder below, or there is nothing
            but pictures.
    """
    texts: dict[str, Path] = {}
    pictures: dict[str, list[str]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):  # a Mac's notes begin with ._
            continue
        if path.suffix.lower() == ".txt":
            texts[path.stem] = path
        elif is_image_name(path):
            pictures.setdefault(path.stem, []).append(path.name)
    if texts.keys().isdisjoint(pictures):
        files = {path for path in folder.rglob("[!.]*") if path.is_file()}
        for path in files:
            if is_image_name(path) and path.with_suffix(".txt") in files:
                raise DataError(f"{folder} has pictures and their texts in folders of its own: name one, {path.parent}")
        if files and all(map(is_image_name, files)):
            raise DataError(
                f"{folder} holds pictures and no captions: put captions.csv with a line `image,caption` and a row for "
                "each beside them, or have them captioned: capreward caption --help"
            )
        return None
    rows = []
    for stem, names in pictures.items():
        if stem in texts and len(names) > 1:
            raise DataError(f"{texts[stem]} is beside {' and '.join(names)}: keep one of them, or write captions.csv")
        caption = None  # a picture without a text keeps its row
        if stem in texts:
            caption = _caption_in(texts[stem])
        rows += [{"image": name, "caption": caption} for name in names]
    return HeldRows(folder, rows)


def _caption_in(path: Path) -> str | None:
    """The caption that is all of a text file; None if it is not UTF-8."""
    try:
        caption = path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError:
        return None
    lines = len(caption.splitlines())
    if lines > 1:
        raise DataError(
            f"{path} has {lines} lines, and a text beside a picture is one caption: for several, write captions.csv "
            "with a line image,caption and a row for each"
        )
    return caption


def document_rows(document: Any, path: Any) -> list[Any]:
    """The rows of a JSON value that is a whole file: a list of objects, captions by image, or COCO's annotations.

    Raises:
        DataError: another value; the message shows how rows are written.
    """
    if isinstance(document, list):
        if document and not _has_objects(document):
            raise _unknown_form(path, f"a list of {type(document[0]).__name__}")
        return document
    if not isinstance(document, dict):
        raise _unknown_form(path, f"one {type(document).__name__}")
    lists = [name for name, value in document.items() if _has_objects(value)]
    if "images" in lists and "annotations" in lists:
        return _of_coco(document)
    if lists:
        raise _unknown_form(path, f"an object with a list of objects, {lists[0]!r}")
    if not document:
        return []
    columns = [name for name in document if name in _COLUMN_NAMES]
    if columns:
        raise _unknown_form(path, f"an object with the names of columns, {', '.join(columns)}")
    return _by_image(document, path)


def _unknown_form(path: Any, value: str) -> DataError:
    """The error of a file that holds such a value, with the forms that are read."""
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
        if isinstance(row, dict):
            row = {"file_name": names.get(row.get("image_id")), **row}
        rows.append(row)
    return rows


def _by_image(document: dict[str, Any], path: Any) -> list[Any]:
    """{image: caption} or {image: [captions]}; facts about the file beside them are no captions."""
    pictures = [name for name in document if _names_picture(name)]
    rows = []
    for name, value in document.items():
        captions = value if isinstance(value, list) else [value]
        if not all(isinstance(caption, str) or caption is None for caption in captions):
            raise _unknown_form(path, f"an object whose field {name!r} is {type(captions[0]).__name__}, no caption")
        if pictures and not _names_picture(name):
            raise DataError(
                f"{path} holds captions by image, such as {pictures[0]!r}, and {name!r}, which names no picture: take "
                "it out, or write its ending"
            )
        rows += [{"image": name, "caption": caption} for caption in captions]
    return rows


def _names_picture(name: str) -> bool:
    """Whether a text is the name of a picture's file, or a number, by which COCO names its pictures."""
    return is_image_name(name) or name.isdecimal()
