"""The interface of all readers of data: rows in order, as often as needed, and facts about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        schema: types of the records' columns; None where values have no types but their own.
        made: columns made of others, which have no type in `schema`.
    """

    name: str
    columns: list[str]
    num_rows: int
    folder: Path
    is_csv = False
    is_indexed = True
    schema: pa.Schema | None = None
    made: Sequence[str] = ()

    @property
    def record_columns(self) -> list[str]:
        return self.columns

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
