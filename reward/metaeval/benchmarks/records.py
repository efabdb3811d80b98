"""Reads the files of a benchmark as records: objects of JSON files and rows of tables, whose fields are checked."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from reward.errors import DataError
from reward.json_files import read_json
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow

__all__ = [
    "MissingFileError",
    "Record",
    "Split",
    "find_file",
    "find_splits",
    "image_folder",
    "is_jsonl",
    "number_in",
    "read_entries",
    "read_lines",
    "read_list",
    "read_object",
    "read_table",
    "score_in",
]

T = TypeVar("T")

JSONL_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_TABLE_ENDINGS = (".parquet", ".csv", *JSONL_ENDINGS)
_SHARD = re.compile(r"-\d+-of-\d+$")
_KINDS = {str: "text", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}


class MissingFileError(DataError):
    """A file does not exist; `load_benchmark` adds where it comes from and under which licence."""


@dataclass(frozen=True)
class Record:
    """An object of a JSON file or a row of a table. Every error names the file, the place in it, and the field.

    Args:
        values: {field: value}; an encoded image stays the dictionary that is stored.
        where: file and line, row or entry, for messages.
        folder: of its file, or of the data set.

    Example:
        >>> Record({"caption": "A dog.", "rating": 6}, "rated.json, entry 1", Path()).number("rating", 1, 5)
        Traceback (most recent call last):
        ...
        reward.errors.DataError: rated.json, entry 1: rating must be a number from 1 to 5, got 6
    """

    values: Mapping[str, Any]
    where: str
    folder: Path

    def error(self, name: str, wanted: str, value: Any = ...) -> DataError:
        """The error for a field that does not hold what is wanted."""
        shown = self.values.get(name) if value is ... else value
        return DataError(f"{self.where}: {name} must be {wanted}, got {shown!r:.60}")

    def first(self, *names: str) -> tuple[str, Any]:
        """The first of these fields that the record has, and its value; ("", None) if it has none."""
        return next(((name, self.values[name]) for name in names if name in self.values), ("", None))

    def take(self, *names: str) -> tuple[str, Any]:
        """As `first`; a DataError if the record has none of the fields."""
        name, value = self.first(*names)
        if not name:
            known = ", ".join(map(str, self.values)) or "none"
            raise DataError(f"{self.where} has no field {' or '.join(map(repr, names))}; it has: {known}")
        return name, value

    def of_kind(self, name: str, kind: type[T]) -> T:
        """A field that must hold a str, int, bool, list or dict; true and false are not numbers here."""
        _, value = self.take(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(name, _KINDS[kind])
        return value

    def text(self, name: str) -> str:
        """A field that must hold a text."""
        return self.of_kind(name, str)

    def texts(self, name: str, count: int | None = None) -> tuple[str, ...]:
        """A field that must hold a list of texts: exactly `count` of them, or any number, without the blank ones."""
        _, values = self.take(name)
        if (
            not isinstance(values, list)
            or not all(isinstance(value, str) for value in values)
            or count not in (None, len(values))
        ):
            raise self.error(name, "a list of " + ("texts" if count is None else f"{count} texts"))
        return tuple(value for value in values if count is not None or value.strip())

    def number(self, name: str, low: float = -math.inf, high: float = math.inf, *, text: bool = False) -> float:
        """A field that must hold a finite number from `low` to `high`; with `text`, perhaps written as text."""
        number = number_in(self.take(name)[1], low, high, text=text)
        if number is None:
            bounds = "" if math.isinf(low) else f" from {low:g}" + ("" if math.isinf(high) else f" to {high:g}")
            raise self.error(name, f"a number{bounds}" if bounds else "a finite number")
        return number

    def category(self) -> str:
        """The field `category`, a text or a whole number; empty where it is absent or null."""
        value = self.values.get("category")
        if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
            raise self.error("category", "text or a whole number")
        return "" if value is None else str(value).strip()

    def records(self, name: str, noun: str) -> Iterator[Record]:
        """The objects in a field that must hold a list of them; messages call each `noun` and its number."""
        for number, value in enumerate(self.of_kind(name, list), start=1):
            yield _record(value, f"{self.where}, {noun} {number}", self.folder)

    def record(self, name: str) -> Record:
        """The object in a field."""
        return Record(self.of_kind(name, dict), f"{self.where}, {name}", self.folder)


def number_in(value: Any, low: float, high: float, *, text: bool = False) -> float | None:
    """The value as a float, or None if it is not a finite number from `low` to `high`; with `text`, it may be text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str) if text else (int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if low <= number <= high and math.isfinite(number) else None


def score_in(value: Any) -> float | None:
    """The value as a score: NaN for null and NaN, and None if it is not a finite number."""
    return math.nan if value is None or value != value else number_in(value, -math.inf, math.inf)


def _record(value: Any, where: str, folder: Path) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"{where} must be a JSON object, got {type(value).__name__}")
    return Record(value, where, folder)


def read_object(path: Path) -> Record:
    """The object that a JSON file holds.

    Raises:
        DataError: unreadable, or the file holds something else.
    """
    return Record(_json_of(path, dict, "object"), str(path), path.parent)


def read_entries(path: Path, noun: str = "entry") -> Iterator[tuple[str, Record]]:
    """The objects in a JSON object of objects, with their keys; messages call each `noun` and its key.

    Raises: as `read_object`.
    """
    for key, value in read_object(path).values.items():
        yield key, _record(value, f"{path}, {noun} {key}", path.parent)


def read_list(path: Path) -> Iterator[Record]:
    """The objects in a JSON list. Raises: as `read_object`."""
    values = _json_of(path, list, "list")
    return (_record(value, f"{path}, entry {number}", path.parent) for number, value in enumerate(values, start=1))


def _json_of(path: Path, kind: type[T], noun: str) -> T:
    values = read_json(path)
    if not isinstance(values, kind):
        raise DataError(f"{path} must hold a JSON {noun}, got {type(values).__name__}")
    return values


def is_jsonl(path: Path | None) -> bool:
    """Whether a path names a file with one JSON object per line, plain or compressed by gzip."""
    return path is not None and path.is_file() and path.name.lower().endswith(JSONL_ENDINGS)


def read_lines(path: Path) -> Iterator[Record]:
    """The objects of a JSONL file; blank lines are skipped.

    NaN, which is not JSON but which Python writes, is accepted; infinite numbers are not.

    Raises:
        DataError: unreadable, or a line that is not a JSON object.
    """
    for where, line in _text_lines(path):
        try:
            value = json.loads(line, parse_constant=_constant)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} is not valid JSON: {error}") from error
        yield _record(value, where, path.parent)


def _text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file, perhaps compressed by gzip, each with its place; blank lines are skipped.

    Raises:
        DataError: unreadable.
    """
    packed = path.suffix.lower() == ".gz"
    try:
        # utf-8-sig removes the byte order mark that some editors write
        with gzip.open(path, "rt", encoding="utf-8-sig") if packed else path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}, line {number}", line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _constant(name: str) -> float:
    if name == "NaN":
        return math.nan
    raise ValueError(f"{name} is not a number")


@dataclass(frozen=True)
class Split:
    """The rows of some files; they can be read several times."""

    parts: Sequence[Path]

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record]:
        """The rows, with all columns or those of `columns` that exist. JSONL and CSV files give all columns.

        Raises:
            DataError: another kind of file, or one that cannot be read.
        """
        for part in self.parts:
            if is_jsonl(part):
                yield from read_lines(part)
                continue
            if not part.name.lower().endswith(_TABLE_ENDINGS):
                raise DataError(f"{part} is not a {', '.join(_TABLE_ENDINGS[:-1])} or {_TABLE_ENDINGS[-1]} file")
            source = open_source(part)
            names = [name for name in source.columns if columns is None or name in columns]
            for number, row in enumerate(source.rows(names), start=1):
                where = f"{part}, row {number}"
                if isinstance(row, BadRow):
                    raise DataError(f"{where}: {row.message}")
                yield Record(row, where, source.folder)


def read_table(path: Path) -> Iterator[Record]:
    """The rows of a Parquet, CSV or JSONL file; errors as in `Split.records`."""
    return Split([path]).records()


def find_file(path: Path, *names: str) -> Path:
    """The path itself if it is a file, else the first of these names that is a file in the folder.

    Raises:
        MissingFileError: none of them exists.
    """
    if path.is_file():
        return path
    for name in names:
        if (path / name).is_file():
            return path / name
    raise MissingFileError(f"{path} holds no {' or '.join(names)}")


def image_folder(data: Path, images: Path | None, *names: str) -> Path:
    """The folder of a benchmark's images: `images`, else that of the data; or the first of these folders in it."""
    start = images or data
    return next((start / name for name in names if (start / name).is_dir()), start)


def find_splits(path: Path, config: str = "") -> dict[str, Split]:
    """The splits of a data set that lies in a folder as on the Hub, by name.

    Args:
        path: a folder with Parquet files in it, in its folder `data`, or in that of the configuration. A file belongs
            to the split that it is named after, such as `test-00000-of-00002.parquet`, or to which the metadata of
            README.md assign it.
        config: which of the configurations in README.md.

    Raises:
        DataError: the metadata cannot be read.
    """
    files: dict[str, list[Path]] = {}
    for folder in (path, path / "data", *([path / config] if config else [])):
        for file in sorted(folder.glob("*.parquet")):
            files.setdefault(_SHARD.sub("", file.name.removesuffix(".parquet")), []).append(file)
    files |= _declared(path, config)
    return {split: Split(paths) for split, paths in files.items()}


def _declared(path: Path, config: str) -> dict[str, list[Path]]:
    """Splits of a configuration in the metadata of README.md whose files exist here."""
    if not (path / "README.md").is_file():
        return {}
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
    from huggingface_hub import metadata_load

    try:
        configs = (metadata_load(path / "README.md") or {}).get("configs") or []
        chosen = [entry for entry in configs if not config or entry.get("config_name") == config][:1]
        files = [entry for entry in (chosen[0].get("data_files") if chosen else None) or [] if isinstance(entry, dict)]
        patterns = {str(entry["split"]): entry["path"] for entry in files}
    except (yaml.YAMLError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise DataError(f"cannot read the metadata of {path / 'README.md'}: {error}") from error
    splits = {}
    for split, given in patterns.items():
        names = [given] if isinstance(given, str) else given
        if matches := [file for name in names for file in sorted(path.glob(name)) if file.suffix == ".parquet"]:
            splits[split] = matches
    return splits
