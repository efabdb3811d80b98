"""Opens a data file by the ending of its name: each kind of file is a row of `KINDS`."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reward.data.image_files import is_image_name
from reward.data.json_files import parse_json
from reward.data.samples import COLUMN_NAMES, column_names
from reward.errors import DataError
from reward.scoring.arrow_sources import ParquetSource
from reward.scoring.csv_source import read_csv
from reward.scoring.forms import rows_of
from reward.scoring.row_sources import HeldRows, JsonLinesSource, json_row, loaded, opened, without_mark
from reward.scoring.sources import Source
from reward.scoring.tar_source import TarSource

_COLUMN_NAMES = {"id", "image_id"}.union(*(column_names(role) for role in COLUMN_NAMES))


def open_json_lines(path: Path) -> Source:
    """An object a line."""
    try:
        return JsonLinesSource(path)
    except DataError as error:
        with opened(path) as file:
            first = next((line.strip() for line in without_mark(file) if line.strip()), b"")
        if not first.startswith(b"[") and first != b"{":
            raise
        raise DataError(f"{path} is one JSON document and not an object a line: name it .json ({error})") from error


def open_json(path: Path) -> Source:
    """A document of a form that `rows_of` reads."""
    with opened(path) as file:
        content = file.read().removeprefix(codecs.BOM_UTF8).strip()
    try:
        document = loaded(content) if content else []
    except (ValueError, RecursionError) as error:
        first, _, others = content.partition(b"\n")
        if others and isinstance(json_row(first, ""), dict):
            raise DataError(f"{path} holds an object a line, and no JSON document: name it .jsonl") from error
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if isinstance(document, dict):
        document = parse_json(content.decode(), str(path))  # in which no image is there twice
    return HeldRows(path, rows_of(document, path))


def open_text(path: Path) -> Source:
    """A caption a line; or a table, if its first line consists of names of columns."""
    with opened(path) as file:
        lines = [line.decode(errors="surrogateescape").rstrip("\r\n") for line in without_mark(file)]
    first_lines = [_fields(line) for line in lines if line.strip()][:2]
    header = [name.lower() for name in first_lines[0]] if first_lines else []
    if header and _COLUMN_NAMES.issuperset(header):
        if len(header) > 1:
            return read_csv(path)
        del lines[: 1 + next(number for number, line in enumerate(lines) if line.strip())]
        return HeldRows(path, [{header[0]: line} for line in lines])
    for fields in first_lines:
        if len(fields) > 1 and any(is_image_name(field.partition("#")[0]) for field in fields):
            raise DataError(
                f"{path} holds names of pictures beside captions and no header: put a line such as image,caption in "
                "front, with the separator of the file, or name it .token if it is as Flickr8k.token is"
            )
    return HeldRows(path, [{"caption": line} for line in lines])


def _fields(line: str) -> list[str]:
    return [field.strip(" \"'") for field in re.split(r"[,;|\t]", line)]


def open_token(path: Path) -> Source:
    """Flickr8k's captions: the name of the image with the caption's number, a tab, and the caption."""
    return read_csv(path, ["image", "caption"])


def open_pictures(folder: Path) -> Source | None:
    """Pictures of a folder with their captions, `1.jpg` and `1.txt`; None where no picture has one beside it.

    Raises:
        DataError: a text has several lines, or is beside several pictures.
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
        return None
    rows = []
    for stem, names in pictures.items():
        if stem in texts and len(names) > 1:
            raise DataError(f"{texts[stem]} is beside {' and '.join(names)}: keep one of them, or write captions.csv")
        rows += [{"image": name, "caption": _caption_in(texts[stem]) if stem in texts else None} for name in names]
    return HeldRows(folder, rows)


def _caption_in(path: Path) -> str | None:
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


def _open_arrow(path: Path) -> Source:
    """A file of the cache of `datasets`."""
    import datasets

    from reward.scoring.transformed_source import dataset_source

    return dataset_source(datasets.Dataset.from_file(str(path)), name=path.name, folder=path.parent)


KINDS: dict[str, Callable[[Path], Any]] = {
    ".jsonl": open_json_lines,
    ".ndjson": open_json_lines,
    ".jsonlines": open_json_lines,
    ".json": open_json,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".token": open_token,
    ".token.txt": open_token,
    ".txt": open_text,
    ".parquet": ParquetSource.of,
    ".arrow": _open_arrow,
    ".tar": TarSource,
    ".tgz": TarSource,
}
_BINARY = (".parquet", ".arrow", ".tgz")


def kind_of(path: Path) -> str | None:
    """The ending in `KINDS`, perhaps before `.gz`, of a name; None if there is none."""
    name = path.name.lower()
    ending = next((kind for kind in KINDS if name.removesuffix(".gz").endswith(kind)), None)
    if name.endswith(".gz") and ending in _BINARY:
        return None
    return ending
