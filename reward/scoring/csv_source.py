"""Reads tables of text: CSV as any program writes it, TSV, and the captions of Flickr8k, which have no header line.

Python's csv module finds the rows: pyarrow and pandas take all up to the end of the file for one field where a quote is
not closed, and lose the place of a bad row. Arrow holds the rows, and tells what is a number.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.data.image_files import is_image_name
from reward.data.samples import column_names
from reward.errors import DataError
from reward.scoring.arrow_sources import TableSource
from reward.scoring.row_sources import opened
from reward.scoring.sources import BadRow, check_names

if TYPE_CHECKING:
    import pyarrow as pa

_SEPARATORS = (",", "\t", ";", "|")  # the second of Excel in many languages, the last of Flickr30k
_CHUNK = 16384  # rows that become a piece of a table
_MISSING = ("", "nan", "NaN", "NA", "null", "None")  # in a column of numbers
_WHOLE = r"^-?(0|[1-9]\d{0,17})$"  # "007" is a name
_REAL = r"^[-+]?((0|[1-9]\d{0,17})(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"
# Captions and names of images stay text, even where all of them are numbers.
_TEXTS = {
    name for role in ("candidate", "candidates", "references", "question", "image") for name in column_names(role)
}
_NUMBER_OF_CAPTION = re.compile(r"#\d+$")  # "1000268201.jpg#0" in Flickr8k.token.txt


def read_csv(path: Path, names: list[str] | None = None) -> TableSource:
    """Reads values between commas, tabs, semicolons or bars below a header line; UTF-8, or UTF-16 with its mark.

    A column that holds numbers only, or only true and false, or only lists in JSON, is read so; an empty cell there is
    null. All other cells stay text as they are.

    Args:
        path: the file.
        names: of the columns of a file without a header line, of which the first holds images as in Flickr8k.token,
            with the number of the caption; None takes them from the header line.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # Long captions exceed the module's limit of 131,072 characters, which can be set only for the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), 2**27))
    with opened(path) as file:
        # Bytes that are not UTF-8 come as lone surrogates, by which a row is recognised.
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        head = text.readline()
        is_marked = head.startswith("sep=")  # by Excel, for itself
        head = text.readline() if is_marked else head
        bare = re.sub(r'"[^"]*"', "", head)
        separator = max(_SEPARATORS, key=bare.count)
        first = next(csv.reader([head], delimiter=separator), None) or [""]
        has_header = names is None
        if has_header and is_image_name(_NUMBER_OF_CAPTION.sub("", first[0])):
            raise DataError(f"{path} begins with data: put a line with the names of its columns in front")
        is_spaced = has_header and f"{separator} " in bare  # "image, caption"
        quoting = csv.QUOTE_NONE if separator == "\t" and not has_header else csv.QUOTE_MINIMAL
        form: dict[str, Any] = {"delimiter": separator, "skipinitialspace": is_spaced, "quoting": quoting}
        rows = _rows(path, csv.reader(chain([head], text), strict=True, **form), int(is_marked))
        names = names or _header(path, rows)
        check_names(names, path)
        bad: dict[int, str] = {}
        cells, pieces = _cells(path, rows, len(names), bad), []
        while chunk := list(islice(cells, _CHUNK)):
            pieces.append(pa.table([pa.array(column, pa.string()) for column in zip(*chunk, strict=True)], names))
    if not pieces:
        raise DataError(f"{path} holds no rows")
    table = pa.concat_tables(pieces)
    for place, name in enumerate(names):
        column = pc.utf8_trim_whitespace(table.column(place)) if is_spaced else table.column(place)
        if not has_header and place == 0:
            column = pc.replace_substring_regex(column, _NUMBER_OF_CAPTION.pattern, "")
        table = table.set_column(place, name, column if name in _TEXTS else _typed(column, separator == ";"))
    return TableSource(path, table, bad)


def _rows(path: Path, reader: Any, skipped: int) -> Iterator[tuple[str, list[str]] | BadRow]:
    """The place of each row in the file, and its fields; blank lines are skipped."""
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
        if fields:
            last = reader.line_num + skipped
            yield (f"line {first}" if last == first else f"the row in lines {first} to {last}"), fields


def _header(path: Path, rows: Iterator[tuple[str, list[str]] | BadRow]) -> list[str]:
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path} holds no header line")
    if isinstance(first, BadRow):
        raise DataError(f"the header of {path} cannot be read: {first.message}")
    if not _is_unicode(first[1]):
        raise DataError(f"the header of {path} is not UTF-8{_remedy(path)}")
    return [name.strip() for name in first[1]]


def _cells(
    path: Path, rows: Iterator[tuple[str, list[str]] | BadRow], width: int, bad: dict[int, str]
) -> Iterator[Sequence[str | None]]:
    """The cells of each row; none of a bad one, of which `bad` tells."""
    for place, row in enumerate(rows):
        if isinstance(row, BadRow):
            bad[place] = row.message
        elif len(row[1]) != width:
            bad[place] = f"{row[0]} has {len(row[1])} fields, but the header has {width}"
        elif not _is_unicode(row[1]):
            bad[place] = f"{row[0]} is not UTF-8{_remedy(path)}"
        yield [None] * width if place in bad else row[1]  # type: ignore[index]


def _remedy(path: Path) -> str:
    return (
        f": if a program for Windows wrote it, convert it by `iconv -f cp1252 -t utf-8 {path.name} > utf8.csv`, "
        "or save it as CSV UTF-8"
    )


def _is_unicode(fields: list[str]) -> bool:
    try:
        "".join(fields).encode()
        return True
    except UnicodeEncodeError:
        return False


def _typed(column: pa.ChunkedArray, has_commas: bool) -> pa.ChunkedArray:
    """The column as numbers, truth or lists if all its cells are; a decimal comma is Excel's beside semicolons."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.if_else(pc.is_in(column, pa.array(_MISSING)), pa.scalar(None, pa.string()), column)
    if known.null_count == len(known):
        return column
    points = pc.replace_substring(known, ",", ".", max_replacements=1) if has_commas else known
    for cells, pattern, kind in ((known, _WHOLE, pa.int64()), (points, _REAL, pa.float64())):
        if pc.all(pc.match_substring_regex(cells, pattern)).as_py():
            return cells.cast(kind)
    if pc.all(pc.is_in(known, pa.array(["true", "false", "True", "False", None]))).as_py():
        return pc.utf8_lower(known).cast(pa.bool_())
    if pc.all(pc.starts_with(known, "[")).as_py():
        try:
            lists = json.loads(f"[{','.join(cell or 'null' for cell in known.to_pylist())}]")
            return pa.chunked_array([pa.array(lists)]) if len(lists) == len(known) else column
        except (ValueError, TypeError, OverflowError, RecursionError):  # also pyarrow's, for lists of several kinds
            return column
    return column
