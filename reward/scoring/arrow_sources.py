"""Reads Parquet files and Hugging Face data sets, which are Arrow tables with a schema."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import DataError
from reward.fingerprints import fingerprint_file
from reward.scoring.sources import BadRow, Source, check_names

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["DatasetSource", "ParquetSource"]

TABLE_ROWS, TABLE_BYTES = 4096, 32 * 2**20  # what is read at a time, at most; rows may hold whole images


class ArrowSource(Source):
    """What Parquet and Hugging Face data sets have in common: Arrow tables with a schema."""

    @abstractmethod
    def _read(self, columns: Sequence[str], start: int) -> Iterator[pa.Table]:
        """Tables of the given columns from row `start` on."""

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for table in self._read(columns, start):
            yield from table.to_pylist()

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        for table in self.tables():
            yield from table.to_pylist()

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        from reward.scoring.schemas import without_images

        return map(without_images, self._read(self.columns if columns is None else columns, 0))


class ParquetSource(ArrowSource):
    """A Parquet file; or a folder of files with the same columns, as engines write them: one table, by their names."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        is_folder = path.is_dir()
        self.name, self.folder = path.name, path if is_folder else path.parent
        self.parts: list[tuple[Path, int]] = []  # with the rows of each; a file is open only while it is read
        schemas: list[pa.Schema] = []
        for part in sorted(path.glob("*.parquet")) if is_folder else [path]:
            file = _opened(part)
            check_names(file.schema_arrow.names, part)
            schemas.append(file.schema_arrow.remove_metadata())
            if odd := sorted(set(schemas[-1].names) ^ set(schemas[0].names)):
                raise DataError(f"{path} is not one table: {part.name} or the first part has no column {odd[0]!r}")
            self.parts.append((part, file.metadata.num_rows))
        try:
            self.schema = pa.unify_schemas(schemas, promote_options="permissive")  # all null here, texts there
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"{path} is not one table: {error}") from error
        self.columns, self.num_rows = self.schema.names, sum(rows for _, rows in self.parts)
        if not self.num_rows:
            raise DataError(f"{path} holds no rows")

    def fingerprint(self) -> str:
        import hashlib

        each = [fingerprint_file(part) for part, _ in self.parts]
        return each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()

    def _read(self, columns: Sequence[str], start: int) -> Iterator[pa.Table]:
        import pyarrow as pa

        wanted = pa.schema([self.schema.field(name) for name in columns])
        for part, rows in self.parts:
            if start < rows:
                for table in _tables(part, columns, start):
                    yield table.select(columns).cast(wanted) if columns else table
            start = max(0, start - rows)


def _opened(path: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error


def _tables(path: Path, columns: Sequence[str], start: int) -> Iterator[pa.Table]:
    """The rows of a file from one on."""
    import pyarrow as pa

    file = _opened(path)
    sizes = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    at_a_time = _rows_at_a_time(sum(group.total_byte_size for group in sizes), file.metadata.num_rows)
    first = 0  # whole row groups before `start` are skipped
    while start >= sizes[first].num_rows:
        start -= sizes[first].num_rows
        first += 1
    groups = list(range(first, len(sizes)))
    try:
        for batch in file.iter_batches(at_a_time, row_groups=groups, columns=list(columns)):
            if start < batch.num_rows:
                yield pa.Table.from_batches([batch.slice(start)])
            start = max(0, start - batch.num_rows)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


class DatasetSource(ArrowSource):
    """A `datasets.Dataset`; its images stay encoded until they are scored."""

    def __init__(self, dataset: Any, *, name: str, folder: Path) -> None:
        self.dataset = dataset.with_format("arrow")
        self.name, self.folder = name, folder
        self.columns = list(dataset.column_names)
        self.num_rows = len(dataset)
        if not self.num_rows:
            raise DataError(f"{name} holds no rows")

    def fingerprint(self) -> str:
        import hashlib

        digest = hashlib.sha256(f"{self.num_rows} {self.dataset.features}".encode())
        # Its own fingerprint is random after some transforms, so all rows are hashed, in pieces of one size: equal rows
        # may lie in tables of other sizes.
        for table in self.dataset.iter(256):
            for batch in table.replace_schema_metadata(None).combine_chunks().to_batches():
                digest.update(batch.serialize())
        return digest.hexdigest()

    def _read(self, columns: Sequence[str], start: int) -> Iterator[pa.Table]:
        rows = self.dataset.select(range(start, len(self.dataset))).select_columns(list(columns))
        return iter(rows.iter(_rows_at_a_time(self.dataset.data.nbytes, self.dataset.data.num_rows)))


def _rows_at_a_time(size: int, rows: int) -> int:
    return max(1, min(TABLE_ROWS, TABLE_BYTES * rows // max(1, size)))
