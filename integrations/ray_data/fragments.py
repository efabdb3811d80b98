"""The input in fragments, each of which becomes one part of the output: whole files, and row groups of Parquet."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import CapRewardError, DataError, MissingExtraError
from reward.scoring.arrow_sources import ParquetSource
from reward.scoring.readers import is_remote_path
from reward.scoring.sources import JsonLinesSource, Source, json_rows
from reward.scoring.tar_source import TarSource, tar_rows, without_image

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), "jsonl"),
    ".parquet": "parquet",
    **dict.fromkeys((".tar", ".tar.gz", ".tgz"), "tar"),
}
THREADS = 16  # ask for the footers of files
SAMPLED_FILES, SAMPLED_ROWS = 32, 128  # of files whose columns have no types


@dataclass(frozen=True)
class Fragment:
    """A piece of the input that is scored and written as a whole.

    Args:
        path: address, or absolute path on this disk.
        kind: a value of `KINDS`.
        version: size of the file with its ETag, else its modification time.
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

    def open(self, scratch: Path, types: pa.Schema, columns: Sequence[str]) -> Source:
        """The rows, for the local file run; a file in a store is copied to this disk first.

        Args:
            scratch: folder for the copy.
            types: of all columns of the input, for rows that have none.
            columns: those that the output keeps.

        Raises:
            DataError: the file cannot be read.
        """
        import pyarrow as pa

        system, path = file_system(self.path)
        with explaining(f"{self.path} cannot be read", DataError):
            if is_remote_path(self.path):
                copy = str(scratch / posixpath.basename(path))
                system.get_file(path, copy)
                path = copy
            if self.kind == "parquet":
                groups = range(self.first, self.last)
                source: Source = ParquetSource([path], name=self.name, folder=scratch, groups=groups)
            else:
                source = TarSource(Path(path)) if self.kind == "tar" else JsonLinesSource(Path(path))
        source.folder = Path(posixpath.dirname(self.path))
        schema = source.schema or types
        source.schema = pa.schema([field for field in schema if field.name in columns], schema.metadata)
        return source


def file_system(address: str) -> tuple[Any, str]:
    """The fsspec file system of an address or a path, and the path in it.

    Raises:
        MissingExtraError: the package of that file system is not installed.
        DataError: there is no such file system.
    """
    import fsspec

    try:
        return fsspec.core.url_to_fs(address if is_remote_path(address) else os.path.abspath(address))
    except ImportError as error:
        raise MissingExtraError(f"{address}: {error}") from error
    except ValueError as error:
        raise DataError(f"{address}: {error}") from error


@contextmanager
def explaining(message: str, kind: type[CapRewardError]) -> Iterator[None]:
    """Turns errors of file systems into `kind`; each file system of fsspec raises errors of its own library."""
    try:
        yield
    except CapRewardError:
        raise
    except Exception as error:
        raise kind(f"{message}: {type(error).__name__}: {' '.join(str(error).split()):.300}") from error


def find_files(data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Fragment]:
    """Finds the files of the input, sorted by path.

    Args:
        data: files, folders, patterns with `*`, or several of them; on this disk, or addresses of a file system of
            fsspec. Of folders, names that begin with "_" or "." are left out.

    Raises:
        DataError: nothing is there, or files of different kinds.
    """
    files: dict[str, Fragment] = {}
    for item in [data] if isinstance(data, (str, os.PathLike)) else data:
        address = os.fspath(item)
        system, path = file_system(address)
        folder = path
        with explaining(f"{address} cannot be read", DataError):
            if "*" in path:
                folder = path.partition("*")[0].rpartition("/")[0]
                facts_of = system.glob(path, detail=True)
            else:
                facts_of = system.find(path, detail=True)
        in_address: dict[str, Fragment] = {}
        for name, facts in facts_of.items():
            kind = next((KINDS[ending] for ending in KINDS if name.lower().endswith(ending)), None)
            is_hidden = any(piece.startswith(("_", ".")) for piece in name.removeprefix(folder).split("/"))
            if kind and not is_hidden and facts.get("type") == "file":
                # What a store calls its version of a file; a disk has its time.
                whole_name = system.unstrip_protocol(name) if is_remote_path(address) else name
                tags = [str(facts[tag]) for tag in ("ETag", "etag", "LastModified", "mtime") if facts.get(tag)]
                in_address[whole_name] = Fragment(whole_name, kind, f"{facts.get('size')} {''.join(tags[:1])}")
        files |= in_address
        if not in_address:
            raise DataError(f"there is no file {address}, or none of a kind that can be read: {', '.join(KINDS)}")
    kinds = sorted({file.kind for file in files.values()})
    if len(kinds) != 1:
        raise DataError(f"the input has files of several kinds ({', '.join(kinds)}); give one kind, as in data/*.tar")
    return [files[path] for path in sorted(files)]


def split_parquet(files: Sequence[Fragment], part_rows: int) -> tuple[list[Fragment], pa.Schema]:
    """Splits Parquet files on this disk; one in a store is copied whole, so it is one fragment. No rows give none.

    Args:
        files: whole ones.
        part_rows: row groups are taken together until they have as many rows.

    Returns:
        The fragments in the order of the files, and the types of all.

    Raises:
        DataError: a file cannot be read, or has other types.
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
    import pyarrow.parquet as pq

    system, path = file_system(file.path)
    with explaining(f"{file.path} cannot be read as Parquet", DataError), system.open(path, "rb") as content:
        parquet = pq.ParquetFile(content)
        metadata, types = parquet.metadata, parquet.schema_arrow.remove_metadata()
    fragments: list[Fragment] = []
    first = rows = 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        is_last = group == metadata.num_row_groups - 1
        is_full = rows >= part_rows and not is_remote_path(file.path)
        if is_full or (is_last and rows):
            fragments.append(replace(file, first=first, last=group + 1, rows=rows))
            first, rows = group + 1, 0
    return types, fragments


def sample_types(files: Sequence[Fragment]) -> pa.Schema:
    """Types of files that have none, from the first rows of the first files: files that are added change nothing.

    Raises:
        DataError: no row can be read.
    """
    from reward.scoring.schemas import infer_schema  # which loads pyarrow

    chunks = []
    for file in files[:SAMPLED_FILES]:
        rows: list[Any] = []
        system, path = file_system(file.path)
        with suppress(Exception), system.open(path, "rb", compression="infer") as content:  # damage is told later
            read = map(without_image, tar_rows(content)) if file.kind == "tar" else json_rows(content)
            rows.extend(islice(read, SAMPLED_ROWS))
        chunks.append([row for row in rows if isinstance(row, dict)])
    if not any(chunks):
        raise DataError(f"{files[0].path} and the other files hold no rows that can be read")
    return infer_schema(chunks)
