"""Finds and reads the files that benchmarks are published in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.metaeval.benchmarks.jsonl import is_jsonl, read_lines
from reward.scoring.readers import open_source
from reward.scoring.sources import BadRow


class MissingFileError(DataError):
    """A file does not exist; `load_benchmark` adds where it comes from and under which licence."""


def find_file(path: str | Path, name: str) -> Path:
    """The path itself if it is a file, else the file of that name in the folder, or in a folder in it.

    Raises:
        MissingFileError: there is none.
    """
    path = Path(path)
    if path.is_file():
        return path
    for pattern in (name, f"*/{name}", f"*/*/{name}"):
        for file in sorted(path.glob(pattern)):
            return file
    raise MissingFileError(f"{path} holds no {name}")


def read_table(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a CSV, Parquet or JSONL file.

    Raises:
        DataError: it cannot be read, or a row of it; the message names the row.
    """
    if is_jsonl(path):
        yield from (row for _, row in read_lines(path))
        return
    reader = open_source(path)
    for number, row in enumerate(reader.rows(reader.columns), start=1):
        if isinstance(row, BadRow):
            raise DataError(f"{path}, row {number}: {row.message}")
        yield row


def read_split(data: str | Path, split: str, config: str | None = None) -> Iterator[dict[str, Any]]:
    """The rows of one split of a data set in a folder or on the Hub, of which only its files are read; images encoded.

    Args:
        data: a folder with the files as they lie on the Hub, or the id of the data set there.
        split: such as test.
        config: which of several configurations.

    Raises:
        MissingFileError: there is no such split.
    """
    import datasets

    files = datasets.load_dataset_builder(str(data), config).config.data_files
    if split not in files:
        raise MissingFileError(f"{data} has no split {split}, only {', '.join(map(str, files))}")
    rows = datasets.load_dataset("parquet", data_files=[*files[split]], split="train")
    for name, feature in rows.features.items():
        if isinstance(feature, datasets.Image):
            rows = rows.cast_column(name, datasets.Image(decode=False))
    yield from rows
