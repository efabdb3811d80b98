"""The interface of all readers of data: rows in order, as often as needed; and the readers of rows without types."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import tarfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from reward.checkpoints.fingerprints import fingerprint_file
from reward.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be parsed. It keeps its place in the output, with an error."""

    message: str


class Source(ABC):
    """Rows of a data file or data set, in order, as often as needed.

    Attributes:
        name: for messages.
        columns: the names of the columns.
        num_rows: how many rows there are.
        folder: where relative image paths start.
        is_csv: whether captions are text, also where they are lists.
        is_indexed: whether a row is found without reading those before it.
        record_columns: the names of the records' columns.
        schema: types of the records' columns, but for those that are made of others; None where values have no types
            but their own.
    """

    name: str
    columns: list[str]
    num_rows: int
    folder: Path
    is_csv = False
    is_indexed = True
    schema: pa.Schema | None = None

    @property
    def record_columns(self) -> list[str]:
        return self.columns if self.schema is None else list(self.schema.names)

    def drop_images(self, image: str | None) -> None:  # noqa: B027 - most records hold none
        """Leaves encoded images out of the records from now on, but for their paths; `image` is the column read."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the content: equal rows give equal fingerprints, in every process."""

    @abstractmethod
    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        """The given columns of the rows from row number `start` on, for scoring."""

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        """All rows for the output, each as it was written."""
        return self.rows(self.columns)


def check_names(columns: Sequence[str], path: str | Path) -> None:
    """Refuses two columns of one name, because a row can hold only one of them."""
    doubled = sorted({name for name in columns if columns.count(name) > 1})
    if doubled:
        raise DataError(f"{path} has several columns named {doubled[0]!r}; columns need different names")


class Shards(Source):
    """The rows of several sources, one after the other; a column that one of them lacks is missing in its rows."""

    def __init__(self, sources: Sequence[Source], *, name: str, folder: Path) -> None:
        self.sources, self.name, self.folder = sources, name, folder
        self.columns = _united(source.columns for source in sources)
        self.num_rows = sum(source.num_rows for source in sources)
        self.is_csv = any(source.is_csv for source in sources)
        self.is_indexed = all(source.is_indexed for source in sources)

    @property
    def record_columns(self) -> list[str]:
        return _united(source.record_columns for source in self.sources)

    def drop_images(self, image: str | None) -> None:
        for source in self.sources:
            source.drop_images(image)

    def fingerprint(self) -> str:
        names = [source.fingerprint() for source in self.sources]
        return hashlib.sha256(" ".join(names).encode()).hexdigest()

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for source in self.sources:
            if start < source.num_rows:
                present = [name for name in columns if name in source.columns]
                yield from source.rows(present, start)
            start = max(0, start - source.num_rows)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        return chain.from_iterable(source.records() for source in self.sources)


def _united(lists: Iterable[Sequence[str]]) -> list[str]:
    """All names, each once, in the order in which they come first."""
    return list(dict.fromkeys(chain.from_iterable(lists)))


class DerivedSource(Source):
    """The rows of other data, in their order, with further columns.

    Args:
        source: the data.
        how: says how the columns are made; part of the fingerprint.
        adds: the columns.
        needs: the columns of the data that `make` looks at.
        make: gives {column: value} of a row; a column that it does not give is None.
    """

    def __init__(
        self,
        source: Source,
        how: str,
        adds: Sequence[str],
        needs: Sequence[str],
        make: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self.source, self.adds, self.needs, self._make, self._how = source, list(adds), list(needs), make, how
        self.columns = [*source.columns, *adds]
        self.name, self.num_rows, self.folder = source.name, source.num_rows, source.folder
        self.is_csv, self.is_indexed, self.schema = source.is_csv, source.is_indexed, source.schema

    @property
    def record_columns(self) -> list[str]:
        return [*self.source.record_columns, *self.adds]

    def drop_images(self, image: str | None) -> None:
        self.source.drop_images(image)
        self.schema = self.source.schema

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.source.fingerprint()} {self._how} {self.adds}".encode()).hexdigest()

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        stored = [name for name in columns if name not in self.adds]
        if len(stored) == len(columns):
            yield from self.source.rows(columns, start)
            return
        for row in self.source.rows(list(dict.fromkeys([*stored, *self.needs])), start):
            yield self._with_columns(row, row)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        # A record may lack what the columns are made of, such as an image that is left out.
        for record, row in zip(self.source.records(), self.source.rows(self.needs), strict=True):
            yield self._with_columns(record, row)

    def _with_columns(self, record: dict[str, Any] | BadRow, row: dict[str, Any] | BadRow) -> dict[str, Any] | BadRow:
        if isinstance(record, BadRow) or isinstance(row, BadRow):
            return record
        values = self._make(row)
        return {**record, **{name: values.get(name) for name in self.adds}}


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


def is_unicode(text: str) -> bool:
    """Whether no lone surrogate is in a text: what comes in place of bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def loaded(content: bytes) -> Any:
    """The JSON value in some bytes. Raises ValueError, also for text that no tokenizer takes."""
    value = json.loads(content.decode())  # given bytes, json would look for other encodings in each line
    if b"\\ud" in content.lower():  # perhaps half of a surrogate pair, which no tokenizer and no file takes
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _row(value: Any, where: str) -> dict[str, Any] | BadRow:
    return value if isinstance(value, dict) else BadRow(f"{where} is not a JSON object but {type(value).__name__}")
