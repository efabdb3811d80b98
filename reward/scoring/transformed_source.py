"""Reads data sets of `datasets` as their rows are: what a transform gives is scored, not what the tables hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reward.errors import DataError
from reward.scoring.arrow_sources import DatasetSource
from reward.scoring.row_sources import RowSource
from reward.scoring.sources import BadRow, Source


def dataset_source(dataset: Any, *, name: str, folder: Path) -> Source:
    """The rows of a `datasets.Dataset` as it gives them: its format's columns, and what its transform makes of them."""
    if dataset.format["type"] == "custom" and len(dataset):
        return TransformedSource(dataset, name=name, folder=folder)
    return DatasetSource(dataset.select_columns(shown_columns(dataset)), name=name, folder=folder)


def open_arrow(path: Path) -> Source:
    """A file of the cache of `datasets`."""
    import datasets

    return dataset_source(datasets.Dataset.from_file(str(path)), name=path.name, folder=path.parent)


def shown_columns(dataset: Any) -> list[str]:
    """The columns that the rows of a `datasets.Dataset` have: all of them, but for a format of some.

    Example:
        >>> from datasets import Dataset
        >>> shown_columns(Dataset.from_dict({"id": [1], "caption": ["A star."]}).with_format(columns=["caption"]))
        ['caption']
    """
    shown = dataset.column_names if dataset.format["output_all_columns"] else dataset.format["columns"]
    return list(shown)


class TransformedSource(RowSource):
    """The rows that a transform gives (`set_transform`, `with_transform`), one at a time.

    A row is asked for anew whenever it is read, so texts must not be drawn at random. Pixels are left out of the
    records.
    """

    is_indexed = True

    def __init__(self, dataset: Any, *, name: str, folder: Path) -> None:
        self.dataset, self.name, self.folder = dataset, name, folder
        self.num_rows = len(dataset)
        first_bad = None
        for row in self.parsed():
            if isinstance(row, dict):
                self.columns, self._record_columns = list(row), list(_without_pixels(row))
                return
            first_bad = first_bad or row
        raise DataError(f"{name} has no row that can be read. The first: {first_bad and first_bad.message}")

    @property
    def record_columns(self) -> list[str]:
        return self._record_columns

    def fingerprint(self) -> str:
        from datasets.fingerprint import Hasher

        stored = DatasetSource(self.dataset.with_format(None), name=self.name, folder=self.folder).fingerprint()
        return hashlib.sha256(f"{stored} {Hasher.hash(self.dataset.format)}".encode()).hexdigest()

    def parsed(self, start: int = 0) -> Iterator[dict[str, Any] | BadRow]:
        for number in range(start, self.num_rows):
            try:
                yield dict(self.dataset[number])
            except Exception as error:  # of the transform, of whatever kind, or of an image that cannot be decoded
                yield BadRow(f"row {number + 1} of the data set cannot be read: {type(error).__name__}: {error}"[:500])

    def records(self) -> Iterator[dict[str, Any] | BadRow]:
        for row in self.parsed():
            yield row if isinstance(row, BadRow) else _without_pixels(row)


def _without_pixels(row: dict[str, Any]) -> dict[str, Any]:
    cells = {name: value for name, value in row.items() if not _holds_pixels(value)}
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in cells.items()}


def _holds_pixels(value: Any) -> bool:
    """Whether a cell is, or has inside it, a PIL image or an array of several dimensions."""
    if isinstance(value, dict):
        return any(map(_holds_pixels, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_pixels, value))
    return hasattr(value, "getbands") or getattr(value, "ndim", 0) > 1
