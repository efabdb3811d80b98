"""Keeps the rows of a scored data set that meet a condition, or that are the best: of all, or of each image."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import ConfigError, DataError, OutputError
from reward.samples import find_column
from reward.scoring.columns import image_identity
from reward.scoring.conditions import Condition, parse_condition
from reward.scoring.readers import Source, open_source
from reward.scoring.writers import check_output, json_line, write_atomically, write_tables

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FilterSummary", "Top", "filter_dataset", "hashes_of", "numbers_of"]

_KEPT, _UNSCORED, _REFUSED, _NO_GROUP, _BELOW = range(5)  # what becomes of a row
_CHUNK = 2**20  # rows; of a file of numbers, what is in memory at a time


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
    held: int = 2**24,
) -> FilterSummary:
    """Writes the rows of a scored data set that are wanted, in their order, with all their columns.

    Rows without a score are dropped first, then those that `keep` refuses; `top` chooses among the rest. Of equal
    scores the first in the data are kept. The data are read twice. Memory does not grow with them, but temporary files
    beside the output do, by 17 bytes a row.

    Args:
        data: what `score_dataset` wrote, or a folder of Parquet files; see `open_source`.
        output: `.parquet` or `.jsonl` file.
        keep: condition, such as `"reward >= 0.6 and error is None"`; see `reward.scoring.conditions.parse_condition`.
        top: `"20%"` or a number: how many of the rows with the highest scores.
        by: column of the score.
        per: column that names groups: `top` counts within each, and at least one row of each is kept. "image" is the
            image's column, whatever its name.
        split: of a data set with several.
        overwrite: replace an output that is there.
        held: rows that are ranked in memory at a time, with `per`; fewer take more passes over the temporary file. A
            single group is never divided.

    Returns:
        How many rows were kept, and why the others were not.

    Raises:
        ConfigError: neither `keep` nor `top`, `per` without `top`, or one that cannot be read.
        DataError: the data cannot be read, lack a column, hold no scores there, or no row is left.
        OutputError: the output is there already, or cannot be written.

    Example:
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
    find_column("score", source.columns, by, option="--by")
    condition = None if keep is None else parse_condition(keep, source.columns)
    group = None
    if per is not None:
        role = "image" if per == "image" else "group"
        group = find_column(role, source.columns, None if role == "image" else per, option="--per", needed_by="--per")
    check_output(target, source, Path(data))
    if target.exists() and not overwrite:
        raise OutputError(f"{target} is there already; give another --output, or replace it with --overwrite")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".filter-") as folder:
        rows = _Rows(Path(folder), source.num_rows)
        rows.read(source, by, condition, group)
        if wanted is not None and group is None:
            rows.keep_best(wanted)
        elif wanted is not None:
            rows.keep_best_of_groups(wanted, held)
        counts = rows.counts()
        among = "" if wanted is None else f"not among the top {wanted}" + (f" of their {group}" if group else "")
        reasons = (f"without a score in {by!r}", f"refused by {keep!r}", f"without a value in {group!r}", among)
        asked = (True, keep is not None, group is not None, wanted is not None)
        dropped = {why: n for why, n, given in zip(reasons, counts[1:], asked, strict=True) if given}
        if not counts[_KEPT]:
            told = "; ".join(f"{count:,} {why}" for why, count in dropped.items() if count)
            raise DataError(f"no row of {source.name} is left, so nothing was written: {told}")
        write_atomically(target, lambda path: _write(path, target.suffix.lower(), source, rows.fate))
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


def numbers_of(table: pa.Table, name: str) -> np.ndarray:
    """A column as float64 (N,), NaN where it is null or not finite.

    Raises:
        DataError: it holds no numbers.
    """
    import pyarrow as pa

    column = table.column(name)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        more = "; of lists, as `capreward rerank` writes them, take `capreward pairs`" if pa.types.is_list(kind) else ""
        raise DataError(f"column {name!r} holds {kind}, not one score a row{more}")
    values = column.cast(pa.float64()).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)


class _Rows:
    """What decides on the rows, in temporary files: fate (N,) uint8, score (N,) float64, group (N,) uint64."""

    def __init__(self, folder: Path, count: int) -> None:
        def file(name: str, dtype: Any) -> np.memmap:
            return np.memmap(folder / name, dtype=dtype, mode="w+", shape=(count,))

        self.fate, self.scores, self.groups = (
            file("fate", np.uint8),
            file("score", np.float64),
            file("group", np.uint64),
        )

    def read(self, source: Source, by: str, condition: Condition | None, group: str | None) -> None:
        """Fills the files; a row is kept so far if it has a score, meets the condition, and has a group."""
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
        total = np.zeros(5, dtype=np.int64)
        for part in self._parts():
            total += np.bincount(self.fate[part], minlength=5)
        return [int(count) for count in total]

    def _parts(self) -> Iterator[slice]:
        return (slice(start, start + _CHUNK) for start in range(0, len(self.fate), _CHUNK))

    def keep_best(self, top: Top) -> None:
        """Keeps the best of all rows: the score of the last one is found digit by digit, in four passes."""
        left = top.count(self.counts()[_KEPT])
        if not left:
            return
        prefix, known = 0, 0  # the sortable bits of that score that are known, from the highest, and how many
        while known < 64:
            counts = np.zeros(2**16, dtype=np.int64)
            for part in self._parts():
                keys = _sortable(self.scores[part][self.fate[part] == _KEPT])
                if known:
                    keys = keys[keys >> np.uint64(64 - known) == prefix]
                counts += np.bincount(
                    (keys >> np.uint64(48 - known) & np.uint64(0xFFFF)).astype(np.int64), minlength=2**16
                )
            from_top = np.cumsum(counts[::-1])
            place = int(np.searchsorted(from_top, left))
            left -= int(from_top[place - 1]) if place else 0
            prefix, known = prefix << 16 | 2**16 - 1 - place, known + 16
        for part in self._parts():
            keys, fate = _sortable(self.scores[part]), self.fate[part]
            equal = (keys == np.uint64(prefix)) & (fate == _KEPT)
            among = np.cumsum(equal) <= left
            left -= int((equal & among).sum())
            fate[(fate == _KEPT) & ((keys < np.uint64(prefix)) | (equal & ~among))] = _BELOW

    def keep_best_of_groups(self, top: Top, held: int) -> None:
        """Keeps the best of each group; groups are dealt out over passes, so that each ranks about `held` rows."""
        passes = -(-len(self.fate) // held)
        for number in range(passes):
            found = [
                part.start
                + np.flatnonzero((self.fate[part] == _KEPT) & (self.groups[part] % np.uint64(passes) == number))
                for part in self._parts()
            ]
            rows = np.concatenate(found)
            groups = self.groups[rows]
            order = np.lexsort((-self.scores[rows], groups))  # stable: of equal scores the first
            starts = np.flatnonzero(np.r_[True, groups[order][1:] != groups[order][:-1]][: len(order)])
            sizes = np.diff(np.r_[starts, len(order)])
            most = {int(size): top.count(int(size)) for size in np.unique(sizes)}
            limits = np.repeat([most[size] for size in sizes.tolist()], sizes)
            places = np.arange(len(order)) - np.repeat(starts, sizes)
            self.fate[rows[order[places >= limits]]] = _BELOW


def _sortable(values: np.ndarray) -> np.ndarray:
    """Whole numbers (N,) uint64 in the order of the floats."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    return np.where(bits >> np.uint64(63) == 1, ~bits, bits | np.uint64(2**63))


def hashes_of(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A number of 64 bits for each value, (N,), and whether it is null; two of a billion values share one by 3 %."""
    try:
        encoded = column.combine_chunks().dictionary_encode()
        values = encoded.dictionary.to_pylist()
    except Exception as error:
        raise DataError(f"--per names a column of {column.type}, which cannot name groups: {error}") from error
    digests = [hashlib.blake2b(image_identity(value).encode(), digest_size=8).digest() for value in values]
    hashes = np.frombuffer(b"".join([*digests, bytes(8)]), dtype=np.uint64)
    codes = encoded.indices.fill_null(len(values)).to_numpy()
    return hashes[codes], codes == len(values)
