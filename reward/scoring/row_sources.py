"""Readers of rows whose values have no types: JSON Lines, and tables of text.

CSV is read as any program writes it, and TSV, in which a quote is a character like any other. Every cell is the text
that was written: `1.10`, `NA` and `True` are no number, no gap and no truth before somebody needs them as such.
Python's csv module finds the rows: pyarrow and pandas take all up to the end of the file for one field where a quote is
not closed, and lose the place of a bad row.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from reward.checkpoints.fingerprints import fingerprint_file
from reward.data.image_files import is_image_name
from reward.errors import DataError
from reward.scoring.sources import BadRow, Source, check_names

_SEPARATORS = (",", "\t", ";", "|")  # of CSV; the third is Excel's in many languages, the last of Flickr30k
_QUOTED_AS_CSV = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # a field of a TSV file that a CSV writer has written

_DECODER = json.JSONDecoder()

# Where a row is, for messages, and its fields.
_Row: TypeAlias = "tuple[str, list[str]] | BadRow"


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
            elif not row.keys() <= columns.keys():
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
    row = 0
    for number, line in enumerate(without_mark(file), start=1):
        line = line.strip()
        if not line:
            continue
        if row >= start:
            yield json_row(line, f"line {number}")
        row += 1


def json_row(text: bytes, where: str) -> dict[str, Any] | BadRow:
    """The JSON object in some bytes; `where` names the place if they hold none."""
    try:
        return _row(loaded(text), where)
    except json.JSONDecodeError as error:
        return BadRow(f"{where} is not valid JSON: {error.msg} (character {error.pos + 1})")
    except (ValueError, RecursionError) as error:  # ValueError: not Unicode
        return BadRow(f"{where} is not valid JSON: {error}")


def without_mark(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, without the byte order mark that some editors put in front."""
    for number, line in enumerate(file):
        yield line if number else line.removeprefix(codecs.BOM_UTF8)


def is_unicode(text: str) -> bool:
    """Whether no lone surrogate is in a text: what comes in place of bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def loaded(content: bytes) -> Any:
    """The JSON value in some bytes without white space around. Raises ValueError, also for what no tokenizer takes."""
    text = content.decode()
    value, end = _DECODER.raw_decode(text)  # `json.loads` would look for encodings and white space in each line
    if end != len(text):
        _DECODER.decode(text)  # which says what follows the value
    if b"\\ud" in content or b"\\uD" in content:  # perhaps half of a surrogate pair, which no tokenizer takes
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _row(value: Any, where: str) -> dict[str, Any] | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{where} is not a JSON object but {type(value).__name__}")


class TextTable(RowSource):
    """A table of text in UTF-8, or UTF-16 with its mark.

    A blank line is no row, but in a table of one column, where it is an empty cell.

    Args:
        path: a `.tsv` file has tabs between fields; any other is CSV, whose header tells what stands between them.
    """

    is_csv = True

    def __init__(self, path: Path) -> None:
        self._is_tsv = path.name.lower().removesuffix(".gz").endswith(".tsv")
        super().__init__(path)

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        with opened(self.path) as file:
            rows = _tsv_rows(self.path, file) if self._is_tsv else _csv_rows(self.path, file)
            names = self._header(next(rows, None))
            whole = (row for row in rows if isinstance(row, BadRow) or row[1] or len(names) == 1)
            for row in islice(whole, start, None):
                yield row if isinstance(row, BadRow) else self._cells(*row, names)

    def _header(self, row: _Row | None) -> list[str]:
        if row is None:
            raise DataError(f"{self.path} holds no header line")
        if isinstance(row, BadRow):
            raise DataError(f"the header of {self.path} cannot be read: {row.message}")
        names = [name.strip() for name in row[1]]
        if not is_unicode("".join(names)):
            raise DataError(f"the header of {self.path} is not UTF-8{_remedy(self.path)}")
        if names and is_image_name(names[0]):
            raise DataError(f"{self.path} begins with data: put a line with the names of its columns in front")
        check_names(names, self.path)
        return names

    def _cells(self, where: str, fields: list[str], names: Sequence[str]) -> dict[str, Any] | BadRow:
        fields = fields or [""]  # of a blank line
        if len(fields) != len(names):
            return BadRow(f"{where} has {len(fields)} fields, but the header has {len(names)}")
        if not is_unicode("".join(fields)):
            return BadRow(f"{where} is not UTF-8{_remedy(self.path)}")
        return dict(zip(names, fields, strict=True))


def _tsv_rows(path: Path, file: IO[bytes]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(_text(file, newline="\n"), start=1):
        line = line.removesuffix("\n").removesuffix("\r")
        fields = line.split("\t") if line else []
        if '""' in line and any(map(_QUOTED_AS_CSV.fullmatch, fields)):
            raise DataError(
                f"{path}: line {number} has a field in quotes as CSV writes it, but in TSV a quote is a character: "
                f"name the file {path.name.partition('.')[0]}.csv, in which there may be tabs between fields, too"
            )
        yield f"line {number}", fields


def _csv_rows(path: Path, file: IO[bytes]) -> Iterator[_Row]:
    # Long captions exceed the module's limit of 131,072 characters, which can be set only for the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), 2**27))
    text = _text(file, newline="")
    head = text.readline()
    if not head:
        return
    bare = re.sub(r'"[^"]*"', "", head)
    separator = max(_SEPARATORS, key=bare.count)
    is_spaced = f"{separator} " in bare  # "image, caption": the space is no part of a cell
    reader = csv.reader(chain([head], text), delimiter=separator, skipinitialspace=is_spaced, strict=True)
    while True:
        first = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            last = reader.line_num
            if last > first:  # the rows after it would be read as one field
                raise DataError(
                    f"{path}: a quote that opens in line {first} is not closed as it should be: the text up to line "
                    f'{last} would be one field ({error}). Close it, or double a quote that belongs to the text: ""'
                ) from error
            yield BadRow(f"line {first} cannot be read: {error}")
            continue
        if fields is None:
            return
        last = reader.line_num
        yield (f"line {first}" if last == first else f"the row in lines {first} to {last}"), fields


def _text(file: IO[bytes], newline: str) -> io.TextIOWrapper:
    # Bytes that are not UTF-8 come as lone surrogates, by which a row is recognised.
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _remedy(path: Path) -> str:
    return (
        f": if a program for Windows wrote it, convert it by `iconv -f cp1252 -t utf-8 {path.name} > utf8.csv`, "
        "or save it as CSV UTF-8"
    )
