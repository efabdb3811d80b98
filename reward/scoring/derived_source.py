"""Data with columns that are made of each row: what is inside a cell, or what another file says of its image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from reward.errors import InvalidSampleError
from reward.scoring.sources import BadRow, Source
from reward.values import is_list, listed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DerivedSource", "with_fields"]

_ROWS = 4096


class DerivedSource(Source):
    """The rows of other data, in their order, with further columns.

    Args:
        source: the data.
        name: says how the columns are made; part of the fingerprint.
        adds: the columns.
        needs: the columns of the data that `make` looks at.
        make: gives {column: value} of a row; a column that it does not give is None.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        adds: Sequence[str],
        needs: Sequence[str],
        make: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self.source, self.adds, self.needs, self._make, self._how = source, list(adds), list(needs), make, name
        self.columns = [*source.columns, *adds]
        self.name, self.num_rows, self.folder, self.is_csv = source.name, source.num_rows, source.folder, source.is_csv

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.source.fingerprint()} {self._how} {self.adds}".encode()).hexdigest()

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        if not {*self.adds} & {*columns}:
            yield from self.source.rows(columns, start)
            return
        read = dict.fromkeys([*(name for name in columns if name not in self.adds), *self.needs])
        for row in self.source.rows([*read], start):
            yield row if isinstance(row, BadRow) else {**row, **self._added(row)}

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        # what the columns are made of may be missing in a record, where it holds encoded images
        for row, needed in zip(self.source.records(), self.source.rows(self.needs), strict=True):
            is_bad = isinstance(row, BadRow) or isinstance(needed, BadRow)
            yield row if is_bad else {**row, **self._added(needed)}  # type: ignore[dict-item, arg-type]

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        from reward.scoring.schemas import infer_schema, typed_table

        adds = [name for name in self.adds if columns is None or name in columns]
        there = None if columns is None else [name for name in columns if name not in self.adds]
        added = self._all_added(adds)
        schema = infer_schema(iter(lambda: list(islice(added, _ROWS)), []))
        added = self._all_added(adds)
        for table in self.source.tables(there):
            new = typed_table(list(islice(added, table.num_rows)), schema)
            for field in schema:
                table = table.append_column(field, new.column(field.name))
            yield table

    def _all_added(self, adds: Sequence[str]) -> Iterator[dict[str, Any]]:
        for row in self.source.rows(self.needs):
            made = {} if isinstance(row, BadRow) else self._added(row)
            yield {name: made.get(name) for name in adds}

    def _added(self, row: Mapping[str, Any]) -> dict[str, Any]:
        made = self._make(row)
        return {name: made.get(name) for name in self.adds}


def with_fields(source: Source, names: Iterable[str | None]) -> Source:
    """The data with a column for each name such as `scores.human`, which means a field inside a column.

    Args:
        source: the data.
        names: of columns; those that are there, and those that start with no column, are left to `find_column`.
    """
    for name in dict.fromkeys(names):
        outer = name.partition(".")[0] if isinstance(name, str) and name not in source.columns else None
        if outer is not None and outer in source.columns and outer != name:
            source = DerivedSource(source, f"field {name}", [str(name)], [outer], partial(_field, str(name)))
    return source


def _field(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    outer, *path = name.split(".")
    value: Any = row.get(outer)
    for part in path:
        with suppress(InvalidSampleError):  # a text in brackets
            value = listed(value)
        if isinstance(value, Mapping):
            value = value.get(part)
        elif is_list(value) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return {}
    return {name: value}
