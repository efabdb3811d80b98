"""Reads text, also compressed by gzip, whose schema is known once all rows are read: JSON Lines, and rows in memory."""

from __future__ import annotations

import codecs
import gzip
import hashlib
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
from reward.scoring.sources import BadRow, Source

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonLinesSource", "RowsSource", "TextSource", "json_row", "loaded", "opened", "without_mark"]

TABLE_ROWS = 4096  # rows of a table for Parquet output


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file: decompressed if its name ends in .gz, and in UTF-8 if a mark says that they are UTF-16."""
    try:
        packed = path.suffix.lower() == ".gz"
        with cast(IO[bytes], gzip.open(path)) if packed else path.open("rb") as file:
            if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # type: ignore[attr-defined]
                yield io.BytesIO(file.read().decode("utf-16").encode())  # of Excel or PowerShell, so it is not large
            else:
                yield file
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


class TextSource(Source):
    """What JSON and CSV have in common: untyped rows, from which a schema is inferred for Parquet output."""

    is_indexed = False

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
        with opened(self.path) as file:
            lines = ((number, line) for number, line in enumerate(without_mark(file), start=1) if line.strip())
            for number, line in islice(lines, start, None):
                yield json_row(line, f"line {number}")


class RowsSource(TextSource):
    """Rows that are held in memory, of a file that is read whole, or of a folder."""

    def __init__(self, path: Path, values: Sequence[Any]) -> None:
        super().__init__(path)
        self._values = values
        if path.is_dir():
            self.folder = path
        self._survey()

    def fingerprint(self) -> str:
        if self.path.is_file():
            return super().fingerprint()
        return hashlib.sha256(json.dumps(self._values, default=str).encode()).hexdigest()

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for number, value in enumerate(self._values[start:], start=start + 1):
            yield _row(value, f"entry {number}")


def json_row(line: bytes, where: str) -> dict[str, Any] | BadRow:
    """The JSON object in a line; `where` names the line if it holds none."""
    try:
        return _row(loaded(line.strip()), where)
    except (ValueError, RecursionError) as error:  # ValueError: not JSON, or not Unicode
        return BadRow(f"{where} is not valid JSON: {error}")


def without_mark(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, without the byte order mark that some editors put in front."""
    for number, line in enumerate(file):
        yield line if number else line.removeprefix(b"\xef\xbb\xbf")


def loaded(content: bytes) -> Any:
    """The JSON value in some bytes. Raises ValueError, also for text that no tokenizer takes."""
    value = json.loads(content.decode())  # given bytes, json would look for other encodings in each line
    if b"\\ud" in content.lower():  # perhaps half of a surrogate pair, which no tokenizer and no file takes
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _row(value: Any, where: str) -> dict[str, Any] | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{where} is not a JSON object but {type(value).__name__}")
