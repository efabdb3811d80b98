"""Keeps the rows of a scored data set that meet a condition, or that are the best: of all, or of each image."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reward.errors import ConfigError, DataError, OutputError
from reward.samples import find_column
from reward.scoring.columns import image_identity
from reward.scoring.conditions import Condition, parse_condition
from reward.scoring.origin import read_origin, write_origin
from reward.scoring.readers import Source, open_source
from reward.scoring.writers import check_output, json_line, write_atomically, write_tables

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FilterSummary", "Top", "filter_dataset", "hashes_of", "numbers_of"]

_KEPT, _UNSCORED, _REFUSED, _NO_GROUP, _BELOW = range(5)  # what becomes of a row
_CHUNK = 2**20  # rows that are written at a time


@dataclass(frozen=True)
class Top:
    """How many of the best rows are kept: a share of them, rounded up, or a number.

    Example:
        >>> Top.parse("20%").count(11), Top.parse("3").count(11), Top.parse("3").count(2)
        (3, 3, 2)
    """

    amount: Fraction
    is_share: bool

    @classmethod
    def parse(cls, text: str | int) -> Top:
        """Reads `20%` or `3`.

        Raises:
            ConfigError: neither, or not above 0 and at most 100 %.
        """
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*", str(text))
        amount = Fraction(found[1]) if found else Fraction(0)
        is_share = found is not None and found[2] == "%"
        if amount <= 0 or (amount > 100 if is_share else amount.denominator > 1):
            raise ConfigError(
                f"--top {text!r} must be a share such as 20%, above 0 and at most 100%, or a number of rows"
            )
        return cls(amount / 100 if is_share else amount, is_share)

    def count(self, rows: int) -> int:
        """How many of so many rows are kept."""
        return min(rows, -int(-self.amount * rows // 1) if self.is_share else int(self.amount))

    def __str__(self) -> str:
        return f"{float(100 * self.amount):g} %" if self.is_share else str(self.amount)


@dataclass(frozen=True)
class FilterSummary:
    """What became of the rows.

    Args:
        output: file that was written.
        rows: rows of the input.
        kept: rows of the output.
        dropped: {why: rows}, in the order in which the reasons are looked for; a row has the first that holds.
    """

    output: Path
    rows: int
    kept: int
    dropped: dict[str, int]


def filter_dataset(
    data: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    keep: str | None = None,
    top: str | int | None = None,
    by: str = "reward",
    per: str | None = None,
    split: str | None = None,
    overwrite: bool = False,
) -> FilterSummary:
    """Writes the rows of a scored data set that are wanted, in their order, with all their columns.

    `<output>.summary.json` keeps what the summary of the data says of columns, checkpoints and the images' folder.

    Rows without a score are dropped first, then those that `keep` refuses; `top` chooses among the rest. Of equal
    scores the first in the data are kept. The data are read twice, in parts; only 17 bytes a row stay in memory, and
    some 50 while `top` sorts.

    Args:
        data: what `score_dataset` wrote, or a folder of Parquet files; see `open_source`.
        output: `.parquet` or `.jsonl` file.
        keep: condition, such as `"reward >= 0.6 and error is None"`; see `reward.scoring.conditions.parse_condition`.
        top: `"20%"` or a number: how many of the rows with the highest scores.
        by: column of the score.
        per: column that names groups: `top` counts within each, and at least one row of each is kept. "image" is the
            image's column, whatever its name: the one that was scored, if the data have a summary.
        split: of a data set with several.
        overwrite: replace an output that is there.

    Returns:
        How many rows were kept, and why the others were not.

    Raises:
        ConfigError: neither `keep` nor `top`, `per` without `top`, or one that cannot be read.
        DataError: the data cannot be read, lack a column, hold no scores there, or no row is left.
        OutputError: the output is there already, or cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data = Path(folder) / "scores.jsonl"
        ...     _ = data.write_text('{"image": "a", "reward": 0.9}\\n{"image": "a", "reward": 0.7}\\n'
        ...         '{"image": "b", "reward": 0.2}\\n{"image": "b", "reward": null}\\n')
        ...     summary = filter_dataset(data, Path(folder) / "best.jsonl", keep="reward > 0.5", top=1, per="image")
        >>> summary.kept, list(summary.dropped.values())
        (1, [1, 1, 0, 1])
    """
    if keep is None and top is None:
        raise ConfigError("nothing to choose by: give --keep CONDITION (keep=), --top SHARE (top=), or both")
    if per is not None and top is None:
        raise ConfigError(f"--per {per} (per=) needs --top (top=): it says of what --top counts the best")
    wanted = None if top is None else Top.parse(top)
    source, target = open_source(data, split=split), Path(output)
    condition = None if keep is None else parse_condition(keep, source.columns)
    if by not in source.columns:
        _refuse_lists(source, [*(condition.columns if condition else ()), by + "s"])
    find_column("score", source.columns, by, option="--by")
    origin, group = read_origin(data), None
    if per is not None:
        role = "image" if per == "image" else "group"
        scored = origin.columns.get("image")
        name = per if role == "group" else scored if scored in source.columns else None
        group = find_column(role, source.columns, name, option="--per", needed_by="--per")
    check_output(target, source, Path(data))
    if target.exists() and not overwrite:
        raise OutputError(f"{target} is there already; give another --output, or replace it with --overwrite")
    rows = _Rows(source.num_rows)
    rows.read(source, by, condition, group)
    if wanted is not None:
        rows.keep_best(wanted, per_group=group is not None)
    counts = rows.counts()
    among = "" if wanted is None else f"not among the top {wanted}" + (f" of their {group}" if group else "")
    reasons = (f"without a score in {by!r}", f"refused by {keep!r}", f"without a value in {group!r}", among)
    asked = (True, keep is not None, group is not None, wanted is not None)
    dropped = {why: n for why, n, given in zip(reasons, counts[1:], asked, strict=True) if given}
    if not counts[_KEPT]:
        told = "; ".join(f"{count:,} {why}" for why, count in dropped.items() if count)
        raise DataError(f"no row of {source.name} is left, so nothing was written: {told}")
    write_atomically(target, lambda path: _write(path, target.suffix.lower(), source, rows.fate))
    write_origin(target, origin, source.folder)
    return FilterSummary(target, source.num_rows, counts[_KEPT], dropped)


def _write(path: Path, kind: str, source: Source, fate: np.ndarray) -> None:
    """The kept rows, as they are: JSON objects as they were read, Arrow columns with their types."""
    if kind == ".parquet":
        write_tables(path, _kept_tables(source, fate))
        return
    records = source.records()
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, len(fate), _CHUNK):
            part = fate[start : start + _CHUNK]
            for row, what in zip(islice(records, len(part)), part, strict=True):
                if what == _KEPT:
                    file.write(json_line(row))  # type: ignore[arg-type]  # a row that cannot be read has no score


def _kept_tables(source: Source, fate: np.ndarray) -> Iterator[pa.Table]:
    import pyarrow as pa

    start = 0
    for table in source.tables():
        yield table.filter(pa.array(fate[start : start + table.num_rows] == _KEPT))
        start += table.num_rows


def _refuse_lists(source: Source, names: Iterable[str]) -> None:
    """Refuses what ranked several captions a row: one of the columns holds lists."""
    import pyarrow as pa

    table = next(source.tables())
    for name in names:
        if name in table.column_names and pa.types.is_list(table.schema.field(name).type):
            numbers_of(table, name)  # raises, and says what to do


def numbers_of(table: pa.Table, name: str) -> np.ndarray:
    """A column as float64 (N,), NaN where it is null or not finite.

    Raises:
        DataError: it holds no numbers.
    """
    import pyarrow as pa

    column = table.column(name)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        more = (
            "; lists, as `capreward rerank` writes them, cannot be filtered: take `capreward pairs`, or rank data with "
            "one caption a row"
            if pa.types.is_list(kind)
            else ""
        )
        raise DataError(f"column {name!r} holds {kind}, not one score a row{more}")
    values = column.cast(pa.float64()).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)


class _Rows:
    """What decides on the rows: fate (N,) uint8, score (N,) float64, group (N,) uint64."""

    def __init__(self, count: int) -> None:
        self.fate = np.zeros(count, dtype=np.uint8)
        self.scores = np.zeros(count)
        self.groups = np.zeros(count, dtype=np.uint64)

    def read(self, source: Source, by: str, condition: Condition | None, group: str | None) -> None:
        """Fills the arrays; so far, a row is kept if it has a score, meets the condition, and has a group."""
        names = [by, *(condition.columns if condition else ()), *([group] if group else [])]
        start = 0
        for table in source.tables(list(dict.fromkeys(names))):
            part = slice(start, start + table.num_rows)
            fate = np.full(table.num_rows, _KEPT, dtype=np.uint8)
            self.scores[part] = numbers_of(table, by)
            if group is not None:
                self.groups[part], missing = hashes_of(table.column(group))
                fate[missing] = _NO_GROUP
            if condition is not None:
                fate[~condition.mask(table)] = _REFUSED
            fate[np.isnan(self.scores[part])] = _UNSCORED
            self.fate[part] = fate
            start += table.num_rows
        if start != len(self.fate):
            raise DataError(f"{source.name} changed while it was read; run the same again")

    def counts(self) -> list[int]:
        """How many rows have each fate."""
        return np.bincount(self.fate, minlength=5).tolist()

    def keep_best(self, top: Top, *, per_group: bool) -> None:
        """Keeps the best rows, of all or of each group; of equal scores the first in the data."""
        rows = np.flatnonzero(self.fate == _KEPT)
        groups = self.groups[rows] if per_group else np.zeros(len(rows), dtype=np.uint64)
        order = np.lexsort((-self.scores[rows], groups))  # stable
        _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
        limits = np.repeat([top.count(int(size)) for size in sizes], sizes)
        places = np.arange(len(order)) - np.repeat(starts, sizes)
        self.fate[rows[order[places >= limits]]] = _BELOW


def hashes_of(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A 64-bit hash of each value, (N,), and whether it is null. A billion values collide with a chance of 3 %."""
    try:
        encoded = column.combine_chunks().dictionary_encode()
        values = encoded.dictionary.to_pylist()
    except Exception as error:
        raise DataError(f"--per names a column of {column.type}, which cannot name groups: {error}") from error
    digests = [hashlib.blake2b(image_identity(value).encode(), digest_size=8).digest() for value in values]
    hashes = np.frombuffer(b"".join([*digests, bytes(8)]), dtype=np.uint64)
    codes = encoded.indices.fill_null(len(values)).to_numpy()
    return hashes[codes], codes == len(values)
