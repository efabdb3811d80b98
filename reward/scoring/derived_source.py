"""Data with columns that are made of each row: what is inside a message, or what another file says of its image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from reward.scoring.sources import BadRow, Source


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
