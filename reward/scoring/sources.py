"""The interface of all readers of data: rows in order, as often as needed; and several files as one table."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


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


def is_pattern(path: str | os.PathLike[str]) -> bool:
    """Whether a path may mean several files.

    Example:
        >>> is_pattern("shard-*.tar"), is_pattern("shard-{000..002}.tar"), is_pattern("shard.tar")
        (True, True, False)
    """
    text = os.fsdecode(path)
    return glob.has_magic(text) or _BRACES.search(text) is not None


def expand_braces(text: str) -> list[str]:
    """The texts that a shell makes of one with braces.

    Example:
        >>> expand_braces("{08..10}.{tar,json}")
        ['08.tar', '08.json', '09.tar', '09.json', '10.tar', '10.json']
    """
    braces = _BRACES.search(text)
    if braces is None:
        return [text]
    numbers = _RANGE.fullmatch(braces[1])
    choices = braces[1].split(",")
    if numbers is not None:
        first, last = numbers.groups()
        choices = [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    texts = []
    for choice in choices:
        texts += expand_braces(text[: braces.start()] + choice + text[braces.end() :])
    return texts


def files_of_pattern(pattern: str | os.PathLike[str]) -> list[Path]:
    """The files that a pattern with `*`, `?`, `[...]`, `{000..002}` or `{a,b}` means, in the order of their names.

    Raises:
        DataError: a file that braces name is not there, or no file has such a name.
    """
    # Braces name files, each of which must be there; a star takes what there is.
    paths: dict[str, None] = {}
    for text in expand_braces(os.fsdecode(pattern)):
        matches = [text]
        if not os.path.exists(text):  # a name may have brackets of its own
            matches = sorted(glob.glob(text))
        if not matches:
            raise DataError(f"there is no file {text}")
        paths |= dict.fromkeys(matches)
    return [Path(path) for path in paths]


def input_files(path: Path) -> list[Path]:
    """The files that a path of data names: itself, those of a pattern, or none for a name of the Hub."""
    if path.exists():
        return [path]
    if is_pattern(path):
        return files_of_pattern(path)
    return []


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
