"""Reads a fragment in pieces that fit in memory: rows to score, and the same rows as a table to write."""

from __future__ import annotations

import codecs
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, cast

from integrations.ray_data.fragments import Fragment, file_system
from integrations.ray_data.stores import explaining
from reward.errors import DataError
from reward.scoring.readers import BadRow
from reward.scoring.row_sources import json_row
from reward.scoring.schemas import infer_schema, typed_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Piece", "Selection", "read_pieces", "sample_schema"]

PIECE_ROWS, PIECE_BYTES = 8192, 256 * 2**20  # held at a time, at most; another such piece is read meanwhile
BATCH_ROWS = 512  # read at a time, so that a piece of images is not much larger than it may be
SAMPLED_FRAGMENTS, SAMPLED_ROWS = 32, 128  # of files without a schema
IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif")
_DAMAGE = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError)  # what reading a damaged file raises
TEXTS = ("txt", "text", "caption", "cap")


@dataclass(frozen=True)
class Selection:
    """What is read.

    Args:
        read: columns that are scored.
        kept: columns of the output.
        schema: types of all columns of the input.
    """

    read: Sequence[str]
    kept: Sequence[str]
    schema: pa.Schema


@dataclass
class Piece:
    """Some rows of a fragment, in order: `rows` with the columns to score, `table` with the columns to keep."""

    rows: list[dict[str, Any] | BadRow]
    table: pa.Table


def read_pieces(fragment: Fragment, selection: Selection) -> Iterator[Piece]:
    """Reads a fragment.

    Raises:
        DataError: it is damaged, was changed since it was planned, or has values that do not fit the schema.
    """
    with explaining(f"{fragment.file.path} cannot be read", DataError):
        system, path = file_system(fragment.file.path)
        size = system.info(path)["size"]
        if size != fragment.file.size:
            raise DataError(f"it has {size} bytes, and had {fragment.file.size} when the run began; run the same again")
        if fragment.file.kind == "parquet":
            yield from _typed(_parquet_batches(fragment, selection, system, path), selection)
        else:
            yield from _untyped(_records(fragment), selection)


def _columns(selection: Selection) -> dict[str, Any]:
    """What Parquet reads. Of images that are not scored only the path, which is all that the output keeps of them."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    columns: dict[str, Any] = {}
    for name in dict.fromkeys([*selection.kept, *selection.read]):
        kind = selection.schema.field(name).type
        is_image = kinds.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"}
        if name in selection.read or not (is_image or kinds.is_binary(kind) or kinds.is_large_binary(kind)):
            columns[name] = pc.field(name)
        elif is_image:
            columns[name] = pc.field(name, "path")
    return columns


def _parquet_batches(fragment: Fragment, selection: Selection, system: Any, path: str) -> Iterator[pa.RecordBatch]:
    import pyarrow.dataset as ds
    from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem

    is_local = "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,))
    place = LocalFileSystem() if is_local else PyFileSystem(FSSpecHandler(system))
    groups = ds.ParquetFileFormat().make_fragment(path, place, row_groups=list(range(fragment.first, fragment.last)))
    yield from groups.to_batches(
        columns=_columns(selection),
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        use_threads=False,
    )


def _typed(batches: Iterator[pa.RecordBatch], selection: Selection) -> Iterator[Piece]:
    import pyarrow as pa

    def piece() -> Piece:
        table = pa.Table.from_batches(waiting)
        names = [name for name in selection.kept if name in table.column_names]
        return Piece(table.select(list(selection.read)).to_pylist(), table.select(names))

    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield piece()
            waiting, rows, size = [], 0, 0
    if rows:
        yield piece()


def _untyped(records: Iterator[tuple[dict[str, Any] | BadRow, int]], selection: Selection) -> Iterator[Piece]:
    """Rows are scored as they were written, as on one machine, and get their types for the output only."""
    import pyarrow as pa

    schema = selection.schema
    output = pa.schema([schema.field(name) for name in selection.kept])

    def piece() -> Piece:
        found = [{} if isinstance(row, BadRow) else _light(row) for row in rows]
        strange = {name for row in found for name in row} - set(schema.names)
        if strange:
            raise DataError(
                f"column {min(strange)!r} is not in the rows that were looked at first, from which the columns of the "
                "output were taken: add a row that has it to the first file, or leave it out of the data"
            )
        try:
            table = typed_table([{name: row.get(name) for name in selection.kept} for row in found], output)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise DataError(
                f"a value does not fit the types of the rows that were looked at first ({error}): leave its column "
                "out with --columns (columns=), or convert the data to Parquet"
            ) from error
        return Piece(rows, table)

    rows: list[dict[str, Any] | BadRow] = []
    size = 0
    for row, taken in records:
        rows.append(row)
        size += taken
        if len(rows) >= PIECE_ROWS or size >= PIECE_BYTES:
            yield piece()
            rows, size = [], 0
    if rows:
        yield piece()


def _light(row: dict[str, Any]) -> dict[str, Any]:
    """The row without the bytes of its image, which are never written."""
    image = row.get("image")
    if isinstance(image, dict) and isinstance(image.get("bytes"), bytes):
        return {**row, "image": {**image, "bytes": b""}}
    return row


def sample_schema(fragments: Sequence[Fragment]) -> pa.Schema:
    """Types of files without a schema, from the first rows of some fragments spread over all of them.

    Raises:
        DataError: no row can be read.
    """
    step = max(1, len(fragments) // SAMPLED_FRAGMENTS)
    chunks = []
    for fragment in fragments[::step]:
        rows: list[dict[str, Any]] = []
        with suppress(*_DAMAGE):  # which is said when the fragment is scored; the others have types, too
            for row, _ in islice(_records(fragment), SAMPLED_ROWS):
                rows += [_light(row)] if isinstance(row, dict) else []
        chunks.append(rows)
    if not any(chunks):
        raise DataError(f"{fragments[0].file.path} and the other files hold no rows that can be read")
    return infer_schema(chunks)


def _records(fragment: Fragment) -> Iterator[tuple[dict[str, Any] | BadRow, int]]:
    """Rows of JSON lines or of a tar file, and about how many bytes each takes."""
    system, path = file_system(fragment.file.path)
    with system.open(path, "rb") as opened:
        if fragment.file.kind == "tar":
            yield from _tar_records(opened)
            return
        if fragment.file.kind == "jsonl.gz":
            with gzip.open(opened) as unpacked:
                yield from _lines(cast(IO[bytes], unpacked))
        else:
            yield from _lines(io.BufferedReader(opened, 2**20))


def _lines(file: IO[bytes]) -> Iterator[tuple[dict[str, Any] | BadRow, int]]:
    place = 0
    for line in file:
        text = line if place else line.removeprefix(codecs.BOM_UTF8)
        if text.strip():
            yield json_row(text, f"the line at byte {place}"), len(line)
        place += len(line)


def _is_unicode(text: str) -> bool:
    """Whether a text can be written; names that are not UTF-8 are read with lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tar_records(file: IO[bytes]) -> Iterator[tuple[dict[str, Any] | BadRow, int]]:
    """Members that follow each other and share a name up to its first dot are a row, as WebDataset has it."""
    row: dict[str, Any] = {}
    problem: str | None = None
    size = 0
    with tarfile.open(fileobj=file, mode="r|*") as tar:
        for member in tar:
            folder, slash, name = member.name.rpartition("/")
            stem, dot, ending = name.partition(".")
            if not member.isfile() or not stem or not dot:
                continue
            key, ending = folder + slash + stem, ending.lower()
            if row and row["__key__"] != key:
                yield row if problem is None else BadRow(problem), size
                row, problem, size = {}, None, 0
            row.setdefault("__key__", key)
            if not _is_unicode(key):
                problem = f"the name {key!r} is not UTF-8"
            if ending not in (*IMAGES, *TEXTS, "json"):
                continue
            data = cast(IO[bytes], tar.extractfile(member)).read()
            size += len(data)
            where = f"{key}.{ending}".encode(errors="backslashreplace").decode()
            if ending in IMAGES:
                row["image"] = {"bytes": data, "path": member.name}
            elif ending in TEXTS:
                try:
                    row[ending] = data.decode("utf-8-sig").strip()  # without the mark that some editors put in front
                except UnicodeDecodeError as error:
                    problem = f"{where} is not UTF-8: {error}"
            else:
                fields = json_row(data.removeprefix(codecs.BOM_UTF8), where)
                if isinstance(fields, dict):
                    row = {**fields, **row}  # a member of its own counts more than a field of that name
                else:
                    problem = fields.message
    if row:
        yield row if problem is None else BadRow(problem), size
