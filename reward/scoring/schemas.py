"""Arrow tables of scored data: types for rows that have none, further columns, and Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from reward.errors import OutputError
from reward.scoring.arrow_sources import ArrowSource, holds
from reward.scoring.sources import BadRow, Source
from reward.scoring.writers import MORE_ROWS

CHUNK_ROWS = 4096  # whose types are looked at together
TABLE_ROWS = 256  # that become a table; they may hold pictures
GROUP_BYTES = 64 * 2**20  # of a row group of a Parquet file, which is written at a time
# Marks a column of values of several kinds, which are written as JSON text.
JSON_TEXT = {b"capreward": b"json"}


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column, from how `AddedColumns.types` names it.

    Example:
        >>> arrow_type("list float64")
        ListType(list<item: double>)
    """
    *lists, name = kind.split()
    single = getattr(pa, name)()
    return pa.list_(single) if lists else single


def schema_of(reader: Source) -> pa.Schema:
    """Types of the columns of the records: those of the data, else the narrowest that hold all rows."""
    if reader.schema is not None and reader.schema.names == reader.record_columns:
        return reader.schema
    types = {field.name: field for field in reader.schema or ()}
    untyped = ({name: record[name] for name in record if name not in types} for record in _cells(reader))
    inferred = infer_schema(_chunks(untyped, CHUNK_ROWS))
    return pa.schema([*types.values(), *inferred])


def infer_schema(chunks: Iterable[Sequence[dict[str, Any]]]) -> pa.Schema:
    """The narrowest types that hold all rows: integers widen to floats, absent values are null.

    A column whose values have no common type (a number here, a list there) becomes JSON text.

    Example:
        >>> infer_schema([[{"id": 1, "tags": []}], [{"id": 2.5, "tags": ["a"], "mix": 1}, {"mix": "b"}]]).types
        [DataType(double), ListType(list<item: string>), DataType(string)]
    """
    fields: dict[str, pa.Field] = {}
    for rows in chunks:
        for name in dict.fromkeys(name for row in rows for name in row):
            try:
                new = pa.field(name, pa.array([row.get(name) for row in rows]).type)
                old = fields.get(name, new)
                if old.metadata is None:
                    both = [pa.schema([old]), pa.schema([new])]
                    fields[name] = pa.unify_schemas(both, promote_options="permissive").field(0)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
                fields[name] = pa.field(name, pa.string(), metadata=JSON_TEXT)
    return pa.schema(list(map(_storable, fields.values())))


def typed_tables(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows as tables of a schema from `schema_of`; absent values are null."""
    for chunk in _chunks(rows, TABLE_ROWS):
        columns = [_typed_array([row.get(field.name) for row in chunk], field) for field in schema]
        yield pa.table(columns, schema=schema)


def storable(table: pa.Table) -> pa.Table:
    """The table, with JSON text for columns that Parquet has no type for."""
    for position, field in enumerate(table.schema):
        storable_field = _storable(field)
        if storable_field is not field:
            values = _typed_array(table.column(position).to_pylist(), storable_field)
            table = table.set_column(position, storable_field, values)
    return table


def _typed_array(values: list[Any], field: pa.Field) -> pa.Array:
    if field.metadata == JSON_TEXT:
        values = [
            value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            for value in values
        ]
    return pa.array(values, field.type)


def tables_of(reader: Source) -> Iterator[pa.Table]:
    """The records of any data as tables of one schema, which Parquet can hold."""
    if isinstance(reader, ArrowSource):
        return map(storable, reader.tables())
    return typed_tables(_cells(reader), schema_of(reader))


def _cells(reader: Source) -> Iterator[dict[str, Any]]:
    """The records; a row that cannot be read has no cells."""
    for record in reader.records():
        yield {} if isinstance(record, BadRow) else record


def with_columns(
    tables: Iterable[pa.Table], types: Mapping[str, str], values: Iterator[Sequence[Any]]
) -> Iterator[pa.Table]:
    """Tables with further columns, some of which may replace others.

    Args:
        tables: the tables.
        types: {column: see `arrow_type`}.
        values: those of each row.
    """
    for table in tables:
        rows = list(islice(values, len(table)))
        if len(rows) < len(table):
            raise OutputError(MORE_ROWS)
        for (name, kind), column in zip(types.items(), zip(*rows, strict=True), strict=True):
            array = pa.array(column, arrow_type(kind))
            position = table.schema.get_field_index(name)
            if position < 0:
                table = table.append_column(name, array)
            else:
                table = table.set_column(position, name, array)
        yield table


def write_parquet(path: Path, tables: Iterator[pa.Table]) -> None:
    """One Parquet file of tables of one schema."""
    import pyarrow.parquet as pq

    waiting: list[pa.Table] = []
    rows = size = 0
    first = next(tables)
    # Rows of one image follow each other: what repeats is stored once a group, if the dictionary may grow so far.
    with pq.ParquetWriter(path, first.schema, dictionary_pagesize_limit=GROUP_BYTES // 4) as writer:
        for table in chain([first], tables):
            waiting.append(table)
            rows += len(table)
            size += table.nbytes
            if rows >= CHUNK_ROWS or size >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(waiting))
                waiting, rows, size = [], 0, 0
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _storable(field: pa.Field) -> pa.Field:
    """The field, but JSON text if it holds objects without a field, which Parquet has no type for."""
    if holds(field.type, lambda kind: pa.types.is_struct(kind) and not kind.num_fields):
        return pa.field(field.name, pa.string(), metadata=JSON_TEXT)
    return field


def _chunks(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rows = iter(rows)
    while chunk := list(islice(rows, size)):
        yield chunk
