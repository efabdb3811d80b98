"""The input in fragments, each of which becomes one part of the output: files, and row groups of Parquet."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from integrations.ray_data.stores import explained, explaining
from reward.errors import DataError, MissingExtraError
from reward.scoring.readers import is_address

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Fragment", "InputFile", "file_system", "find_files", "split_files"]

KINDS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl.gz",
    ".ndjson.gz": "jsonl.gz",
    ".tar": "tar",
    ".tar.gz": "tar",
    ".tgz": "tar",
}
PART_BYTES = 512 * 2**20  # of row groups, as Parquet counts them before compression
THREADS = 16  # ask for the footers of files


@dataclass(frozen=True)
class InputFile:
    """A file of the input as it was found.

    Args:
        path: address, or absolute path on this disk.
        kind: a value of `KINDS`.
        size: in bytes.
        version: its ETag, else its modification time.
    """

    path: str
    kind: str
    size: int
    version: str


@dataclass(frozen=True)
class Fragment:
    """A piece of the input that is scored and written as a whole.

    Args:
        file: where it lies.
        first, last: row groups of Parquet, from `first` up to before `last`; of other files (0, 0), which is all.
        rows: how many, if that is known without reading.
    """

    file: InputFile
    first: int = 0
    last: int = 0
    rows: int | None = None

    def part(self, run: str) -> str:
        """Name of its part of the output, which changes whenever the fragment does, or the run that scores it."""
        digest = hashlib.sha256(f"{run} {self.to_json()}".encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9.-]+", "_", self.file.path)[-48:]
        return f"part-{name}-{self.first:012d}-{digest}.parquet"

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Fragment:
        """Reads what `to_json` gave."""
        values = json.loads(line)
        return cls(**{**values, "file": InputFile(**values["file"])})


def file_system(address: str) -> tuple[Any, str]:
    """The fsspec file system of an address or a path, and the path in it.

    Raises:
        MissingExtraError: the package of that file system is not installed.
        DataError: there is no such file system.
    """
    import fsspec

    try:
        return fsspec.core.url_to_fs(address if is_address(address) else os.path.abspath(address))
    except ImportError as error:
        raise MissingExtraError(f"{address}: {error}") from error
    except ValueError as error:
        raise DataError(f"{address}: {error}") from error


def find_files(data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[InputFile]:
    """Finds the files of the input, sorted by path.

    Args:
        data: files, folders, patterns with `*` or with numbers as in `{000..009}`, or several of them; on this disk,
            or addresses of a file system of fsspec. Of folders, names that begin with "_" or "." are left out.

    Raises:
        DataError: nothing is there, or files of different kinds.
    """
    given = [data] if isinstance(data, (str, os.PathLike)) else list(data)
    files: dict[str, InputFile] = {}
    for each in given:
        for address in _numbered(os.fspath(each)):
            found = list(_find(address))
            if not found:
                raise DataError(f"{address} holds no file of a kind that can be read: {', '.join(KINDS)}")
            files.update({file.path: file for file in found})
    kinds = sorted({file.kind.partition(".")[0] for file in files.values()})
    if len(kinds) != 1:
        raise DataError(f"the input has files of several kinds ({', '.join(kinds)}); give one kind, as in data/*.tar")
    return [files[key] for key in sorted(files)]


def _find(address: str) -> Iterator[InputFile]:
    system, path = file_system(address)
    try:
        if "*" in path:
            infos: Mapping[str, Any] = system.glob(path, detail=True)
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
        hidden = any(piece.startswith(("_", ".")) for piece in inside.split("/") if piece)
        kind = _kind(name)
        if kind and info.get("type") == "file" and not hidden:
            version = next((info[key] for key in ("ETag", "etag", "LastModified", "mtime") if info.get(key)), "")
            place = system.unstrip_protocol(name) if is_address(address) else name
            yield InputFile(place, kind, int(info.get("size") or 0), str(version))


def _kind(name: str) -> str | None:
    base = posixpath.basename(name).lower()
    return next((KINDS[end] for end in sorted(KINDS, key=len, reverse=True) if base.endswith(end)), None)


def _numbered(address: str) -> list[str]:
    """`shard-{08..10}.tar` as three addresses."""
    match = re.search(r"\{(\d+)\.\.(\d+)\}", address)
    if match is None:
        return [address]
    numbers = range(int(match[1]), int(match[2]) + 1)
    return [f"{address[: match.start()]}{each:0{len(match[1])}d}{address[match.end() :]}" for each in numbers]


def split_files(
    files: Sequence[InputFile], part_rows: int, schema: pa.Schema | None
) -> tuple[list[Fragment], pa.Schema | None]:
    """Splits files into fragments, the same way whenever the files are the same.

    Args:
        files: of one kind.
        part_rows: row groups are taken together until they have as many rows.
        schema: the files must have this one; None is that of the first.

    Returns:
        The fragments in the order of the files, and the schema; None where the files have none.

    Raises:
        DataError: a file cannot be read, or has another schema.
    """
    if files[0].kind != "parquet":
        return list(map(Fragment, files)), schema
    fragments: list[Fragment] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for file, (own, found) in zip(files, pool.map(lambda each: _row_groups(each, part_rows), files), strict=True):
            schema = own if schema is None else schema
            if not own.equals(schema):
                raise DataError(
                    f"{file.path} has other columns or types than the other files: {_differing(own, schema)}"
                )
            fragments += found
    return fragments, schema


def _row_groups(file: InputFile, part_rows: int) -> tuple[pa.Schema, list[Fragment]]:
    import pyarrow.parquet as pq

    system, path = file_system(file.path)
    with explaining(f"{file.path} cannot be read as Parquet", DataError), system.open(path, "rb") as opened:
        parquet = pq.ParquetFile(opened)
        metadata, schema = parquet.metadata, parquet.schema_arrow.remove_metadata()
    fragments: list[Fragment] = []
    first = rows = size = 0
    for group in range(metadata.num_row_groups):
        facts = metadata.row_group(group)
        rows, size = rows + facts.num_rows, size + facts.total_byte_size
        if rows >= part_rows or size >= PART_BYTES or group == metadata.num_row_groups - 1:
            fragments.append(Fragment(file, first, group + 1, rows))
            first, rows, size = group + 1, 0, 0
    return schema, fragments


def _differing(own: pa.Schema, schema: pa.Schema) -> str:
    names = [
        name
        for name in dict.fromkeys([*own.names, *schema.names])
        if own.get_field_index(name) < 0
        or schema.get_field_index(name) < 0
        or own.field(name).type != schema.field(name).type
    ]
    return ", ".join(names) or "in another order"
