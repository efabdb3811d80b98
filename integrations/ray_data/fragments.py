"""The input in fragments, each of which becomes one part of the output: whole files, and row groups of Parquet."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reward.errors import DataError
from reward.scoring.arrow_sources import ParquetSource, parquet_file
from reward.scoring.readers import files_of_pattern, kind_of, open_source, refuse_address_of_data
from reward.scoring.sources import Source

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = (".parquet", ".jsonl", ".ndjson", ".jsonlines", ".tar", ".tgz")
THREADS = 16  # read the footers of files


@dataclass(frozen=True)
class Fragment:
    """A piece of the input that is scored and written as a whole.

    Args:
        path: absolute.
        first, last: row groups of Parquet, from `first` up to before `last`; of other files (0, 0).
        rows: how many, if that is known without reading.
    """

    path: str
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
        """The name of its part of the output; whether the part is of the file as it is now, the local run tells."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", self.path)[-48:]
        # A part has the form of its file: rows of JSON have no types that those of another file must share.
        ending = ".parquet" if self.last else ".jsonl"
        return f"part-{name}-{self.first:06d}-{digest}-{run}{ending}"

    def open(self) -> Source:
        """The rows, for the local file run (DataError: the file cannot be read)."""
        path = Path(self.path)
        if self.last:
            return ParquetSource([path], name=self.name, folder=path.parent, groups=range(self.first, self.last))
        return open_source(path)


def find_files(data: str | os.PathLike[str]) -> list[Path]:
    """The files of the input, absolute and sorted.

    Args:
        data: a file, a folder, or a pattern such as `shard-*.tar`. In folders, names that begin with "_" or "." are
            left out.

    Raises:
        DataError: nothing is there, files of different kinds, or an address.
    """
    if not isinstance(data, (str, os.PathLike)):
        raise DataError(f"data must be one path, or a pattern such as data/*.parquet, got {type(data).__name__}")
    refuse_address_of_data(data)
    paths = [Path(path) for path in files_of_pattern(data)]
    if os.path.isdir(data):
        paths = [path for path in Path(data).rglob("*") if not _is_hidden(path.relative_to(data))]
    files = [Path(os.path.abspath(path)) for path in paths if kind_of(path) in KINDS and path.is_file()]
    kinds = sorted({str(kind_of(file)) for file in files})
    if len(kinds) != 1:
        raise DataError(
            f"{data} has files of {len(kinds)} kinds that can be read ({', '.join(kinds or KINDS)}); give those of one "
            "kind, as in data/*.tar"
        )
    return sorted(files)


def _is_hidden(path: Path) -> bool:
    return any(name.startswith(("_", ".")) for name in path.parts)


def split_parquet(files: Sequence[Path], part_rows: int) -> list[Fragment]:
    """Fragments of Parquet files, in their order; row groups go together until they have `part_rows` rows.

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
                raise DataError(f"{file} has other columns or types than the other files: {', '.join(odd)}")
            fragments += pieces
    if not fragments:
        raise DataError(f"{files[0]} and the other files hold no rows")
    return fragments


def _split(file: Path, part_rows: int) -> tuple[pa.Schema, list[Fragment]]:
    parquet = parquet_file(file)
    fragments: list[Fragment] = []
    first = rows = 0
    groups = parquet.num_row_groups
    for group in range(groups):
        rows += parquet.metadata.row_group(group).num_rows
        if rows >= part_rows or (rows and group == groups - 1):
            fragments.append(Fragment(str(file), first, group + 1, rows))
            first, rows = group + 1, 0
    return parquet.schema_arrow.remove_metadata(), fragments
