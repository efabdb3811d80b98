"""Data that are Arrow tables with a schema: Parquet, data sets of `datasets`, and tables in memory."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.checkpoints.fingerprints import fingerprint_file
from reward.errors import DataError
from reward.scoring.sources import BadRow, Source, check_names

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Read at a time, at most. Encoded bytes do not tell how often an image repeats, so the rows are few, too.
TABLE_ROWS, TABLE_BYTES = 64, 32 * 2**20


class ArrowSource(Source):
    """Rows of Arrow tables."""

    def __init__(
        self, name: str, folder: Path, types: pa.Schema, num_rows: int, kept: Sequence[str] | None = None
    ) -> None:
        from reward.scoring.schemas import without_images

        self.name, self.folder, self.columns, self.num_rows = name, folder, types.names, num_rows
        self.schema = without_images(types.empty_table().select(types.names if kept is None else list(kept))).schema
        if not num_rows:
            raise DataError(f"{name} holds no rows")

    @abstractmethod
    def _read(self, columns: Sequence[str], start: int = 0, paths_only: bool = False) -> Iterator[pa.Table]:
        """Tables of the given columns from row `start` on; perhaps without the bytes of images, if that is cheaper."""

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for table in self._read(columns, start):
            yield from table.to_pylist()

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        from reward.scoring.schemas import without_images

        assert self.schema is not None
        for table in self._read(self.schema.names, paths_only=True):
            yield from without_images(table).to_pylist()


class TableSource(ArrowSource):
    """A table in memory, made of a text file.

    Args:
        path: the file.
        table: its rows.
        bad: {row: why it cannot be read}; such a row is all null.
    """

    is_csv = True

    def __init__(self, path: Path, table: pa.Table, bad: Mapping[int, str]) -> None:
        super().__init__(path.name, path.parent, table.schema, table.num_rows)
        self.path, self._table, self._bad = path, table, bad

    def fingerprint(self) -> str:
        return fingerprint_file(self.path)

    def _read(self, columns: Sequence[str], start: int = 0, paths_only: bool = False) -> Iterator[pa.Table]:
        table = self._table.select(list(columns))
        return (table.slice(first, TABLE_ROWS) for first in range(start, self.num_rows, TABLE_ROWS))

    def rows(self, columns: Sequence[str], start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for place, row in enumerate(super().rows(columns, start), start):
            yield BadRow(self._bad[place]) if place in self._bad else row

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        return self.rows(self.columns)


class ParquetSource(ArrowSource):
    """Parquet files with the same columns: one table.

    Args:
        files: paths, such as those of a folder that an engine wrote.
        name: of the data.
        folder: where relative image paths start.
        groups: row groups that are taken of a single file; None takes all.
        system: file system of fsspec; None is this disk.
        kept: columns of the records; None keeps all.
    """

    def __init__(
        self,
        files: Sequence[Path | str],
        *,
        name: str,
        folder: Path,
        groups: range | None = None,
        system: Any = None,
        kept: Sequence[str] | None = None,
    ) -> None:
        import pyarrow as pa

        self.files, self._system = files, system
        self._groups: list[tuple[Path | str, int, int, int]] = []  # file, number, rows, and rows at a time
        schemas: list[pa.Schema] = []
        for path in files:
            file = self._opened(path)  # only while it is read
            check_names(file.schema_arrow.names, path)
            schemas.append(file.schema_arrow.remove_metadata())
            if odd := sorted(set(schemas[-1].names) ^ set(schemas[0].names)):
                raise DataError(f"{name} is not one table: {path} or the first part has no column {odd[0]!r}")
            for group in range(file.num_row_groups) if groups is None else groups:
                facts = file.metadata.row_group(group)
                at_a_time = _rows_at_a_time(facts.total_byte_size, facts.num_rows)
                self._groups.append((path, group, facts.num_rows, at_a_time))
        try:
            self.types = pa.unify_schemas(schemas, promote_options="permissive")  # all null here, texts there
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(f"{name} is not one table: {error}") from error
        super().__init__(name, folder, self.types, sum(rows for _, _, rows, _ in self._groups), kept)

    @classmethod
    def of(cls, path: Path) -> ParquetSource:
        """Of a file, or of all files of a folder."""
        if path.is_dir():
            return cls(sorted(path.glob("*.parquet")), name=path.name, folder=path)
        return cls([path], name=path.name, folder=path.parent)

    def fingerprint(self) -> str:
        each = [fingerprint_file(Path(path)) for path in self.files]
        return each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()

    def _read(self, columns: Sequence[str], start: int = 0, paths_only: bool = False) -> Iterator[pa.Table]:
        import pyarrow as pa

        from reward.scoring.schemas import is_image

        types = pa.schema([self.types.field(name) for name in columns])
        read = [f"{each.name}.path" if paths_only and is_image(each.type) else each.name for each in types]
        file, at = None, None
        for path, group, rows, at_a_time in self._groups:
            if start >= rows:  # groups before `start` are not read
                start -= rows
                continue
            file, at = (file if at == path and file else self._opened(path)), path
            with _told(f"{path} is damaged"):
                for batch in file.iter_batches(at_a_time, row_groups=[group], columns=read):
                    if start < batch.num_rows:
                        table = pa.Table.from_batches([batch.slice(start)])
                        yield table.select(types.names).cast(types) if columns else table
                    start = max(0, start - batch.num_rows)

    def _opened(self, path: Path | str) -> pq.ParquetFile:
        import pyarrow.parquet as pq

        with _told(f"{path} cannot be read as Parquet"):
            return pq.ParquetFile(path if self._system is None else self._system.open(path, "rb"))


@contextmanager
def _told(what: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{what}: {error}") from error


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


def _rows_at_a_time(size: int, rows: int) -> int:
    return max(1, min(TABLE_ROWS, TABLE_BYTES * rows // max(1, size)))
