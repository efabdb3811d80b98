"""Scored files of any form as tables of one row a caption: rows, ranked rows, and rows with lists of candidates."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.errors import DataError
from reward.samples import find_column, named
from reward.scoring.origin import read_origin
from reward.scoring.readers import open_source

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["REWARDS", "ScoredCaptions"]

REWARDS = ("reward", "rewards")  # how columns of them end; the second is of lists


class ScoredCaptions:
    """A scored file, and which of its columns hold what.

    Args:
        data, by, per, candidate_column, image_column, split: see `read_scored`.

    Attributes:
        source: the file.
        origin: how it was made.
        by: column of the main score.
        scores: columns of scores: the main one, other rewards, then the rest.
        lists: whether a row holds the scores of several candidates.
        caption, image, error: columns; None where there is none.
        pool: column of what rows were ranked by; None where they were not.
        cluster: column of what captions share that are not independent, the image; None where it was not found.

    Raises:
        DataError: the data cannot be read, lack a column, or have no column of scores.
    """

    def __init__(
        self,
        data: str | os.PathLike[str],
        *,
        by: str | None = None,
        per: str | None = None,
        candidate_column: str | None = None,
        image_column: str | None = None,
        split: str | None = None,
    ) -> None:
        self.source, self.origin, self.per = open_source(data, split=split), read_origin(data), per
        schema = next(self.source.tables()).schema
        self._names: list[str] = schema.names
        if by is None:
            known = [name for name in schema.names if name.endswith(REWARDS)]
            if not known:
                raise DataError(
                    f"no column of {self.source.name} is named reward or ends with it; name the scores with --by. The "
                    f"columns are: {named(schema.names)}."
                )
            by = next((name for name in REWARDS if name in known), known[0])
        for name, option in ((by, "--by"), (per, "--per")):
            if name is not None:
                find_column("score", schema.names, name, option=option)
        self.by, self.lists = by, _is_list(schema.field(by).type)
        others = [one.name for one in schema if _is_score(one.type, self.lists) and one.name != by]
        self.scores = [by, *sorted(others, key=lambda name: not name.endswith(REWARDS))]
        prefix = by.removesuffix("s").removesuffix("reward")
        self.error = next((name for name in (prefix + "error", "error") if name in schema.names), None)
        self.image = self._column("image", image_column)
        self.caption = self._column("candidate", candidate_column, "candidates" if self.lists else "candidate")
        if self.caption and candidate_column is None and _is_list(schema.field(self.caption).type) and not self.lists:
            self.caption = None  # --by names a score of the whole list
        ranked = prefix + "rank" in schema.names and not self.lists
        self.pool = (self.origin.columns.get("group") or self.image) if ranked else None
        self.cluster = self.image or self.pool

    def _column(self, role: str, given: str | None, of: str | None = None) -> str | None:
        """The column that is given, else the one that was scored, else one with a known name."""
        read = self.origin.columns.get(role)
        if given is None and read in self._names:
            return read
        return find_column(of or role, self._names, given, option=f"--{role}-column")

    def tables(self) -> Iterator[tuple[pa.Table, np.ndarray, pa.Table]]:
        """Tables of one row a caption, the number of each caption's row from 0, and the rows as the file has them."""
        optional = (self.caption, self.image, self.per, self.error, self.pool)
        wanted = [*self.scores, *(name for name in optional if name)]
        start = 0
        for table in self.source.tables(list(dict.fromkeys(wanted))):
            flat, parents = self._flattened(table) if self.lists else (table, np.arange(table.num_rows))
            yield flat, parents + start, table
            start += table.num_rows

    def _flattened(self, table: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """A row for each candidate with the row's other values; a row without a list stays one, without scores."""
        import pyarrow as pa
        import pyarrow.compute as pc

        counts = np.asarray(pc.list_value_length(table.column(self.by)).fill_null(0))
        parents = np.repeat(np.arange(table.num_rows), np.maximum(counts, 1))
        is_candidate = counts[parents] > 0
        places = pa.array(np.cumsum(is_candidate) - 1, mask=~is_candidate)
        flat = table.take(pa.array(parents))
        for index, column in enumerate(table.columns):
            if _is_list(column.type) and table.column_names[index] in (*self.scores, self.caption):
                has_list = np.asarray(pc.list_value_length(column).fill_null(0))
                if (has_list != counts)[counts > 0].any():
                    raise DataError(
                        f"columns {self.by!r} and {table.column_names[index]!r} of {self.source.name} hold lists of "
                        "different lengths"
                    )
                column = column.filter(pa.array(counts > 0))
                flat = flat.set_column(index, table.column_names[index], pc.list_flatten(column).take(places))
        return flat, parents

    def row(self, table: pa.Table, rows: np.ndarray, place: int) -> dict[str, Any]:
        """Caption, image and the number from 1 of the row, of one place in a table."""
        names = {"caption": self.caption, "image": self.image}
        cells = {what: name and table.column(name)[place].as_py() for what, name in names.items()}
        return {**cells, "row": int(rows[place]) + 1}

    def rows_at(self, places: Sequence[int]) -> dict[int, dict[str, Any]]:
        """{number of a caption in the set, from 0: its row}, read anew."""
        found, start = {}, 0
        for table, rows, _ in self.tables():
            for place in places:
                if start <= place < start + table.num_rows:
                    found[place] = self.row(table, rows, place - start)
            start += table.num_rows
        return found


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_score(kind: pa.DataType, lists: bool) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind.value_type if lists and _is_list(kind) else kind)) and _is_list(kind) == lists
