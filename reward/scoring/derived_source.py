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
        self.columns, self.made = [*source.columns, *adds], [*source.made, *adds]
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
        if not {*self.adds} & {*columns}:
            yield from self.source.rows(columns, start)
            return
        read = dict.fromkeys([*(name for name in columns if name not in self.adds), *self.needs])
        for row in self.source.rows([*read], start):
            yield row if isinstance(row, BadRow) else {**row, **self._added(row)}

    def _added(self, row: Mapping[str, Any] | BadRow) -> dict[str, Any]:
        made = {} if isinstance(row, BadRow) else self._make(row)
        return {name: made.get(name) for name in self.adds}

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        # what the columns are made of may be missing in a record, where it holds encoded images
        for row, needed in zip(self.source.records(), self.source.rows(self.needs), strict=True):
            yield row if isinstance(row, BadRow) else {**row, **self._added(needed)}
