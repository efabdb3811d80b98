"""Reads data files and data sets row by row: JSONL, CSV, Parquet, and Hugging Face data sets on disk or in memory."""

from __future__ import annotations

import csv
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from reward.errors import DataError
from reward.scoring.fingerprints import fingerprint_file

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadRow", "Source", "open_source"]

HEAD_ROWS = 100  # rows looked at to learn which columns a JSONL file has
COUNT_BELOW = 256 * 2**20  # bytes of text up to which rows are counted beforehand, which takes about a second
TABLE_ROWS, TABLE_BYTES = 4096, 32 * 2**20  # what is read at a time, at most; rows may hold whole images


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be parsed. It keeps its place in the output, with an error."""

    message: str


class Source(ABC):
    """Rows of a data file or data set, in order, as often as wanted.

    Attributes:
        name: for messages.
        columns: the names of the columns.
        num_rows: how many rows there are, None where counting would take long.
        folder: where relative image paths start.
        is_csv: whether all values are text.
    """

    name: str
    columns: list[str]
    num_rows: int | None
    folder: Path
    is_csv = False

    @abstractmethod
    def fingerprint(self) -> str:
        """Names the content: equal rows give equal fingerprints, in every process."""

    @abstractmethod
    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        """The given columns of the rows from row number `start` on, for scoring."""

    @abstractmethod
    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        """All rows with all columns that are kept, for the output. Encoded images are not kept."""

    @abstractmethod
    def tables(self) -> Iterator[pa.Table]:
        """The same as `records`, as Arrow tables of one schema; a bad row is all null."""


class TextSource(Source):
    """What JSONL and CSV have in common: untyped rows, of which a schema is made for Parquet output."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.folder = path, path.name, path.parent
        self.num_rows = None

    def fingerprint(self) -> str:
        return fingerprint_file(self.path)

    @abstractmethod
    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        """All columns of the rows from `start` on."""

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        return self.parsed(start)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        return self.parsed()

    def tables(self) -> Iterator[pa.Table]:
        from reward.scoring.schemas import infer_schema, typed_table

        def chunks() -> Iterator[list[dict[str, Any]]]:
            rows = self.parsed()
            while chunk := list(islice(rows, TABLE_ROWS)):
                yield [{} if isinstance(row, BadRow) else row for row in chunk]

        schema = infer_schema(chunks())
        return (typed_table(chunk, schema) for chunk in chunks())


class JsonLinesSource(TextSource):
    """One JSON object a line; blank lines are no rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        head = list(islice(self.parsed(), HEAD_ROWS))
        if not head:
            raise DataError(f"{path} holds no rows")
        if isinstance(head[0], BadRow):
            raise DataError(f"{path} is no JSONL file: {head[0].message}")
        self.columns = list(dict.fromkeys(name for row in head if isinstance(row, dict) for name in row))
        if path.stat().st_size <= COUNT_BELOW:
            self.num_rows = sum(1 for _ in self._lines())

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark some editors put in front
                if line.strip():
                    yield number, line

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for number, line in islice(self._lines(), start, None):
            try:
                value = json.loads(line.strip())
                if b"\\ud" in line.lower():  # perhaps half of a surrogate pair, which no tokenizer and no file takes
                    json.dumps(value, ensure_ascii=False).encode()
            except (ValueError, RecursionError) as error:  # ValueError: not JSON, or not Unicode
                yield BadRow(f"line {number} is not valid JSON: {error}")
                continue
            yield (
                value
                if isinstance(value, dict)
                else BadRow(f"line {number} is not a JSON object but {type(value).__name__}")
            )


class CsvSource(TextSource):
    """Comma-separated values with a header line, UTF-8; every value is text and stays as it is."""

    is_csv = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # Long captions exceed the module's limit of 131,072 characters, which can only be set for the whole process.
        csv.field_size_limit(max(csv.field_size_limit(), 2**27))
        with self._open() as file:
            self.columns = next(csv.reader(file), [])
        if not self.columns:
            raise DataError(f"{path} holds no header line")
        doubled = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if doubled:
            raise DataError(f"{path} has several columns named {doubled[0]!r}; columns need different names")
        if next(self.parsed(), None) is None:
            raise DataError(f"{path} holds no rows")
        if path.stat().st_size <= COUNT_BELOW:
            self.num_rows = sum(1 for _ in self.parsed())

    def _open(self) -> TextIO:
        # Bytes that are not UTF-8 come through as lone surrogates, by which the row is recognised.
        return self.path.open(newline="", encoding="utf-8-sig", errors="surrogateescape")

    def _checked(self, reader: Any) -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            raise DataError(f"{self.path} cannot be read after line {reader.line_num}: {error}") from error

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        with self._open() as file:
            reader = csv.reader(file)
            next(reader)
            for values in islice(filter(None, self._checked(reader)), start, None):
                where = f"the row that ends in line {reader.line_num}"
                if len(values) != len(self.columns):
                    yield BadRow(f"{where} has {len(values)} fields, but the header has {len(self.columns)}")
                    continue
                try:
                    "".join(values).encode()
                except UnicodeEncodeError:
                    yield BadRow(f"{where} is not UTF-8")
                    continue
                yield dict(zip(self.columns, values, strict=True))


class ArrowSource(Source):
    """What Parquet and Hugging Face data sets have in common: Arrow tables with a schema."""

    @abstractmethod
    def _read(self, columns: Sequence[str], start: int) -> Iterator[pa.Table]:
        """Tables of the given columns from row `start` on."""

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for table in self._read(columns, start):
            yield from table.to_pylist()

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        for table in self.tables():
            yield from table.to_pylist()

    def tables(self) -> Iterator[pa.Table]:
        from reward.scoring.schemas import without_images

        return map(without_images, self._read(self.columns, 0))


class ParquetSource(ArrowSource):
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path, self.name, self.folder = path, path.name, path.parent
        try:
            self.file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} cannot be read as Parquet: {error}") from error
        self.columns = self.file.schema_arrow.names
        self.num_rows = self.file.metadata.num_rows
        if not self.num_rows:
            raise DataError(f"{path} holds no rows")
        groups = range(self.file.num_row_groups)
        size = sum(self.file.metadata.row_group(group).total_byte_size for group in groups)
        self.at_a_time = _rows_at_a_time(size, self.file.metadata.num_rows)

    def fingerprint(self) -> str:
        return fingerprint_file(self.path)

    def _read(self, columns: Sequence[str], start: int) -> Iterator[pa.Table]:
        import pyarrow as pa

        groups, first = [], 0  # skip whole row groups before `start`
        for group in range(self.file.num_row_groups):
            rows = self.file.metadata.row_group(group).num_rows
            if first + rows <= start:
                first += rows
            else:
                groups.append(group)
        skip = start - first
        try:
            for batch in self.file.iter_batches(self.at_a_time, row_groups=groups, columns=list(columns)):
                if skip < batch.num_rows:
                    yield pa.Table.from_batches([batch.slice(skip)])
                skip = max(0, skip - batch.num_rows)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path} is damaged: {error}") from error


class DatasetSource(ArrowSource):
    """A `datasets.Dataset`; its images stay encoded until they are scored."""

    def __init__(self, dataset: Any, *, name: str, folder: Path) -> None:
        self.dataset = dataset.with_format("arrow")
        self.name, self.folder = name, folder
        self.columns = list(dataset.column_names)
        self.num_rows = len(dataset)
        if not self.num_rows:
            raise DataError(f"{name} holds no rows")

    def fingerprint(self) -> str:
        import hashlib

        count = self.num_rows or 0
        digest = hashlib.sha256(f"{count} {self.dataset.features}".encode())
        # Its own fingerprint is random after some transforms, so hash rows: all of a small set, 1,024 of a large one.
        picked = sorted({position * (count - 1) // 1023 for position in range(1024)})
        for row in self.dataset.select(picked).iter(64):
            digest.update(repr(row.to_pylist()).encode())
        return digest.hexdigest()

    def _read(self, columns: Sequence[str], start: int) -> Iterator[pa.Table]:
        rows = self.dataset.select(range(start, len(self.dataset))).select_columns(list(columns))
        return iter(rows.iter(_rows_at_a_time(self.dataset.data.nbytes, self.dataset.data.num_rows)))


def _rows_at_a_time(size: int, rows: int) -> int:
    return max(1, min(TABLE_ROWS, TABLE_BYTES * rows // max(1, size)))


def open_source(data: Any) -> Source:
    """Opens a data file, a data set folder, or a data set object.

    Args:
        data: path of a `.jsonl`, `.csv` or `.parquet` file, of a folder written by `Dataset.save_to_disk`,
            or a `datasets.Dataset`.

    Raises:
        DataError: missing, empty, unreadable or of another kind.
    """
    if "datasets" in sys.modules:
        import datasets

        if isinstance(data, datasets.Dataset):
            return DatasetSource(data, name="the data set", folder=Path())
        if isinstance(data, (datasets.DatasetDict, datasets.IterableDatasetDict)):
            raise DataError(f"this is a data set of several splits; pass one of them: {', '.join(data)}")
    if not isinstance(data, (str, os.PathLike)):
        raise DataError(f"data must be a path or a datasets.Dataset, got {type(data).__name__}")
    path = Path(data)
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    kinds: dict[str, type[JsonLinesSource] | type[CsvSource] | type[ParquetSource]] = {
        ".jsonl": JsonLinesSource,
        ".ndjson": JsonLinesSource,
        ".csv": CsvSource,
        ".parquet": ParquetSource,
    }
    if path.suffix.lower() not in kinds:
        raise DataError(f"{path} has no known suffix; known: {', '.join(kinds)}, or a folder of Dataset.save_to_disk")
    try:
        return kinds[path.suffix.lower()](path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _open_folder(path: Path) -> Source:
    splits = path / "dataset_dict.json"
    if splits.is_file():
        parts = [str(path / name) for name in json.loads(splits.read_text())["splits"]]
        raise DataError(f"{path} holds several splits; pass one of them: {', '.join(parts)}")
    if not (path / "state.json").is_file():
        raise DataError(f"{path} is no data set folder: it lacks the state.json that Dataset.save_to_disk writes")
    import datasets

    try:
        dataset = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise DataError(f"{path} cannot be read as a data set: {error}") from error
    return DatasetSource(dataset, name=path.name, folder=path)
