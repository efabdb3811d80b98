"""Opens a data file by the ending of its name: each kind of file is a row of `KINDS`."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from pathlib import Path

from reward.data.image_files import IMAGE_ENDINGS
from reward.data.json_files import parse_json
from reward.data.samples import column_names
from reward.errors import DataError
from reward.scoring.arrow_sources import ParquetSource
from reward.scoring.csv_source import read_csv
from reward.scoring.forms import rows_of
from reward.scoring.row_sources import HeldRows, JsonLinesSource, json_row, loaded, opened, without_mark
from reward.scoring.sources import Source
from reward.scoring.tar_source import TarSource

_NAMES = {name for role in ("candidate", "candidates", "image", "references") for name in column_names(role)}


def open_json(path: Path) -> Source:
    """An object a line, a list of rows, or an object of a form in `reward.scoring.forms.DOCUMENTS`."""
    with opened(path) as file:
        lines = (line.strip() for line in without_mark(file) if line.strip())
        first, has_more = next(lines, b""), next(lines, None) is not None
    if path.name.lower().removesuffix(".gz").endswith(".json"):
        is_whole = not (has_more and isinstance(json_row(first, ""), dict))
    else:
        is_whole = first.startswith(b"[") or first == b"{"
    if not is_whole:
        return JsonLinesSource(path)
    with opened(path) as file:
        content = file.read().removeprefix(codecs.BOM_UTF8)
    try:
        document = loaded(content) if content.strip() else []
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if isinstance(document, dict):
        document = parse_json(content.decode(), str(path))  # in which no image is there twice
    return HeldRows(path, rows_of(document, path))


def open_text(path: Path) -> Source:
    """A table, or a caption a line."""
    with opened(path) as file:
        lines = [line.decode(errors="surrogateescape").rstrip("\r\n") for line in without_mark(file)]
    first = next(filter(str.strip, lines), "")
    names = [name.strip(" \"'").lower() for name in re.split(r"[,;|\t]", first)]
    if names[0].partition("#")[0].endswith(IMAGE_ENDINGS):
        return open_token(path)
    if _NAMES & {*names}:
        return read_csv(path)
    return HeldRows(path, [{"caption": line} for line in lines])


def open_token(path: Path) -> Source:
    """Flickr8k's captions: the name of the image with the caption's number, a tab, and the caption."""
    return read_csv(path, ["image", "caption"])


def open_pictures(folder: Path) -> Source | None:
    """Pictures of a folder that each have a caption beside them, `1.jpg` and `1.txt`; None where there are none."""
    texts = {path.stem: path for path in folder.glob("*.txt")}
    pictures = sorted(path for path in folder.iterdir() if path.suffix in IMAGE_ENDINGS and path.stem in texts)
    rows = [{"image": path.name, "caption": _caption_in(texts[path.stem])} for path in pictures]
    return HeldRows(folder, rows) if rows else None


def _caption_in(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError:
        return None


def _of_arrow(path: Path) -> Source:
    """A file of the cache of `datasets`."""
    import datasets

    from reward.scoring.transformed_source import dataset_source

    return dataset_source(datasets.Dataset.from_file(str(path)), name=path.name, folder=path.parent)


KINDS: dict[str, Callable[[Path], Source]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonlines", ".json"), open_json),
    **dict.fromkeys((".csv", ".tsv"), read_csv),
    ".token": open_token,
    ".txt": open_text,
    ".parquet": ParquetSource.of,
    ".arrow": _of_arrow,
    **dict.fromkeys((".tar", ".tgz"), TarSource),
}
_BINARY = (".parquet", ".arrow", ".tgz")


def kind_of(path: Path) -> str | None:
    """The ending in `KINDS`, perhaps before `.gz`, of a name; None if there is none."""
    name = path.name.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    return ending if ending in KINDS and not (name.endswith(".gz") and ending in _BINARY) else None
