"""Rows without types, whose columns are known once all are read: JSON lines, WebDataset tars, and rows in memory."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import tarfile
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from reward.checkpoints.fingerprints import fingerprint_file
from reward.errors import DataError
from reward.scoring.sources import BadRow, Source


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
    except (OSError, EOFError, zlib.error, tarfile.TarError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


class RowSource(Source):
    """Rows whose values have no types but their own."""

    is_indexed = False

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        self.folder = path if path.is_dir() else path.parent
        self._survey()

    def _survey(self) -> None:
        """Reads all rows once: any of them may be the first to have a column."""
        columns: dict[str, None] = {}
        first, self.num_rows = None, 0
        for row in self.parsed():
            self.num_rows += 1
            if isinstance(row, BadRow):
                first = first or row
            else:
                columns.update(dict.fromkeys(row))
        self.columns = list(columns)
        if first is not None and not columns:
            raise DataError(f"{self.name} has no row that can be read. The first: {first.message}")
        if not self.num_rows:
            raise DataError(f"{self.path} holds no rows")

    def fingerprint(self) -> str:
        return fingerprint_file(self.path)

    @abstractmethod
    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        """All columns of the rows from `start` on."""

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        return self.parsed(start)


class JsonLinesSource(RowSource):
    """One JSON object a line; blank lines are skipped."""

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        with opened(self.path) as file:
            yield from json_rows(file, start)


class HeldRows(RowSource):
    """Rows that are held in memory, of a file that is read whole, or of a folder."""

    is_indexed = True

    def __init__(self, path: Path, values: Sequence[Any]) -> None:
        self._values = values
        super().__init__(path)

    def fingerprint(self) -> str:
        if self.path.is_file():
            return super().fingerprint()
        return hashlib.sha256(json.dumps(self._values, default=str).encode()).hexdigest()

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for number, value in enumerate(self._values[start:], start=start + 1):
            yield _row(value, f"entry {number}")


def json_rows(file: IO[bytes], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
    """The objects of JSON lines, from one on."""
    lines = ((number, line) for number, line in enumerate(without_mark(file), start=1) if line.strip())
    for number, line in islice(lines, start, None):
        yield json_row(line, f"line {number}")


def json_row(text: bytes, where: str) -> dict[str, Any] | BadRow:
    """The JSON object in some bytes; `where` names the place if they hold none."""
    try:
        return _row(loaded(text.strip()), where)
    except json.JSONDecodeError as error:
        return BadRow(f"{where} is not valid JSON: {error.msg} (character {error.pos + 1})")
    except (ValueError, RecursionError) as error:  # ValueError: not Unicode
        return BadRow(f"{where} is not valid JSON: {error}")


def without_mark(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, without the byte order mark that some editors put in front."""
    for number, line in enumerate(file):
        yield line if number else line.removeprefix(codecs.BOM_UTF8)


def loaded(content: bytes) -> Any:
    """The JSON value in some bytes. Raises ValueError, also for text that no tokenizer takes."""
    value = json.loads(content.decode())  # given bytes, json would look for other encodings in each line
    if b"\\ud" in content.lower():  # perhaps half of a surrogate pair, which no tokenizer and no file takes
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _row(value: Any, where: str) -> dict[str, Any] | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{where} is not a JSON object but {type(value).__name__}")
