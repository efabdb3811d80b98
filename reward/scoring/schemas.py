"""Arrow schemas of scored data: types for untyped rows, and tables without the encoded images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["arrow_type", "infer_schema", "parquet_table", "typed_table", "without_images"]

# Marks a column of values of several kinds, which are written as JSON text.
JSON_TEXT = {b"capreward": b"json"}


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column, from how `ScoreColumns.types` names it.

    Example:
        >>> arrow_type("list float64")
        ListType(list<item: double>)
    """
    *lists, name = kind.split()
    single = getattr(pa, name)()
    return pa.list_(single) if lists else single


def infer_schema(chunks: Iterable[Sequence[dict[str, Any]]]) -> pa.Schema:
    """The narrowest types that hold all rows: integers widen to floats, absent values are null.

    A column whose values have no common type (a number here, a list there) becomes JSON text. So does one of objects
    that are empty in all rows, which Parquet has no type for.

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
    for name, field in fields.items():
        if _holds(field.type, _is_without_fields):
            fields[name] = pa.field(name, pa.string(), metadata=JSON_TEXT)
    return pa.schema(list(fields.values()))


def typed_table(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table of a schema from `infer_schema`; absent values are null."""
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if field.metadata == JSON_TEXT:
            values = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
        columns.append(pa.array(values, field.type))
    # An empty schema still needs the number of rows, which only a table made from a struct array keeps.
    return pa.table(columns, schema=schema) if columns else pa.table({"row": pa.nulls(len(rows))}).select([])


def parquet_table(table: pa.Table) -> pa.Table:
    """The table with columns that hold objects without a field, which Parquet has no type for, as JSON text.

    Example:
        >>> parquet_table(pa.table({"meta": [{}, None]})).column("meta").to_pylist()
        ['{}', None]
    """
    for position, field in enumerate(table.schema):
        if _holds(field.type, _is_without_fields):
            values = table.column(position).to_pylist()
            texts = [None if value is None else json.dumps(value, ensure_ascii=False, default=str) for value in values]
            table = table.set_column(position, field.name, pa.array(texts, pa.string()))
    return table


def without_images(table: pa.Table) -> pa.Table:
    """Drops columns of encoded bytes; of an image column (`{bytes, path}`) the path stays."""
    for name in table.column_names:
        kind = table.schema.field(name).type
        if pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}:
            position = table.column_names.index(name)
            table = table.set_column(position, name, pc.struct_field(table.column(name), "path"))
        elif _holds(kind, _is_binary):
            table = table.drop_columns([name])
    return table.replace_schema_metadata(None)  # it describes the columns that are gone


def _is_without_fields(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and not kind.num_fields


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is of the wanted kind, or a type inside it."""
    return wanted(kind) or any(_holds(kind.field(place).type, wanted) for place in range(kind.num_fields))
