"""Rows of a benchmark's splits: saved by `datasets`, or in Parquet, CSV or JSONL files named after their splits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.jsonl import JSONL_ENDINGS, is_jsonl, read_lines
from reward.scoring.arrow_sources import DatasetSource
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow, Source

__all__ = ["Row", "Split", "find_splits", "image_folder", "read_file"]

_SHARD = re.compile(r"-\d+-of-\d+.*$")
_ENDINGS = (".parquet", ".csv", *JSONL_ENDINGS)


@dataclass(frozen=True)
class Row:
    """A row.

    Args:
        values: {column: value}; an encoded image stays the dictionary that is stored.
        where: names the row in messages.
        folder: of its file, or of the data set.
    """

    values: dict[str, Any]
    where: str
    folder: Path


@dataclass(frozen=True)
class Split:
    """The rows of some files, or of a data set that was opened; they can be read as often as wanted."""

    parts: Sequence[Path | Source]

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[Row]:
        """The rows, with all columns, or with those of `columns` that exist. JSONL and CSV files give all columns.

        Raises:
            DataError: another kind of file, or one that cannot be read.
        """
        for part in self.parts:
            if isinstance(part, Path) and is_jsonl(part):
                for where, values in read_lines(part):
                    yield Row(values, where, part.parent)
                continue
            if isinstance(part, Path) and not part.name.lower().endswith(_ENDINGS):
                raise DataError(f"{part} is not a {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]} file")
            source = open_source(part) if isinstance(part, Path) else part
            names = [name for name in source.columns if columns is None or name in columns]
            for number, record in enumerate(source.rows(names), start=1):
                where = f"{part if isinstance(part, Path) else source.name}, row {number}"
                if isinstance(record, BadRow):
                    raise DataError(f"{where}: {record.message}")
                yield Row(record, where, source.folder)


def read_file(path: Path) -> Iterator[Row]:
    """The rows of a Parquet, CSV or JSONL file; errors as in `Split.rows`."""
    return Split([path]).rows()


def find_splits(path: Path, config: str = "") -> dict[str, Split]:
    """The splits of a data set on disk, by name.

    Args:
        path: one file; or a folder that `save_to_disk` wrote (a single table has the name `""`); or a folder with files
            in it, in its folder `data`, or in that of the configuration. Files belong to the split that they are named
            after, such as `test.jsonl` or `test-00000-of-00002.parquet`, or whose folder they are in, or that the
            metadata of README.md assign them to, as on the Hub.
        config: which of the configurations in README.md.

    Raises:
        DataError: the folder was written by `save_to_disk` but cannot be read.
    """
    if path.is_file():
        return {_split_name(path): Split([path])}
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _saved(path)
    files: dict[str, list[Path]] = {}
    folders = (path, path / "data", *([path / config] if config else []))
    for folder in folders:
        for file in sorted(folder.glob("*")) if folder.is_dir() else ():
            if _is_table(file):
                files.setdefault(_split_name(file), []).append(file)
            elif file.is_dir() and file not in folders and (inside := sorted(filter(_is_table, file.glob("*")))):
                files.setdefault(file.name, []).extend(inside)
    files |= _declared(path, config)
    return {split: Split(paths) for split, paths in files.items()}


def image_folder(data: Path, images: Path | None, *names: str) -> Path:
    """Folder of a benchmark's images: `images`, else the data's; or the first of these names that exists in it."""
    start = images or data
    return next((start / name for name in names if (start / name).is_dir()), start)


def _is_table(path: Path) -> bool:
    return path.is_file() and path.name.lower().endswith(_ENDINGS)


def _split_name(path: Path) -> str:
    """Name of the file without its ending and the number of the shard."""
    ending = next((ending for ending in sorted(_ENDINGS, key=len)[::-1] if path.name.lower().endswith(ending)), "")
    return _SHARD.sub("", path.name[: len(path.name) - len(ending)])


def _saved(path: Path) -> dict[str, Split]:
    from datasets import Dataset, load_from_disk

    try:
        loaded = load_from_disk(str(path))
    except Exception as error:  # `datasets` raises errors of pyarrow, fsspec, json and its own
        raise DataError(f"cannot read {path}, which save_to_disk wrote: {type(error).__name__}: {error}") from error
    tables = {"": loaded} if isinstance(loaded, Dataset) else dict(loaded)
    return {
        str(split): Split([DatasetSource(table, name=f"{path}, {split or 'table'}", folder=path)])
        for split, table in tables.items()
    }


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
    splits = {}
    for split, given in patterns.items():
        names = [given] if isinstance(given, str) else given
        matches = [file for name in names for file in sorted(path.glob(name)) if _is_table(file)]
        if matches:
            splits[split] = matches
    return splits
