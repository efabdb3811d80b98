"""The input in fragments, each of which becomes one part of the output: whole files, and row groups of Parquet."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from reward.errors import DataError
from reward.scoring.arrow_sources import ParquetSource, parquet_file
from reward.scoring.readers import files_of_pattern, kind_of, refuse_address_of_data
from reward.scoring.row_sources import JsonLinesSource, json_rows, opened
from reward.scoring.sources import Source
from reward.scoring.tar_source import TarSource, tar_rows, without_image

if TYPE_CHECKING:
    import pyarrow as pa

# Kinds of files whose rows are read one after the other, by their endings.
KINDS = {
    ".parquet": "parquet",
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonlines"), "jsonl"),
    **dict.fromkeys((".tar", ".tgz"), "tar"),
}
THREADS = 16  # read the footers of files
SAMPLED_FILES, SAMPLED_ROWS = 32, 128  # of files whose columns have no types


@dataclass(frozen=True)
class Fragment:
    """A piece of the input that is scored and written as a whole.

    Args:
        path: absolute.
        kind: a value of `KINDS`.
        version: size and time of the file.
        first, last: row groups of Parquet, from `first` up to before `last`; of other files (0, 0).
        rows: how many, if that is known without reading.
    """

    path: str
    kind: str
    version: str
    first: int = 0
    last: int = 0
    rows: int | None = None

    @property
    def name(self) -> str:
        """For messages."""
        if self.last:
            return f"{self.path}, row groups {self.first} to {self.last - 1}"
        return self.path

    def part(self, run: str) -> str:
        """The name of its part of the output, which is another one as soon as the file or the run is."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", self.path)[-48:]
        return f"part-{name}-{self.first:06d}-{digest}-{run}.parquet"

    def open(self, types: pa.Schema) -> Source:
        """The rows, for the local file run.

        Args:
            types: of all columns of the input, for rows that have none.

        Raises:
            DataError: the file cannot be read, or has a column that is not among the types.
        """
        path = Path(self.path)
        if self.kind == "parquet":
            return ParquetSource([path], name=self.name, folder=path.parent, groups=range(self.first, self.last))
        reader = TarSource(path) if self.kind == "tar" else JsonLinesSource(path)
        strange = {*reader.columns} - {*types.names}
        if strange:
            raise DataError(
                f"{path}: column {min(strange)!r} is not in the rows that were looked at first, of which the output "
                "has its columns: add a row that has it to the first file, or leave it out of the data"
            )
        reader.schema = types
        return reader


def find_files(data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Fragment]:
    """Finds the files of the input, sorted by path.

    Args:
        data: files, folders, patterns such as `shard-*.tar`, or several of them. In folders, names that begin with "_"
            or "." are left out.

    Raises:
        DataError: nothing is there, files of different kinds, or an address.
    """
    files: dict[str, Fragment] = {}
    for item in [data] if isinstance(data, (str, os.PathLike)) else data:
        refuse_address_of_data(item)
        paths = _files_in(Path(item)) if os.path.isdir(item) else files_of_pattern(item)
        count = len(files)
        for path in paths:
            kind = KINDS.get(kind_of(path) or "")
            if kind is not None and path.is_file():
                facts, address = path.stat(), os.path.abspath(path)
                files[address] = Fragment(address, kind, f"{facts.st_size} {facts.st_mtime_ns}")
        if len(files) == count:
            raise DataError(f"there is no file {item}, or none of a kind that can be read: {', '.join(KINDS)}")
    kinds = sorted({file.kind for file in files.values()})
    if len(kinds) != 1:
        raise DataError(f"the input has files of several kinds ({', '.join(kinds)}); give one kind, as in data/*.tar")
    return [files[path] for path in sorted(files)]


def _files_in(folder: Path) -> list[Path]:
    files = []
    for path in folder.rglob("*"):
        names = path.relative_to(folder).parts
        if not any(name.startswith(("_", ".")) for name in names):
            files.append(path)
    return files


def split_parquet(files: Sequence[Fragment], part_rows: int) -> tuple[list[Fragment], pa.Schema]:
    """Splits Parquet files into row groups.

    Args:
        files: whole ones.
        part_rows: row groups are taken together until they have as many rows.

    Returns:
        The fragments in the order of the files, and the types of all.

    Raises:
        DataError: a file cannot be read or has other types, or no file has rows.
    """
    fragments: list[Fragment] = []
    types = None
    with ThreadPoolExecutor(THREADS) as pool:
        for file, (schema, pieces) in zip(files, pool.map(lambda file: _split(file, part_rows), files), strict=True):
            types = types or schema
            odd = {field.name for field in set(schema) ^ set(types)}
            if odd:
                raise DataError(f"{file.path} has other columns or types than the other files: {', '.join(odd)}")
            fragments += pieces
    if types is None or not fragments:
        raise DataError(f"{files[0].path} and the other files hold no rows")
    return fragments, types


def _split(file: Fragment, part_rows: int) -> tuple[pa.Schema, list[Fragment]]:
    parquet = parquet_file(file.path)
    fragments: list[Fragment] = []
    first = rows = 0
    groups = parquet.num_row_groups
    for group in range(groups):
        rows += parquet.metadata.row_group(group).num_rows
        if rows >= part_rows or (rows and group == groups - 1):
            fragments.append(replace(file, first=first, last=group + 1, rows=rows))
            first, rows = group + 1, 0
    return parquet.schema_arrow.remove_metadata(), fragments


def sample_types(files: Sequence[Fragment]) -> pa.Schema:
    """Types of files that have none, from the first rows of the first files: files that are added change nothing.

    Raises:
        DataError: no row can be read.
    """
    from reward.scoring.schemas import infer_schema  # which loads pyarrow

    chunks = []
    for file in files[:SAMPLED_FILES]:
        with suppress(DataError), opened(Path(file.path)) as content:  # damage is told later
            rows = map(without_image, tar_rows(content)) if file.kind == "tar" else json_rows(content)
            chunks.append([row for row in islice(rows, SAMPLED_ROWS) if isinstance(row, dict)])
    if not any(chunks):
        raise DataError(f"{files[0].path} and the other files hold no rows that can be read")
    return infer_schema(chunks)
