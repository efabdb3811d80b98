"""Writes the output file: the rows of the input with the columns of the results, complete or not at all."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import Any

from reward.checkpoints.fingerprints import hash_file
from reward.errors import OutputError
from reward.scoring.readers import files_of_pattern, input_files, is_pattern, is_remote_path, written
from reward.scoring.sources import BadRow, Source

MORE_ROWS = "the input has more rows than were scored: it changed; run the same again"
_NEEDS_QUOTES = re.compile(r'[",\r\n]')
_TSV_ESCAPES = {ord("\t"): "\\t", ord("\r"): "\\r", ord("\n"): "\\n"}  # a cell of TSV cannot hold these
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_PICTURES = {b"\x89PNG": "png", b"GIF8": "gif", b"RIFF": "webp"}  # how their bytes begin


def check_output(path: Path, input_path: Path | None) -> None:
    """Checks, before a model is loaded, that the output can be written.

    Raises:
        OutputError: an address, a wrong suffix, a folder, the input itself, or no place for files.
    """
    try:
        check_output_name(path, ".parquet", ".jsonl", ".json", ".csv", ".tsv")
        inputs = [] if input_path is None or not path.exists() else input_files(input_path)
        if any(path.samefile(file) for file in inputs):
            raise OutputError(f"output {path} is the input; choose another name")
        for folder in (path.parent, Path(os.path.realpath(path)).parent):  # the second is another one for a link
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
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
    if not path.exists() and is_pattern(path):
        stem = re.sub(r"[^\w.-]+", "_", path.stem)
        return files_of_pattern(path)[0].parent / f"{stem}.{what}.parquet"
    if not path.exists():
        return Path(re.sub(r"[:@].*", "", path.name) + f".{what}.parquet")
    if path.name in ("", ".."):
        path = path.resolve()
    stem = path.name
    if not path.is_dir():
        stem = Path(path.name.removesuffix(".gz")).stem
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
    """Calls `write` with a temporary name and then renames the file, so that it is complete or absent.

    Of a link the file that it leads to is written, and the link stays.
    """
    target = path.resolve() if path.is_symlink() else path
    temporary = target.with_name(path.name + ".tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
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
    reader: Source,
    types: Mapping[str, str],
    values: Iterator[Sequence[Any]],
    is_written: Iterable[bool] | None = None,
) -> None:
    """The rows of the input with further columns, as the name of the output says.

    Args:
        path: a temporary name, which goes on after that of the output: `scores.csv.tmp`.
        reader: the input.
        types: {column: see `arrow_type`} of the further columns, some of which may replace columns of the input.
        values: those of each row.
        is_written: whether each row is written; None for all.

    Raises:
        OutputError: the input has more rows than were scored, or a cell cannot be written so.
    """
    kind = Path(path.stem).suffix.lower()
    if kind == ".parquet":
        from reward.scoring.schemas import tables_of, with_columns, write_parquet  # which loads pyarrow

        tables = with_columns(tables_of(reader), types, values)
        if is_written is not None:
            marks = iter(is_written)
            tables = (table.filter(list(islice(marks, len(table)))) for table in tables)
        write_parquet(path, tables)
        return
    rows = _rows_with(reader.records(), [*types], values)
    if is_written is not None:
        rows = compress(rows, is_written)
    with path.open("w", encoding="utf-8", newline="") as file:
        if kind == ".jsonl":
            file.writelines(map(json_line, rows))
        elif kind == ".json":
            file.write("[")
            for number, row in enumerate(rows):
                if number:
                    file.write(",")
                file.write(json_line(row))
            file.write("]\n")
        else:
            names = list(dict.fromkeys([*reader.record_columns, *types]))
            make_line = _tsv_line if kind == ".tsv" else _csv_line
            file.write(make_line(dict(zip(names, names, strict=True)), names))
            for row in rows:
                file.write(make_line(row, names))


def _rows_with(
    records: Iterator[dict[str, Any] | BadRow], names: Sequence[str], values: Iterator[Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    for record in records:
        added = next(values, None)
        if added is None:
            raise OutputError(MORE_ROWS)
        row = {} if isinstance(record, BadRow) else record.copy()
        row.update(zip(names, added, strict=True))
        yield row


def _csv_line(row: Mapping[str, Any], names: Sequence[str]) -> str:
    cells = []
    for name in names:
        cell = _cell(row.get(name))
        if _NEEDS_QUOTES.search(cell):  # not by the csv module, which leaves a lone carriage return bare
            cell = '"' + cell.replace('"', '""') + '"'
        cells.append(cell)
    return ",".join(cells) + "\n"


def _tsv_line(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return "\t".join(_cell(row.get(name)).translate(_TSV_ESCAPES) for name in names) + "\n"


def _cell(value: Any) -> str:
    """A value in a table of text: numbers and texts as they are, nothing as an empty cell, all else as JSON."""
    if isinstance(value, float):
        return "" if math.isnan(value) else str(value)
    value = _plain(value)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def json_line(row: Any) -> str:
    """A row as a line of JSON Lines: bytes in base64, pictures as data URLs, null for numbers that are not finite."""
    # Most rows consist of what JSON has. The others are gone through cell by cell, which takes three times as long.
    try:
        line = _ENCODER.encode(row)
    except (TypeError, ValueError):
        line = _ENCODER.encode(_plain(row))
    if '"bytes": null' in line:  # perhaps a picture of which there is the path alone
        line = _ENCODER.encode(_plain(row))
    return line + "\n"


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        is_picture = value.keys() == {"bytes", "path"} and not isinstance(value["bytes"], str)
        if is_picture:  # as `datasets` keeps it
            return _picture(value["bytes"], value["path"])
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _picture(content: bytes | None, path: Any) -> Any:
    """A picture in text: its path, if it is in a file, else a data URL, which is read as a picture."""
    if content is None:
        return path
    kind = "jpeg"
    for start, name in _PICTURES.items():
        if content.startswith(start):
            kind = name
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
