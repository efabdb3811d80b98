"""Reads JSON Lines, JSON and CSV, also compressed by gzip: text, whose schema is known once all rows are read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from reward.errors import DataError
from reward.fingerprints import fingerprint_file
from reward.scoring.sources import BadRow, Source, check_names

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CsvSource", "JsonLinesSource", "JsonSource", "json_row", "open_json"]

TABLE_ROWS = 4096  # rows of a table for Parquet output


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in .gz."""
    try:
        packed = path.suffix.lower() == ".gz"
        with cast(IO[bytes], gzip.open(path)) if packed else path.open("rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


class TextSource(Source):
    """What JSON and CSV have in common: untyped rows, from which a schema is inferred for Parquet output."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.folder = path, path.name, path.parent

    def fingerprint(self) -> str:
        return fingerprint_file(self.path)

    @abstractmethod
    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        """All columns of the rows from `start` on."""

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        return self.parsed(start)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        return self.parsed()

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        from reward.scoring.schemas import infer_schema, typed_table

        def chunks() -> Iterator[list[dict[str, Any]]]:
            rows = self.records()
            while chunk := list(islice(rows, TABLE_ROWS)):
                rows_read = [{} if isinstance(row, BadRow) else row for row in chunk]
                yield rows_read if columns is None else [{name: row.get(name) for name in columns} for row in rows_read]

        schema = infer_schema(chunks())
        return (typed_table(chunk, schema) for chunk in chunks())

    def _survey(self) -> None:
        """Reads the file once: the columns are those of all rows, since any row may be the first to have one."""
        columns: dict[str, None] = {}
        rows = 0
        for row in self.parsed():
            if isinstance(row, dict):
                columns.update(dict.fromkeys(row))
            elif not rows and not self.is_csv:  # a CSV file is recognised by its header line
                raise DataError(f"{self.path} is no file of JSON objects: {row.message}")
            rows += 1
        if not rows:
            raise DataError(f"{self.path} holds no rows")
        self.columns, self.num_rows = list(columns), rows


class JsonLinesSource(TextSource):
    """One JSON object a line; blank lines are skipped."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._survey()

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        with _opened(self.path) as file:
            lines = ((number, line) for number, line in enumerate(_without_mark(file), start=1) if line.strip())
            for number, line in islice(lines, start, None):
                yield json_row(line, f"line {number}")


class JsonSource(TextSource):
    """One JSON list of objects, which is held in memory; use JSON Lines for large data."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with _opened(path) as file:
            content = file.read().removeprefix(b"\xef\xbb\xbf")
        try:
            self._values: list[Any] = _loaded(content)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} is not valid JSON: {error}") from error
        self._survey()

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for number, value in enumerate(self._values[start:], start=start + 1):
            yield _row(value, f"entry {number}")


def open_json(path: Path) -> TextSource:
    """Opens a `.json` file, which holds one list of objects or, as some tools write it, one object a line."""
    with _opened(path) as file:
        first = next((line.strip() for line in _without_mark(file) if line.strip()), b"")
    return JsonSource(path) if first.startswith(b"[") else JsonLinesSource(path)


def json_row(line: bytes, where: str) -> dict[str, Any] | BadRow:
    """The JSON object in a line; `where` names the line if it holds none."""
    try:
        return _row(_loaded(line.strip()), where)
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, or not Unicode
        return BadRow(f"{where} is not valid JSON: {error}")


def _without_mark(file: IO[bytes]) -> Iterator[bytes]:
    """The lines, without the byte order mark that some editors put in front."""
    for number, line in enumerate(file):
        yield line if number else line.removeprefix(b"\xef\xbb\xbf")


def _loaded(content: bytes) -> Any:
    value = json.loads(content.decode())  # given bytes, json would look for other encodings in each line
    if b"\\ud" in content.lower():  # perhaps half of a surrogate pair, which no tokenizer and no file takes
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _row(value: Any, where: str) -> dict[str, Any] | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{where} is not a JSON object but {type(value).__name__}")


class CsvSource(TextSource):
    """Comma-separated values with a header line, UTF-8; every value is text and stays as it is."""

    is_csv = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # Long captions exceed the module's limit of 131,072 characters, which can be set only for the whole process.
        csv.field_size_limit(max(csv.field_size_limit(), 2**27))
        header = next(self._lines(), None)
        if header is None:
            raise DataError(f"{path} holds no header line")
        if isinstance(header, BadRow):
            raise DataError(f"the header of {path} cannot be read: {header.message}")
        self.header = header[1]
        check_names(self.header, path)
        self._survey()
        self.columns = self.header  # also where every row is bad

    def _lines(self) -> Iterator[tuple[str, list[str]] | BadRow]:
        """The place of each row in the file, and its fields; blank lines are skipped.

        Raises:
            DataError: a quote is not closed, so that the rows after it would be read as one field.
        """
        with _opened(self.path) as file:
            # Bytes that are not UTF-8 come through as lone surrogates, by which the row is recognised.
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
            reader = csv.reader(text, strict=True)
            while True:
                first = reader.line_num + 1
                try:
                    fields = next(reader, None)
                except csv.Error as error:
                    if reader.line_num > first:
                        raise DataError(
                            f"{self.path}: a quote that opens in line {first} is not closed as it should be: the text "
                            f"up to line {reader.line_num} would be one field ({error}). Close it, or double a quote "
                            'that belongs to the text: ""'
                        ) from error
                    yield BadRow(f"line {first} cannot be read: {error}")
                    continue
                if fields is None:
                    return
                if fields:
                    last = reader.line_num
                    yield (f"line {first}" if last == first else f"the row in lines {first} to {last}"), fields

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for row in islice(self._lines(), start + 1, None):  # the first is the header
            if isinstance(row, BadRow):
                yield row
                continue
            where, fields = row
            if len(fields) != len(self.header):
                yield BadRow(f"{where} has {len(fields)} fields, but the header has {len(self.header)}")
                continue
            try:
                "".join(fields).encode()
            except UnicodeEncodeError:
                yield BadRow(f"{where} is not UTF-8")
                continue
            yield dict(zip(self.header, fields, strict=True))
