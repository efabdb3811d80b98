"""Reads tables of text: CSV as any program writes it, and TSV, in which a quote is a character like any other.

Every cell is the text that was written: `1.10`, `NA` and `True` are no number, no gap and no truth before somebody
needs them as such. Python's csv module finds the rows: pyarrow and pandas take all up to the end of the file for one
field where a quote is not closed, and lose the place of a bad row.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeAlias

from reward.data.image_files import is_image_name
from reward.errors import DataError
from reward.scoring.row_sources import RowSource, opened
from reward.scoring.sources import BadRow, check_names

_SEPARATORS = (",", "\t", ";", "|")  # of CSV; the third is Excel's in many languages, the last of Flickr30k
_NUMBER_OF_CAPTION = re.compile(r"#\d+$")  # "1000268201.jpg#0" in Flickr8k.token.txt
_QUOTED_AS_CSV = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')  # a field of a TSV file that a CSV writer has written

# Where a row is, for messages, and its fields.
_Row: TypeAlias = "tuple[str, list[str]] | BadRow"


def read_csv(path: Path, names: Sequence[str] | None = None) -> TextTable:
    """The rows of a file of text.

    Args:
        path: a `.tsv` file has tabs between fields; any other is CSV, whose header tells what stands between them.
        names: of the columns of a file without a header line, which is read as TSV; its first column holds images, as
            in Flickr8k.token, with the number of the caption.
    """
    return TextTable(path, names)


class TextTable(RowSource):
    """A table of text in UTF-8, or UTF-16 with its mark, see `read_csv`.

    A blank line is no row, but in a table of one column, where it is an empty cell.
    """

    is_csv = True

    def __init__(self, path: Path, names: Sequence[str] | None = None) -> None:
        self._names = names
        self._is_tsv = names is not None or path.name.lower().removesuffix(".gz").endswith(".tsv")
        super().__init__(path)

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        with opened(self.path) as file:
            rows = _tsv_rows(self.path, file) if self._is_tsv else _csv_rows(self.path, file)
            names = self._names or self._header(next(rows, None))
            whole = (row for row in rows if isinstance(row, BadRow) or row[1] or len(names) == 1)
            for row in islice(whole, start, None):
                yield row if isinstance(row, BadRow) else self._cells(*row, names)

    def _header(self, row: _Row | None) -> list[str]:
        if row is None:
            raise DataError(f"{self.path} holds no header line")
        if isinstance(row, BadRow):
            raise DataError(f"the header of {self.path} cannot be read: {row.message}")
        names = [name.strip() for name in row[1]]
        if not _is_unicode(names):
            raise DataError(f"the header of {self.path} is not UTF-8{_remedy(self.path)}")
        if names and is_image_name(names[0]):
            raise DataError(f"{self.path} begins with data: put a line with the names of its columns in front")
        check_names(names, self.path)
        return names

    def _cells(self, where: str, fields: list[str], names: Sequence[str]) -> dict[str, Any] | BadRow:
        fields = fields or [""]  # of a blank line
        if len(fields) != len(names):
            return BadRow(f"{where} has {len(fields)} fields, but the header has {len(names)}")
        if not _is_unicode(fields):
            return BadRow(f"{where} is not UTF-8{_remedy(self.path)}")
        if self._names:
            fields[0] = _NUMBER_OF_CAPTION.sub("", fields[0])
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
    skipped = 0
    if head.startswith("sep="):  # by Excel, for itself
        head, skipped = text.readline(), 1
    if not head:
        return
    bare = re.sub(r'"[^"]*"', "", head)
    separator = max(_SEPARATORS, key=bare.count)
    is_spaced = f"{separator} " in bare  # "image, caption": the space is no part of a cell
    reader = csv.reader(chain([head], text), delimiter=separator, skipinitialspace=is_spaced, strict=True)
    while True:
        first = reader.line_num + skipped + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            last = reader.line_num + skipped
            if last > first:  # the rows after it would be read as one field
                raise DataError(
                    f"{path}: a quote that opens in line {first} is not closed as it should be: the text up to line "
                    f'{last} would be one field ({error}). Close it, or double a quote that belongs to the text: ""'
                ) from error
            yield BadRow(f"line {first} cannot be read: {error}")
            continue
        if fields is None:
            return
        last = reader.line_num + skipped
        yield (f"line {first}" if last == first else f"the row in lines {first} to {last}"), fields


def _text(file: IO[bytes], newline: str) -> io.TextIOWrapper:
    # Bytes that are not UTF-8 come as lone surrogates, by which a row is recognised.
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _remedy(path: Path) -> str:
    return (
        f": if a program for Windows wrote it, convert it by `iconv -f cp1252 -t utf-8 {path.name} > utf8.csv`, "
        "or save it as CSV UTF-8"
    )


def _is_unicode(fields: Sequence[str]) -> bool:
    try:
        "".join(fields).encode()
        return True
    except UnicodeEncodeError:
        return False
