"""Rows of a benchmark's split: saved by `datasets`, or in Parquet, CSV or JSONL files named after their splits."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from reward.errors import DataError
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_lines
from reward.scoring.sources import check_names

__all__ = ["ReadRows", "Row", "find_splits", "image_folder", "read_file"]

_SHARD = re.compile(r"-\d+-of-\d+.*$")
_ENDINGS = (".parquet", ".csv", ".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_BATCH = 64  # rows of a Parquet file in memory at once; each may hold an image


@dataclass(frozen=True)
class Row:
    """A row.

    Args:
        values: {column: value}; an encoded image is left as the dict that is stored.
        where: names the row in messages.
        folder: of its file, or of the data set.
    """

    values: dict[str, Any]
    where: str
    folder: Path


class ReadRows(Protocol):
    """Reads a split from its start, as often as it is called."""

    def __call__(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """Yields the rows with these columns, of those there are, or with all; text files give all."""


def find_splits(path: Path, config: str = "") -> dict[str, ReadRows]:
    """The splits of a data set on disk, {name: how to read it}.

    Args:
        path: a folder that `save_to_disk` wrote (a single table has the name `""`); or a folder with files in it, in
            its folder `data`, or in that of the configuration, which are named after their split, such as
            `test.jsonl` or `test-00000-of-00002.parquet`, or are in a folder named so, or are assigned to one in the
            metadata of README.md, as on the Hub; or one file.
        config: of the configurations in README.md, which.

    Raises:
        DataError: the folder was written by `save_to_disk` but cannot be read.
    """
    if path.is_file():
        return {_stem(path): partial(read_file, path)}
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _saved(path)
    files: dict[str, list[Path]] = {}
    folders = (path, path / "data", *([path / config] if config else []))
    for folder in folders:
        for file in sorted(folder.glob("*")) if folder.is_dir() else ():
            if _is_table(file):
                files.setdefault(_stem(file), []).append(file)
            elif file.is_dir() and file not in folders and (inside := sorted(filter(_is_table, file.glob("*")))):
                files.setdefault(file.name, []).extend(inside)
    for split, found in _declared(path, config).items():
        files[split] = found
    return {split: partial(_read_files, found) for split, found in files.items()}


def read_file(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """The rows of a Parquet, CSV or JSONL file.

    Raises:
        DataError: another kind of file, or one that cannot be read.
    """
    folder = path.parent
    if is_jsonl(path):
        for where, values in read_lines(path):
            yield Row(values, where, folder)
    elif path.suffix.lower() == ".csv":
        yield from _read_csv(path)
    elif path.suffix.lower() == ".parquet":
        yield from _read_parquet(path, columns)
    else:
        raise DataError(f"{path} is no {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]} file")


def image_folder(data: Path, images: Path | None, *names: str) -> Path:
    """Folder of a benchmark's images: `images`, else that of the data, or one of these names in it that is there."""
    start = images or data
    return next((start / name for name in names if (start / name).is_dir()), start)


def _is_table(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(_ENDINGS)


def _stem(path: Path) -> str:
    """Name of the split: that of the file without its ending and the number of the shard."""
    name = path.name
    ending = next((ending for ending in sorted(_ENDINGS, key=len)[::-1] if name.lower().endswith(ending)), "")
    return _SHARD.sub("", name.removesuffix(name[len(name) - len(ending) :]))


def _read_files(paths: Sequence[Path], columns: Sequence[str] | None = None) -> Iterator[Row]:
    for path in paths:
        yield from read_file(path, columns)


def _read_csv(path: Path) -> Iterator[Row]:
    line = 0
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            check_names(reader.fieldnames or (), path)
            for number, values in enumerate(reader, start=1):
                where = f"{path}, row {number}"
                if None in values or None in values.values():
                    raise DataError(
                        f"{where} has another number of fields than the {len(reader.fieldnames or ())} names above"
                    )
                yield Row(dict(values), where, path.parent)
                line = reader.line_num
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    except csv.Error as error:
        raise DataError(f"cannot read {path} from line {line + 1} on: {error}; a quote may be left open") from error


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            check_names(file.schema_arrow.names, path)
            names = [name for name in file.schema_arrow.names if columns is None or name in columns]
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH, columns=names):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(values, f"{path}, row {number}", path.parent)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _saved(path: Path) -> dict[str, ReadRows]:
    from datasets import Dataset, load_from_disk

    try:
        loaded = load_from_disk(str(path))
    except Exception as error:  # `datasets` raises errors of pyarrow, fsspec, json and its own
        raise DataError(f"cannot read {path}, which save_to_disk wrote: {type(error).__name__}: {error}") from error
    splits = {"": loaded} if isinstance(loaded, Dataset) else dict(loaded)
    return {str(split): partial(_read_saved, table, path, str(split)) for split, table in splits.items()}


def _read_saved(table: Any, path: Path, split: str, columns: Sequence[str] | None = None) -> Iterator[Row]:
    from datasets import Image

    names = [name for name in table.column_names if columns is None or name in columns]
    table = table.select_columns(names)
    for name in names:
        if isinstance(table.features[name], Image):
            table = table.cast_column(name, Image(decode=False))
    for number, values in enumerate(table, start=1):
        yield Row(values, f"{path}, {split or 'table'}, row {number}", path)


def _declared(path: Path, config: str) -> dict[str, list[Path]]:
    """Splits of a configuration in the metadata of README.md whose files are here."""
    if not (path / "README.md").is_file():
        return {}
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
    from huggingface_hub import metadata_load

    try:
        configs = (metadata_load(path / "README.md") or {}).get("configs") or []
        chosen = [entry for entry in configs if not config or entry.get("config_name") == config][:1]
        files = [entry for entry in (chosen[0].get("data_files") if chosen else None) or [] if isinstance(entry, dict)]
        patterns = {str(entry["split"]): entry["path"] for entry in files}
    except (yaml.YAMLError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise DataError(f"cannot read the metadata of {path / 'README.md'}: {error}") from error
    found = {}
    for split, given in patterns.items():
        names = [given] if isinstance(given, str) else given
        matches = [file for name in names for file in sorted(path.glob(name)) if _is_table(file)]
        if matches:
            found[split] = matches
    return found
