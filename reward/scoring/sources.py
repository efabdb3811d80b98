"""The interface of all readers of data files: rows in order, as often as needed, and facts about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadRow", "Source", "check_names"]


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
        is_csv: whether all values are text.
        is_indexed: whether a row is found without reading those before it.
    """

    name: str
    columns: list[str]
    num_rows: int
    folder: Path
    is_csv = False
    is_indexed = True

    @abstractmethod
    def fingerprint(self) -> str:
        """Identifies the content: equal rows give equal fingerprints, in every process."""

    @abstractmethod
    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        """The given columns of the rows from row number `start` on, for scoring."""

    @abstractmethod
    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        """All rows with all columns that are kept, for the output. Encoded images are not kept."""

    @abstractmethod
    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The same as `records`, as Arrow tables of one schema; a bad row is all null.

        Args:
            columns: the columns that are wanted; None for all.
        """


def check_names(columns: Sequence[str], path: Path) -> None:
    """Refuses two columns of one name, because a row can hold only one of them.

    Raises:
        DataError: two columns have the same name.
    """
    doubled = sorted({name for name in columns if columns.count(name) > 1})
    if doubled:
        raise DataError(f"{path} has several columns named {doubled[0]!r}; columns need different names")
