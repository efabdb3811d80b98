"""Writes the output file: the rows of the input with the columns of the results, complete or not at all."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.checkpoints.fingerprints import hash_file
from reward.errors import OutputError
from reward.scoring.readers import is_remote_path, written
from reward.scoring.sources import BadRow, Source

if TYPE_CHECKING:
    import pyarrow as pa


CHUNK_ROWS = 4096


def check_output(path: Path, input_path: Path | None) -> None:
    """Checks, before a model is loaded, that the output can be written.

    Raises:
        OutputError: an address, a wrong suffix, a folder, the input itself, or no place for files.
    """
    try:
        check_output_name(path, ".parquet", ".jsonl", ".json", ".csv", ".tsv")
        if input_path is not None and path.exists() and path.samefile(input_path):
            raise OutputError(f"output {path} is the input; choose another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: no file can be made there ({error.strerror or error})") from error


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
    """Refuses an output by its name alone: an address, a wrong suffix, or a folder."""
    refuse_address(path)
    if path.suffix.lower() not in suffixes:
        raise OutputError(f"output {path} must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise OutputError(f"output {path} is a folder; give a file name in it")


def refuse_address(path: Path) -> None:
    """Refuses an output such as `s3://bucket/x`, of which a path would make a folder `s3:`."""
    if is_remote_path(path):
        raise OutputError(f"output {written(path)} is an address; nothing is sent there. Give a path on this disk")


def output_facts(path: Path) -> dict[str, Any]:
    """Length and checksum of a finished output, which show later damage."""
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def check_undamaged(path: Path, facts: dict[str, Any]) -> None:
    """Refuses an output that was changed since `output_facts` were taken of it."""
    if path.stat().st_size != facts["bytes"] or hash_file(path) != facts["sha256"]:
        raise OutputError(
            f"{path} does not hold what it held when it was finished: it was changed or damaged. Move it away, or make "
            "it anew with --overwrite (overwrite=True)"
        )


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
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
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_rows(
    path: Path,
    source: Source,
    types: Mapping[str, str],
    values: Iterator[Sequence[Any]],
    is_selected: Iterable[bool] | None = None,
) -> None:
    """The rows of the input with further columns, as the name of the output says.

    Args:
        path: a temporary name, which goes on after that of the output: `scores.csv.tmp`.
        source: the input.
        types: {column: see `arrow_type`} of the further columns, some of which may replace columns of the input.
        values: those of each row.
        is_selected: whether each row is written; None for all.
    """
    kind, rows = Path(path.stem).suffix.lower(), rows_with(source.records(), [*types], values)
    if is_selected is not None:
        rows = compress(rows, is_selected)
    if kind == ".parquet":
        write_parquet(path, rows, _schema(source, types))
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        if kind == ".jsonl":
            file.writelines(map(json_line, rows))
        elif kind == ".json":
            file.writelines(("," if number else "[") + json_line(row) for number, row in enumerate(rows))
            file.write("]\n")
        else:
            names = _schema(source, types).names
            writer = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",", lineterminator="\n")
            writer.writerow(names)
            writer.writerows([_cell(row.get(name)) for name in names] for row in rows)


def _schema(source: Source, types: Mapping[str, str]) -> pa.Schema:
    from reward.scoring.schemas import schema_of  # which loads pyarrow

    return schema_of(source, types)


def write_parquet(
    path: Path, rows: Iterator[dict[str, Any]], schema: pa.Schema, facts: Mapping[str, str] | None = None
) -> None:
    """One Parquet file of rows, with some facts in its footer."""
    import pyarrow.parquet as pq

    from reward.scoring.schemas import typed_table

    with pq.ParquetWriter(path, schema) as writer:
        while chunk := list(islice(rows, CHUNK_ROWS)):
            writer.write_table(typed_table(chunk, schema))
        writer.add_key_value_metadata(facts or {})


def rows_with(
    records: Iterator[dict[str, Any] | BadRow], names: Sequence[str], values: Iterator[Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    """Records with further columns."""
    for record in records:
        own = next(values, None)
        if own is None:
            raise OutputError("the input has more rows than were scored: it changed; run the same again")
        yield {**({} if isinstance(record, BadRow) else record), **dict(zip(names, own, strict=True))}


def _cell(value: Any) -> Any:
    """A value in a table of text: numbers and texts as they are, all else as JSON."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return value if value == value else None
    return None if value is None else json_line(value).rstrip("\n")


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
