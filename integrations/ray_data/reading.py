"""Reads a fragment as one machine reads a file: `reward.scoring` does it, here files come from wherever they are."""

from __future__ import annotations

import gzip
import posixpath
import tarfile
import tempfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from integrations.ray_data.fragments import Fragment, file_system
from integrations.ray_data.stores import explaining
from reward.errors import DataError
from reward.scoring.arrow_sources import ParquetSource
from reward.scoring.readers import is_remote_path
from reward.scoring.row_sources import JsonLinesSource, json_rows
from reward.scoring.schemas import infer_schema
from reward.scoring.sources import BadRow, Source
from reward.scoring.tar_source import TarSource, tar_rows, without_image

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS, PIECE_BYTES = 8192, 256 * 2**20  # scored at a time, at most; another such piece is read meanwhile
SAMPLED_FILES, SAMPLED_ROWS = 32, 128  # of files without types
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError)  # what reading a damaged file raises


@contextmanager
def opened(fragment: Fragment, kept: Sequence[str] | None = None) -> Iterator[Source]:
    """The rows of a fragment; a file of rows at an address is copied to this disk first.

    Args:
        fragment: what is read.
        kept: columns of the records; None for all.

    Raises:
        DataError: it cannot be read, or was changed since it was planned.
    """
    with tempfile.TemporaryDirectory() as folder:
        with explaining(f"{fragment.path} cannot be read", DataError):
            source = _source(fragment, Path(folder), kept)
        yield source


def _source(fragment: Fragment, folder: Path, kept: Sequence[str] | None) -> Source:
    system, path = file_system(fragment.path)
    size = system.info(path)["size"]
    if size != fragment.size:
        raise DataError(
            f"{fragment.path} has {size} bytes, and had {fragment.size} when the run began; run the same again"
        )
    is_remote = is_remote_path(fragment.path)
    if fragment.kind == "parquet":
        groups, there = range(fragment.first, fragment.last), system if is_remote else None
        return ParquetSource([path], name=fragment.path, folder=folder, groups=groups, system=there, kept=kept)
    if is_remote:
        system.get_file(path, str(folder / posixpath.basename(path)))
        path = str(folder / posixpath.basename(path))
    return (TarSource if fragment.kind == "tar" else JsonLinesSource)(Path(path))


def told(rows: Iterator[dict[str, Any] | BadRow], fragment: Fragment) -> Iterator[dict[str, Any] | BadRow]:
    """The rows; what goes wrong while they are read is a DataError."""
    with explaining(f"{fragment.path} cannot be read", DataError):
        yield from rows


def pieces(rows: Iterable[dict[str, Any] | BadRow]) -> Generator[list[dict[str, Any] | BadRow], None, None]:
    """Rows in pieces that fit in memory with their images."""
    piece: list[dict[str, Any] | BadRow] = []
    size = 0
    for row in rows:
        piece.append(row)
        cells = () if isinstance(row, BadRow) else row.values()
        held = (cell.get("bytes") if isinstance(cell, dict) else cell for cell in cells)
        size += sum(len(cell) for cell in held if isinstance(cell, bytes))
        if len(piece) >= PIECE_ROWS or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def sample_types(files: Sequence[Fragment]) -> pa.Schema:
    """Types of files that have none, from the first rows of some files spread over all of them.

    Raises:
        DataError: no row can be read.
    """
    chunks = []
    for file in files[:: max(1, len(files) // SAMPLED_FILES)]:
        rows: list[Any] = []
        system, path = file_system(file.path)
        with suppress(*_DAMAGE), system.open(path, "rb") as raw:  # which is said when the file is scored
            packed = file.kind == "jsonl" and path.lower().endswith(".gz")
            content = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if packed else raw)
            read = tar_rows(content) if file.kind == "tar" else json_rows(content)
            rows.extend(islice(read, SAMPLED_ROWS))
        light = map(without_image, rows) if file.kind == "tar" else rows
        chunks.append([row for row in light if isinstance(row, dict)])
    if not any(chunks):
        raise DataError(f"{files[0].path} and the other files hold no rows that can be read")
    return infer_schema(chunks)
