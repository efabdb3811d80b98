"""The input in fragments, each of which becomes one part of the output: files, and row groups of Parquet."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from integrations.ray_data.stores import explained, explaining
from reward.errors import DataError, MissingExtraError
from reward.scoring.readers import is_remote_path

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), "jsonl"),
    ".parquet": "parquet",
    **dict.fromkeys((".tar", ".tar.gz", ".tgz"), "tar"),
}
PART_BYTES = 512 * 2**20  # of row groups, as Parquet counts them before compression
THREADS = 16  # ask for the footers of files


@dataclass(frozen=True)
class Fragment:
    """A piece of the input that is scored and written as a whole.

    Args:
        path: address, or absolute path on this disk.
        kind: a value of `KINDS`.
        size: of the file, in bytes.
        version: of the file: its ETag, else its modification time.
        first, last: row groups of Parquet, from `first` up to before `last`; of other files (0, 0), which is all.
        rows: how many, if that is known without reading.
    """

    path: str
    kind: str
    size: int
    version: str
    first: int = 0
    last: int = 0
    rows: int | None = None

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.path)

    def part(self, run: str) -> str:
        """Name of its part of the output, which changes whenever the fragment does, or the run that scores it."""
        digest = hashlib.sha256(f"{run} {self.to_json()}".encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", self.path)[-48:]
        return f"part-{name}-{self.first:012d}-{digest}.parquet"

    def to_json(self) -> str:
        """One line, of whose values a fragment can be made."""
        return json.dumps(asdict(self), sort_keys=True)


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


def find_files(data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Fragment]:
    """Finds the files of the input, sorted by path.

    Args:
        data: files, folders, patterns with `*`, or several of them; on this disk, or addresses of a file system of
            fsspec. Of folders, names that begin with "_" or "." are left out.

    Raises:
        DataError: nothing is there, or files of different kinds.
    """
    files: dict[str, Fragment] = {}
    for each in [data] if isinstance(data, (str, os.PathLike)) else data:
        found = {file.path: file for file in _find(os.fspath(each))}
        if not found:
            raise DataError(f"{each} holds no file of a kind that can be read: {', '.join(KINDS)}")
        files |= found
    kinds = sorted({file.kind for file in files.values()})
    if len(kinds) != 1:
        raise DataError(f"the input has files of several kinds ({', '.join(kinds)}); give one kind, as in data/*.tar")
    return [files[path] for path in sorted(files)]


def _find(address: str) -> Iterator[Fragment]:
    system, path = file_system(address)
    try:
        if "*" in path:
            infos = system.glob(path, detail=True)
        elif system.isdir(path):
            infos = system.find(path, detail=True)
        else:
            infos = {path: system.info(path)}
    except FileNotFoundError as error:
        raise DataError(f"there is no file {address}") from error
    except Exception as error:  # each file system of fsspec raises errors of its own library
        raise DataError(f"{address} cannot be read: {explained(error)}") from error
    for name, info in infos.items():
        inside = name.removeprefix(path) if name != path else ""
        is_hidden = any(piece.startswith(("_", ".")) for piece in inside.split("/"))
        kind = next((KINDS[end] for end in KINDS if name.lower().endswith(end)), None)
        if kind and info.get("type") == "file" and not is_hidden:
            version = next((info[key] for key in ("ETag", "etag", "LastModified", "mtime") if info.get(key)), "")
            place = system.unstrip_protocol(name) if is_remote_path(address) else name
            yield Fragment(place, kind, int(info.get("size") or 0), str(version))


def split_parquet(files: Sequence[Fragment], part_rows: int, types: pa.Schema | None) -> tuple[list[Fragment], Any]:
    """Splits Parquet files, the same way whenever they are the same.

    Args:
        files: whole ones.
        part_rows: row groups are taken together until they have as many rows.
        types: the files must have these; None takes those of the first.

    Returns:
        The fragments in the order of the files, and the types.

    Raises:
        DataError: a file cannot be read, or has other types.
    """
    fragments: list[Fragment] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for file, (own, found) in zip(files, pool.map(lambda each: _groups(each, part_rows), files), strict=True):
            types = own if types is None else types
            if odd := {field.name for field in set(own) ^ set(types)}:
                raise DataError(f"{file.path} has other columns or types than the other files: {', '.join(odd)}")
            fragments += found
    return fragments, types


def _groups(file: Fragment, part_rows: int) -> tuple[pa.Schema, list[Fragment]]:
    import pyarrow.parquet as pq

    system, path = file_system(file.path)
    with explaining(f"{file.path} cannot be read as Parquet", DataError), system.open(path, "rb") as opened:
        parquet = pq.ParquetFile(opened)
        metadata, types = parquet.metadata, parquet.schema_arrow.remove_metadata()
    fragments: list[Fragment] = []
    first = rows = size = 0
    for group in range(metadata.num_row_groups):
        facts = metadata.row_group(group)
        rows, size = rows + facts.num_rows, size + facts.total_byte_size
        if rows >= part_rows or size >= PART_BYTES or group == metadata.num_row_groups - 1:
            fragments.append(replace(file, first=first, last=group + 1, rows=rows))
            first, rows, size = group + 1, 0, 0
    return types, fragments
