"""Writes the output file: the rows of the input with the columns of the results, complete or not at all."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import OutputError
from reward.fingerprints import hash_file
from reward.scoring.readers import BadRow, Source, is_address, written

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "check_output",
    "check_output_name",
    "check_undamaged",
    "json_line",
    "output_beside",
    "output_facts",
    "refuse_address",
    "write_atomically",
    "write_rows",
    "write_tables",
    "write_text",
]

ROWS = 4096
Added = Callable[[list[Any]], dict[str, list[Any]]]  # from the next rows of the input to the columns they get


def check_output(path: Path, source: Source, input_path: Path | None) -> None:
    """Checks, before a model is loaded, that the output can be written.

    Raises:
        OutputError: an address, wrong suffix, a folder, the input itself, no place for files, or too little room.
    """
    try:
        check_output_name(path, ".parquet", ".jsonl", ".json", ".csv", ".tsv")
        if input_path is not None and path.exists() and path.samefile(input_path):
            raise OutputError(f"output {path} is the input; choose another name")
        if (place := next(each for each in path.absolute().parents if each.exists())).is_file():
            raise OutputError(f"cannot write {path}: {place.name} is a file, not a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise OutputError(
                f"cannot write {path}: no file can be made in {path.parent} ({error.strerror or error})"
            ) from error
        free = shutil.disk_usage(path.parent).free
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    # The parts and the new columns take about 200 bytes a row; texts are copied, encoded images are not.
    text = input_path.stat().st_size if input_path is not None and input_path.suffix in (".jsonl", ".csv") else 0
    needed = text + 200 * source.num_rows
    if free < needed:
        raise OutputError(
            f"{path.parent} has {free / 1e6:,.1f} MB free, but scoring {source.name} takes about {needed / 1e6:,.1f} MB"
        )


def output_beside(data: str | os.PathLike[str], what: str) -> Path:
    """The output of somebody who names none: beside the data or, for a name on the Hub, in the working folder.

    Example:
        >>> str(output_beside("owner/name.v1:en@main", "scores"))
        'name.v1.scores.parquet'
    """
    path = Path(data)
    if not path.exists():
        return Path(re.sub(r"[:@].*", "", path.name) + f".{what}.parquet")
    path = path.resolve() if path.name in ("", "..") else path
    stem = path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem
    return path.parent / f"{stem}.{what}.parquet"


def check_output_name(path: Path, *suffixes: str) -> None:
    """Refuses an output by its name alone.

    Raises:
        OutputError: an address, a wrong suffix, or a folder.
    """
    refuse_address(path)
    if path.suffix.lower() not in suffixes:
        raise OutputError(f"output {path} must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise OutputError(f"output {path} is a folder; give a file name in it")


def refuse_address(path: Path) -> None:
    """Refuses an output such as `s3://bucket/x`, of which a path would make a folder `s3:`.

    Raises:
        OutputError: an address.
    """
    if is_address(path):
        raise OutputError(f"output {written(path)} is an address; nothing is sent there. Give a path on this disk")


def output_facts(path: Path) -> dict[str, Any]:
    """Length and checksum of a finished output, which show later damage."""
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def check_undamaged(path: Path, facts: dict[str, Any]) -> None:
    """Refuses an output that was changed since it was finished.

    Args:
        path: the output.
        facts: of `output_facts`.

    Raises:
        OutputError: its length or its checksum differs.
    """
    size = path.stat().st_size
    if size != facts["bytes"]:
        what = f"has {size:,} bytes, and had {facts['bytes']:,} when it was finished"
    elif hash_file(path) != facts["sha256"]:
        what = "does not hold what it held when it was finished"
    else:
        return
    raise OutputError(
        f"{path} was changed or damaged: it {what}. Move it away, or make it anew with --overwrite (overwrite=True)"
    )


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Calls `write` with a temporary name and then renames the file, so that it is complete or absent."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OutputError):
            raise
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}. What is done is saved; make room and run the same again."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Writes a text as UTF-8, whole or not at all; see `write_atomically`."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_rows(path: Path, source: Source, added: Added, types: Mapping[str, str], needs: Sequence[str]) -> None:
    """The rows of the input with further columns, as the name of the output says.

    Args:
        path: a temporary name, which goes on after that of the output: `scores.csv.tmp`.
        source: the input.
        added: gives the columns of the next rows.
        types: {column: see `arrow_type`} of those that `added` gives.
        needs: columns of the input that `added` looks at.
    """
    kind = Path(path.stem).suffix.lower()
    if kind == ".parquet":
        write_tables(path, _built_tables(source, added, types, needs))
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        if kind in (".jsonl", ".json"):
            for number, row in enumerate(_built_rows(source, added)):
                file.write(("" if kind == ".jsonl" else "," if number else "[") + json_line(row))
            file.write("" if kind == ".jsonl" else "]\n")
            return
        there = next(source.tables()).schema.names
        names = [*there, *(name for name in types if name not in there)]
        writer = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",", lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(row.get(name)) for name in names] for row in _built_rows(source, added))


def _built_rows(source: Source, added: Added) -> Iterator[dict[str, Any]]:
    rows = source.records()
    while chunk := list(islice(rows, ROWS)):
        columns = added(chunk)
        for row, values in zip(chunk, zip(*columns.values(), strict=True), strict=True):
            whole = {} if isinstance(row, BadRow) else dict(row)
            yield {**whole, **dict(zip(columns, values, strict=True))}


def _built_tables(source: Source, added: Added, types: Mapping[str, str], needs: Sequence[str]) -> Iterator[pa.Table]:
    """Columns of Arrow input keep their types, those of text get the narrowest that holds all."""
    import pyarrow as pa

    from reward.scoring.schemas import arrow_type

    rows = source.rows(needs)
    for table in source.tables():
        for name, values in added(list(islice(rows, table.num_rows))).items():
            column = pa.array(values, arrow_type(types[name]))
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, column)
            else:
                table = table.append_column(name, column)
        yield table


def _cell(value: Any) -> Any:
    """A value in a table of text: numbers and texts as they are, all else as JSON."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return value if value == value else None
    return None if value is None else json_line(value).rstrip("\n")


def write_tables(path: Path, tables: Iterable[pa.Table]) -> None:
    """One Parquet file of tables with the same columns and types."""
    import pyarrow.parquet as pq

    from reward.scoring.schemas import parquet_table

    writer = None
    try:
        for table in tables:
            table = parquet_table(table.replace_schema_metadata(None))
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def json_line(row: Any) -> str:
    """A row, or a cell, as a line of JSON Lines; numbers that are not finite become null."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    except ValueError:
        return json.dumps(_finite(row), ensure_ascii=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
