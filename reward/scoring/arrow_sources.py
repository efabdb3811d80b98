"""Data that are Arrow tables with a schema: Parquet files, and data sets of `datasets`."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.checkpoints.fingerprints import fingerprint_file
from reward.errors import DataError
from reward.scoring.sources import BadRow, Source, check_names

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

TABLE_BYTES = 32 * 2**20  # read at a time, at most
TABLE_ROWS = 64  # also at most, since encoded bytes do not tell how often an image repeats
_FEATURES = b"huggingface"  # the entry of a schema's metadata by which `datasets` knows a column of pictures


class ArrowSource(Source):
    """Rows of Arrow tables.

    Args:
        name: of the data, for messages.
        folder: where relative image paths start.
        types: of the columns.
        num_rows: how many rows there are.
    """

    def __init__(self, name: str, folder: Path, types: pa.Schema, num_rows: int) -> None:
        if not num_rows:
            raise DataError(f"{name} holds no rows")
        self.name, self.folder, self.columns, self.num_rows = name, folder, types.names, num_rows
        features = (types.metadata or {}).get(_FEATURES)
        self.schema = types.with_metadata(None if features is None else {_FEATURES: features})
        self._drops_images = False

    def drop_images(self, image: str | None) -> None:

        assert self.schema is not None
        self.schema = schema_without_images(self.schema, image)
        self._drops_images = True

    @abstractmethod
    def _read(self, columns: Sequence[str], start: int = 0, paths_only: bool = False) -> Iterator[pa.Table]:
        """Tables of some columns from row `start` on; perhaps without the bytes of images, if that is cheaper."""

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for table in self._read(columns, start):
            yield from table.to_pylist()

    def tables(self) -> Iterator[pa.Table]:
        """All records, as tables of `schema`."""

        assert self.schema is not None
        for table in self._read(self.schema.names, paths_only=self._drops_images):
            table = paths_of_images(table) if self._drops_images else table
            yield table.replace_schema_metadata(self.schema.metadata)

    def records(self) -> Iterator[dict[str, Any] | BadRow]:

        for table in self.tables():
            yield from with_exact_times(table).to_pylist()


class ParquetSource(ArrowSource):
    """Parquet files with the same columns: one table.

    Args:
        files: paths, such as those of a folder that an engine wrote.
        name: of the data.
        folder: where relative image paths start.
        groups: row groups that are taken of a single file; None takes all.
    """

    def __init__(self, files: Sequence[Path | str], *, name: str, folder: Path, groups: range | None = None) -> None:
        import pyarrow as pa

        self.files = files
        self._groups: list[tuple[Path | str, int, int, int]] = []  # file, number, rows, and rows at a time
        schemas: list[pa.Schema] = []
        for path in files:
            file = parquet_file(path)  # only while it is read
            check_names(file.schema_arrow.names, path)
            schemas.append(file.schema_arrow)
            if odd := sorted(set(schemas[-1].names) ^ set(schemas[0].names)):
                raise DataError(f"{name} is not one table: {path} or the first part has no column {odd[0]!r}")
            for group in range(file.num_row_groups) if groups is None else groups:
                facts = file.metadata.row_group(group)
                rows_at_a_time = _rows_at_a_time(facts.total_byte_size, facts.num_rows)
                self._groups.append((path, group, facts.num_rows, rows_at_a_time))
        try:
            self.types = pa.unify_schemas(schemas, promote_options="permissive")  # all null here, texts there
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"{name} is not one table: {error}") from error
        super().__init__(name, folder, self.types, sum(rows for _, _, rows, _ in self._groups))

    def fingerprint(self) -> str:
        fingerprints = [fingerprint_file(Path(path)) for path in self.files]
        if len(fingerprints) == 1:
            return fingerprints[0]
        return hashlib.sha256("".join(fingerprints).encode()).hexdigest()

    def _read(self, columns: Sequence[str], start: int = 0, paths_only: bool = False) -> Iterator[pa.Table]:
        import pyarrow as pa

        types = pa.schema([self.types.field(name) for name in columns])
        names = [field.name for field in types]
        if paths_only:
            names = [f"{field.name}.path" if is_image(field.type) else field.name for field in types]
        file, file_path = None, None
        for path, group, rows, rows_at_a_time in self._groups:
            if start >= rows:  # groups before `start` are not read
                start -= rows
                continue
            if file is None or path != file_path:
                file, file_path = parquet_file(path), path
            with _data_errors(f"{path} is damaged"):
                for batch in file.iter_batches(rows_at_a_time, row_groups=[group], columns=names):
                    if start < batch.num_rows:
                        table = pa.Table.from_batches([batch.slice(start)])
                        yield table.select(types.names).cast(types) if columns else table
                    start = max(0, start - batch.num_rows)


def open_parquet(path: Path) -> ParquetSource:
    """A Parquet file."""
    return ParquetSource([path], name=path.name, folder=path.parent)


class DatasetSource(ArrowSource):
    """A `datasets.Dataset`; its images stay encoded until they are scored."""

    def __init__(self, dataset: Any, *, name: str, folder: Path) -> None:
        self.dataset = dataset.with_format("arrow")
        super().__init__(name, folder, dataset.features.arrow_schema, len(dataset))

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.num_rows} {self.dataset.features}".encode())
        # Its own fingerprint is random after some transforms, so all rows are hashed, in pieces of one size: equal rows
        # may lie in tables of other sizes.
        for table in self.dataset.iter(256):
            for batch in table.replace_schema_metadata(None).combine_chunks().to_batches():
                digest.update(batch.serialize())
        return digest.hexdigest()

    def _read(self, columns: Sequence[str], start: int = 0, paths_only: bool = False) -> Iterator[pa.Table]:
        rows = self.dataset.select(range(start, len(self.dataset))).select_columns(list(columns))
        return iter(rows.iter(_rows_at_a_time(self.dataset.data.nbytes, self.dataset.data.num_rows)))


def parquet_file(path: Path | str) -> pq.ParquetFile:
    """A Parquet file, of which the footer is read. Raises DataError."""
    import pyarrow.parquet as pq

    with _data_errors(f"{path} cannot be read as Parquet"):
        return pq.ParquetFile(path)


@contextmanager
def _data_errors(problem: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{problem}: {error}") from error


def _rows_at_a_time(size: int, rows: int) -> int:
    return max(1, min(TABLE_ROWS, TABLE_BYTES * rows // max(1, size)))


def dataset_source(dataset: Any, *, name: str, folder: Path) -> Source:
    """The rows of a `datasets.Dataset`, with the columns of its format."""
    if dataset.format["type"] == "custom":
        raise DataError(
            f"{name} has a transform (set_transform, with_transform), which is called anew whenever a row is read: "
            "apply it once, as data.with_format(None).map(...) does"
        )
    columns = dataset.format["columns"]
    if dataset.format["output_all_columns"]:
        columns = dataset.column_names
    return DatasetSource(dataset.select_columns(columns), name=name, folder=folder)


def open_arrow(path: Path) -> Source:
    """A file of the cache of `datasets`."""
    import datasets

    return dataset_source(datasets.Dataset.from_file(str(path)), name=path.name, folder=path.parent)


def with_exact_times(table: pa.Table) -> pa.Table:
    """The table with text for times of the day in nanoseconds, of which Python's `time` would lose three digits."""
    import pyarrow as pa

    for position, field in enumerate(table.schema):
        if field.type == pa.time64("ns"):
            table = table.set_column(position, field.name, table.column(position).cast(pa.string()))
    return table


def is_image(kind: pa.DataType) -> bool:
    """Whether a column holds images as `datasets` keeps them."""
    import pyarrow as pa

    return pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}


def schema_without_images(schema: pa.Schema, image: str | None) -> pa.Schema:
    """A schema without pictures: of images the paths stay; lists of them go, and the bytes of the column `image`."""
    import pyarrow as pa

    fields = []
    for field in schema:
        if is_image(field.type):
            fields.append(pa.field(field.name, field.type.field("path").type))
        elif not holds(field.type, is_image) and not (field.name == image and holds(field.type, _is_bytes)):
            fields.append(field)
    return pa.schema(fields)


def paths_of_images(table: pa.Table) -> pa.Table:
    """A table with the paths of its images in place of the images."""
    import pyarrow.compute as pc

    for position, field in enumerate(table.schema):
        if is_image(field.type):
            table = table.set_column(position, field.name, pc.struct_field(table.column(position), "path"))
    return table


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is of the wanted kind, or a type inside it."""
    if wanted(kind):
        return True
    return any(holds(kind.field(position).type, wanted) for position in range(kind.num_fields))
