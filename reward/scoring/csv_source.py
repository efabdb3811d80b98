"""Reads tables of text: CSV as any program writes it, TSV, and the captions of Flickr8k, which have no header line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.image_files import IMAGE_ENDINGS
from reward.samples import column_names
from reward.scoring.sources import BadRow, check_names
from reward.scoring.text_sources import TextSource, opened

__all__ = ["CsvSource"]

_SEPARATORS = (",", "\t", ";", "|")  # the second of Excel in many languages, the last of Flickr30k
_MISSING = {"", "nan", "NaN", "NA", "null", "None"}  # in a column of numbers
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})")  # "007" is a name
_REAL = re.compile(r"[-+]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_TRUTH = {"true": True, "false": False, "True": True, "False": False}
# Captions and names of images stay text, even where all of them are numbers.
_TEXTS = {
    name for role in ("candidate", "candidates", "references", "question", "image") for name in column_names(role)
}
_NUMBER_OF_CAPTION = re.compile(r"#\d+$")  # "1000268201.jpg#0" in Flickr8k.token.txt


class CsvSource(TextSource):
    """Values between commas, tabs, semicolons or bars below a header line; UTF-8, or UTF-16 with its mark.

    A column that holds numbers only, or only true and false, or only lists in JSON, is read so; an empty cell there is
    None. All other cells stay text as they are. Without a header line, the first of two columns holds images.
    """

    is_csv = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # Long captions exceed the module's limit of 131,072 characters, which can be set only for the whole process.
        csv.field_size_limit(max(csv.field_size_limit(), 2**27))
        with opened(path) as file:
            lines = _text(file)
            first = lines.readline()
            self._skipped = int(first.startswith("sep="))  # which Excel writes for itself
            head = lines.readline() if self._skipped else first
        bare = re.sub(r'"[^"]*"', "", head)
        self._separator = first[4] if self._skipped and first[4:5] in _SEPARATORS else max(_SEPARATORS, key=bare.count)
        self._is_spaced = bool(re.search(re.escape(self._separator) + r" ", bare))  # "image, caption"
        self._has_quotes = True
        self._readers: dict[str, Callable[[str], Any]] = {}
        self.header = self._header(path)
        check_names(self.header, path)
        self._survey()
        self.columns = self.header  # also where every row is bad

    def _header(self, path: Path) -> list[str]:
        self._has_header = True
        first = next(self._lines(), None)
        if first is None:
            raise DataError(f"{path} holds no header line")
        if isinstance(first, BadRow):
            raise DataError(f"the header of {path} cannot be read: {first.message}")
        names = first[1]
        if not _is_unicode(names):
            raise DataError(f"the header of {path} is not UTF-8{self._remedy}")
        if not _NUMBER_OF_CAPTION.sub("", names[0]).lower().endswith(IMAGE_ENDINGS):
            return [name.strip() for name in names]
        if len(names) != 2:
            raise DataError(f"{path} begins with data: put a line with the names of its columns in front")
        self._has_header, self._has_quotes = False, self._separator != "\t"
        return ["image", "caption"]

    @property
    def _remedy(self) -> str:
        return (
            f": if a program for Windows wrote it, convert it by `iconv -f cp1252 -t utf-8 {self.name} > utf8.csv`, "
            "or save it as CSV UTF-8"
        )

    def _lines(self) -> Iterator[tuple[str, list[str]] | BadRow]:
        """The place of each row in the file, and its fields; blank lines are skipped.

        Raises:
            DataError: a quote is not closed, so that the rows after it would be read as one field.
        """
        with opened(self.path) as file:
            text = _text(file)
            for _ in range(self._skipped):
                text.readline()
            quoting: dict[str, Any] = {} if self._has_quotes else {"quoting": csv.QUOTE_NONE}
            spaced = self._is_spaced and self._has_header
            reader = csv.reader(text, strict=True, delimiter=self._separator, skipinitialspace=spaced, **quoting)
            while True:
                first = reader.line_num + self._skipped + 1
                try:
                    fields = next(reader, None)
                except csv.Error as error:
                    last = reader.line_num + self._skipped
                    if last > first:
                        raise DataError(
                            f"{self.path}: a quote that opens in line {first} is not closed as it should be: the text "
                            f"up to line {last} would be one field ({error}). Close it, or double a quote "
                            'that belongs to the text: ""'
                        ) from error
                    yield BadRow(f"line {first} cannot be read: {error}")
                    continue
                if fields is None:
                    return
                if fields:
                    last = reader.line_num + self._skipped
                    yield (f"line {first}" if last == first else f"the row in lines {first} to {last}"), fields

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for row in islice(self._lines(), start + self._has_header, None):
            if isinstance(row, BadRow):
                yield row
                continue
            where, fields = row
            if len(fields) != len(self.header):
                yield BadRow(f"{where} has {len(fields)} fields, but the header has {len(self.header)}")
                continue
            if not _is_unicode(fields):
                yield BadRow(f"{where} is not UTF-8{self._remedy}")
                continue
            if not self._has_header:
                fields[0] = _NUMBER_OF_CAPTION.sub("", fields[0])
            elif self._is_spaced:
                fields = [field.strip() for field in fields]
            values: dict[str, Any] = dict(zip(self.header, fields, strict=True))
            for name, read in self._readers.items():
                values[name] = None if values[name] in _MISSING else read(values[name])
            yield values

    def _survey(self) -> None:
        """Counts the rows, and finds the columns that are no text: every cell must be of one kind."""
        possible = {name: list(self._kinds()) for name in self.header if name not in _TEXTS}
        filled, self.num_rows = set(), 0
        for row in self.parsed():
            self.num_rows += 1
            if isinstance(row, BadRow):
                continue
            for name in [name for name in possible if row[name] not in _MISSING]:
                filled.add(name)
                possible[name] = [read for read in possible[name] if _reads(read, row[name])]
                if not possible[name]:
                    del possible[name]
        if not self.num_rows:
            raise DataError(f"{self.path} holds no rows")
        self._readers = {name: kinds[0] for name, kinds in possible.items() if name in filled}

    def _kinds(self) -> tuple[Callable[[str], Any], ...]:
        return (_whole, _real_with_comma if self._separator == ";" else _real, _TRUTH.__getitem__, _json_list)


def _text(file: Any) -> io.TextIOWrapper:
    """The text of a file. Bytes that are not UTF-8 come as lone surrogates, by which a row is recognised."""
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _is_unicode(fields: list[str]) -> bool:
    try:
        "".join(fields).encode()
        return True
    except UnicodeEncodeError:
        return False


def _reads(read: Callable[[str], Any], cell: str) -> bool:
    try:
        read(cell)
        return True
    except (ValueError, KeyError, RecursionError):
        return False


def _whole(cell: str) -> int:
    if not _WHOLE.fullmatch(cell):
        raise ValueError(cell)
    return int(cell)


def _real(cell: str) -> float:
    if not _REAL.fullmatch(cell):
        raise ValueError(cell)
    return float(cell)


def _real_with_comma(cell: str) -> float:
    """A number as Excel writes it where semicolons separate the cells."""
    return _real(cell.replace(",", ".", 1))


def _json_list(cell: str) -> list[Any]:
    value = json.loads(cell) if cell.startswith("[") else None
    if not isinstance(value, list):
        raise ValueError(cell)
    return value
