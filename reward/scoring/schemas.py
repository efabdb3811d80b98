"""Arrow schemas of scored data: types for rows that have none, and tables without the encoded images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reward.scoring.sources import BadRow, Source

CHUNK_ROWS = 4096
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


def schema_of(source: Source, added: Mapping[str, str] | None = None) -> pa.Schema:
    """Types of the columns of the output: those of the data, else the narrowest that hold all rows.

    Args:
        source: the data.
        added: {column: see `arrow_type`} of further columns, or of some that are replaced.
    """
    known = {} if source.schema is None else {field.name: field for field in source.schema}
    if source.schema is None or source.made:
        rows = ({} if isinstance(row, BadRow) else row for row in source.records())
        unknown = ({name: row[name] for name in row if name not in known} for row in rows)
        known |= {field.name: field for field in infer_schema(iter(lambda: list(islice(unknown, CHUNK_ROWS)), []))}
    known |= {name: pa.field(name, arrow_type(kind)) for name, kind in (added or {}).items()}
    return pa.schema(list(map(_storable, known.values())))


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


def typed_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table of a schema from `infer_schema`; absent values are null."""
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if field.metadata == JSON_TEXT:
            values = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def without_images(table: pa.Table) -> pa.Table:
    """Drops columns of encoded bytes; of an image column (`{bytes, path}`) the path stays."""
    for position, field in reversed(list(enumerate(table.schema))):
        if is_image(field.type):
            table = table.set_column(position, field.name, pc.struct_field(table.column(position), "path"))
        elif is_binary(field.type):
            table = table.remove_column(position)
    return table.replace_schema_metadata(None)  # it describes the columns that are gone


def is_image(kind: pa.DataType) -> bool:
    """Whether a column holds images as `datasets` keeps them."""
    return pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}


def is_binary(kind: pa.DataType) -> bool:
    """Whether a column holds bytes, perhaps inside something else, and is no column of images."""
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return not is_image(kind) and _holds(kind, lambda inner: any(is_one(inner) for is_one in kinds))


def _storable(field: pa.Field) -> pa.Field:
    """The field, but JSON text if it holds objects without a field, which Parquet has no type for."""
    if _holds(field.type, lambda kind: pa.types.is_struct(kind) and not kind.num_fields):
        return pa.field(field.name, pa.string(), metadata=JSON_TEXT)
    return field


def _holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is of the wanted kind, or a type inside it."""
    return wanted(kind) or any(_holds(kind.field(place).type, wanted) for place in range(kind.num_fields))
